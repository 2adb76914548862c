package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/statefile"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

const (
	// maxProjects bounds the projects whose blocks are followed at one time,
	// besides those of all projects.
	maxProjects = 8

	// teamKey is the project of the blocks of all projects.
	teamKey = ""

	partBlocks = "api/blocks"
)

// Projects are those that a person works in. Its methods may be called from
// several goroutines; the zero value is ready.
type Projects struct {
	mu    sync.Mutex
	used  map[string]time.Time
	told  chan struct{}
	known []string
}

// Use says that a project is worked in now.
func (p *Projects) Use(project string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.initLocked()
	if p.used[project] = now; slices.Contains(p.known, project) {
		return
	}
	p.known = slices.SortedFunc(maps.Keys(p.used), func(a, b string) int {
		return cmp.Or(p.used[b].Compare(p.used[a]), cmp.Compare(a, b))
	})
	for _, old := range p.known[min(len(p.known), maxProjects):] {
		delete(p.used, old)
	}
	p.known = p.known[:min(len(p.known), maxProjects)]
	select {
	case p.told <- struct{}{}:
	default:
	}
}

func (p *Projects) initLocked() {
	if p.told == nil {
		p.told, p.used = make(chan struct{}, 1), map[string]time.Time{}
	}
}

// list returns the projects, and the channel that tells of new ones.
func (p *Projects) list() ([]string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.initLocked()
	return slices.Clone(p.known), p.told
}

// memories is what is known of the blocks, by project and label.
type memories struct {
	mu     sync.Mutex
	blocks map[string]map[string]whisper.Block
}

// followBlocks follows the blocks of all projects and of those in use.
func (w *Watcher) followBlocks(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	running := map[string]context.CancelFunc{}
	for ctx.Err() == nil {
		projects, told := w.Projects.list()
		for project, cancel := range running {
			if project != teamKey && !slices.Contains(projects, project) {
				cancel()
				delete(running, project)
			}
		}
		for _, project := range append(projects, teamKey) {
			if running[project] == nil {
				within, cancel := context.WithCancel(ctx)
				running[project] = cancel
				group.Go(func() { w.follow(within, w.blocks(project)) })
			}
		}
		select {
		case <-ctx.Done():
		case <-told:
		}
	}
	for _, cancel := range running {
		cancel()
	}
}

// blocks follows the blocks of one project.
func (w *Watcher) blocks(project string) target {
	return target{
		part:  partBlocks,
		list:  func() kube.List { return &v1alpha1.MemoryBlockList{} },
		which: kube.Fields{"spec.memoryRef.name": w.Memory, "spec.project": project},
		all: func(_ context.Context, objects []runtime.Object) error {
			all := map[string]whisper.Block{}
			for _, object := range objects {
				if b, ok := object.(*v1alpha1.MemoryBlock); ok {
					w.enter(all, b)
				}
			}
			w.remember(project, func(map[string]whisper.Block) map[string]whisper.Block { return all })
			return nil
		},
		one: func(_ context.Context, event watch.EventType, object runtime.Object) {
			b, ok := object.(*v1alpha1.MemoryBlock)
			if !ok {
				return
			}
			w.remember(project, func(blocks map[string]whisper.Block) map[string]whisper.Block {
				if event == watch.Deleted {
					delete(blocks, b.Spec.Label)
				} else {
					w.enter(blocks, b)
				}
				return blocks
			})
		},
	}
}

// enter takes one block. One that was never filled says nothing.
func (w *Watcher) enter(blocks map[string]whisper.Block, b *v1alpha1.MemoryBlock) {
	if b.Status.Digest == "" {
		return
	}
	block := whisper.Block{Label: b.Spec.Label, Value: b.Status.Value, Digest: b.Status.Digest, Trust: whisper.TrustLearned}
	if b.Spec.Mode != v1alpha1.BlockLearned {
		block.Trust = whisper.TrustPinned
	}
	if at := b.Status.UpdatedAt; at != nil {
		block.UpdatedAt = local(at.UTC(), w.Skew())
	}
	blocks[b.Spec.Label] = block
}

// remember changes what is known of one project's blocks, and lets the hook and
// the sessions of the projects concerned know.
func (w *Watcher) remember(project string, change func(map[string]whisper.Block) map[string]whisper.Block) {
	w.memories.mu.Lock()
	defer w.memories.mu.Unlock()
	if w.memories.blocks == nil {
		w.memories.blocks = map[string]map[string]whisper.Block{}
	}
	blocks := w.memories.blocks[project]
	if blocks == nil {
		blocks = map[string]whisper.Block{}
	}
	w.memories.blocks[project] = change(blocks)
	team, known := w.memories.blocks[teamKey]
	if !known {
		return // a memory without what the team pinned would not be the whole
	}
	for each, own := range w.memories.blocks {
		if project != teamKey && each != project {
			continue
		}
		if err := w.keepMemory(each, team, own); err != nil {
			w.Log.Error("The memory's blocks cannot be kept", "error", err)
			w.Trouble.Set("files/blocks", "what the team's memory holds cannot be written to the local disk")
			return
		}
	}
	w.Trouble.Set("files/blocks", "")
}

func (w *Watcher) keepMemory(project string, team, own map[string]whisper.Block) error {
	merged := maps.Clone(team)
	maps.Copy(merged, own)
	m := whisper.Memory{Project: project, Name: w.Memory}
	for _, label := range slices.SortedFunc(maps.Keys(merged), func(a, b string) int {
		if (a == note.BriefLabel) != (b == note.BriefLabel) {
			if a == note.BriefLabel {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	}) {
		m.Blocks = append(m.Blocks, merged[label])
	}
	if err := whisper.PutMemory(w.Home, m); err != nil {
		return err
	}
	if w.View.Mode() != note.RecallFull {
		return nil
	}
	var errs []error
	for _, session := range w.Spool.Sessions() {
		state := session.State()
		if state.Project == nil || state.Withdrawn || state.Ended || w.View.Key(state.Project.Remote) != project {
			continue
		}
		errs = append(errs, w.changes(&state, m))
	}
	return errors.Join(errs...)
}

// changes tells a session what became of the blocks that it was shown. One that
// was shown none begins with the whole of them.
func (w *Watcher) changes(state *spool.State, m whisper.Memory) error {
	dir, err := statefile.Dir(state.Cwd, state.LettaHome, state.SessionID, state.ProjectDir)
	if err != nil {
		return nil //nolint:nilerr // where state files cannot be, nothing is known to have been shown
	}
	known, err := statefile.Blocks(dir, state.SessionID)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, statefile.ErrBroken) || len(known) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read state files: %w", err)
	}
	unheard, err := whisper.Unheard(w.Home, state.SessionID)
	if err != nil {
		return err
	}
	for _, b := range m.Blocks {
		waits := false
		for _, u := range unheard {
			switch {
			case u.Label != b.Label:
			case u.Value == b.Value:
				waits = true
			default: // it is out of date before it was heard
				if err := whisper.Withdraw(w.Home, state.SessionID, u.ID); err != nil {
					return err
				}
			}
		}
		if waits || known[b.Label] == b.Value {
			continue
		}
		if err := whisper.Put(w.Home, b.Change(state.SessionID, m, known[b.Label])); err != nil && !errors.Is(err, whisper.ErrInvalid) {
			return err
		}
	}
	return nil
}
