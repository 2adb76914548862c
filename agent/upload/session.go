package upload

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/redact"
)

// Field managers of what a workstation writes.
const (
	createManager = "undersong-create"
	applyManager  = "undersong-" // and the workstation's name
)

// apiTimeout bounds one call to the API server.
const apiTimeout = 30 * time.Second

// maxConflicts bounds how often a write is tried at once when the object
// changes in between.
const maxConflicts = 10

// maxBranch is the bound of Writer.branch, in characters.
const maxBranch = 200

// Publisher writes Sessions.
type Publisher struct {
	Client      *kube.Client
	Redactor    *redact.Redactor
	Namespace   string
	Owner       string
	Memory      string
	Workstation string

	// HideTitles says whether the branch is left out; nil means never.
	HideTitles func() bool

	// Expired says whether the Session of a state that is not there any more
	// was deleted because its time was over; nil means never.
	Expired func(*spool.State) bool
}

// Due says, without asking the cluster, whether Publish has something to do.
func (p *Publisher) Due(state *spool.State) bool { return due(state, p.who(state)) }

// Publish brings this workstation's entry in the Session up to what is in the
// store. It makes the Session if it never existed. When it returns nil the
// cluster has the entry, and the state knows it.
func (p *Publisher) Publish(ctx context.Context, session *spool.Session) error {
	for range maxConflicts {
		live, err := p.live(ctx, session)
		if err != nil {
			return err
		}
		if live == nil { // withdrawn, and nobody is left to be told
			return session.Update(func(state *spool.State) { state.Gone = nil })
		}
		state := session.State()
		entry, write, err := plan(live, &state, p.who(&state))
		if errors.Is(err, ErrWithdrawn) {
			if !state.Withdrawn && p.expired(&state) {
				err = session.Expire() // and made again by another workstation
				if err == nil {
					continue
				}
				return err
			}
			return errors.Join(err, session.Withdraw())
		}
		if err != nil {
			return err
		}
		if !write {
			return p.record(session, live, writer(live, p.Workstation))
		}
		// First: what the cluster may know is not changed here any more.
		if err := session.Update(func(state *spool.State) { state.Told = max(state.Told, entry.Segments) }); err != nil {
			return err
		}
		err = p.apply(ctx, live, &entry)
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			continue // it changed in between: look again
		case err != nil:
			return fmt.Errorf("apply session entry: %w", err)
		}
		crash.Point(crash.AgentSpecApplied)
		return p.record(session, live, &entry)
	}
	return errors.New("apply session entry: the session changes too often")
}

func (p *Publisher) expired(state *spool.State) bool {
	return p.Expired != nil && p.Expired(state)
}

// live returns the Session as it is now, made if it never was or if its time
// was over; nil if it is not there and was withdrawn.
func (p *Publisher) live(ctx context.Context, session *spool.Session) (*v1alpha1.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*apiTimeout)
	defer cancel()
	state := session.State()
	live := &v1alpha1.Session{}
	key := kube.Key{Namespace: p.Namespace, Name: state.Name}
	err := p.Client.Get(ctx, key, live)
	if err == nil {
		return live, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read session: %w", err)
	}
	switch {
	case state.Withdrawn:
		return nil, nil //nolint:nilnil // absence is the answer
	case state.UID == "":
	case p.expired(&state):
		if err := session.Expire(); err != nil {
			return nil, err
		}
	default:
		return nil, errors.Join(ErrWithdrawn, session.Withdraw())
	}
	live = p.fresh(&state)
	err = p.Client.Create(ctx, live, createManager)
	if apierrors.IsAlreadyExists(err) {
		// A try of ours that got no answer, another workstation, or another
		// person: the live object tells.
		live = &v1alpha1.Session{}
		err = p.Client.Get(ctx, key, live)
	}
	if err != nil {
		return nil, fmt.Errorf("create session: %w", err)
	}
	crash.Point(crash.AgentSessionCreated)
	return live, nil
}

// fresh is the Session of a state, without writers.
func (p *Publisher) fresh(state *spool.State) *v1alpha1.Session {
	return &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: state.Name},
		Spec: v1alpha1.SessionSpec{
			Owner:      p.Owner,
			SessionID:  state.SessionID,
			Agent:      v1alpha1.AgentClaudeCode,
			MemoryRef:  v1alpha1.LocalRef{Name: p.Memory},
			Project:    v1alpha1.Project{Name: state.Project.Name, Remote: state.Project.Remote},
			ForkedFrom: state.ForkedFrom,
		},
	}
}

// apply writes the entry and the sum of lines, and nothing else, onto exactly
// the object that was read.
func (p *Publisher) apply(ctx context.Context, live *v1alpha1.Session, entry *v1alpha1.Writer) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(entry)
	if err != nil {
		return fmt.Errorf("encode entry: %w", err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "Session",
		"metadata": map[string]any{
			"namespace":       live.Namespace,
			"name":            live.Name,
			"uid":             string(live.UID),
			"resourceVersion": live.ResourceVersion,
		},
		"spec": map[string]any{
			"writers": []any{fields},
			"lines":   total(live, entry),
		},
	}}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return p.Client.Apply(ctx, object, applyManager+p.Workstation)
}

// record notes what the cluster has.
func (p *Publisher) record(session *spool.Session, live *v1alpha1.Session, entry *v1alpha1.Writer) error {
	return session.Update(func(state *spool.State) {
		state.UID, state.Expired = string(live.UID), false
		state.Applied = entry.DeepCopy()
	})
}

func (p *Publisher) who(state *spool.State) who {
	branch, _ := p.Redactor.Text(state.Branch)
	if p.HideTitles != nil && p.HideTitles() {
		branch = redact.Redacted{}
	}
	return who{
		owner: p.Owner, memory: p.Memory, workstation: p.Workstation,
		// It comes from a repository: nothing in it hides or moves a cursor.
		branch: cut(whisper.PlainLine(branch.String()), maxBranch),
	}
}

// cut returns at most n characters of s.
func cut(s string, n int) string {
	seen := 0
	for i := range s {
		if seen == n {
			return s[:i]
		}
		seen++
	}
	return s
}
