package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/internal/text"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

const (
	// scrubEvery is how often the Scrubber looks whether there is something to do,
	// and scrubAgain how long it leaves a memory alone where that did not go.
	scrubEvery = 2 * time.Second
	scrubAgain = 30 * time.Second
	// scrubPatience is how long a Session may take to do its part: one that is
	// stalled says so itself, and is left out.
	scrubPatience = 5 * time.Minute
	// scrubPoll is how often a Session that is waited for is woken.
	scrubPoll = 5 * time.Second
	// saveEvery is after how many things without a find the run is saved.
	saveEvery = 64
	// scrubRunFormat is the format of what is kept of a run.
	scrubRunFormat = 1
	// maxScrubRun bounds it.
	maxScrubRun = 1 << 20
	// maxTexts bounds the texts of blocks that are remembered to have had it.
	maxTexts = 4096
	// maxLeft, maxLeftBytes and maxScrubSessions bound what status says.
	maxLeft          = 16
	maxLeftBytes     = 512
	maxScrubSessions = 16
)

// scrubManager owns status.scrubs.
const scrubManager = client.FieldOwner("undersong-scrub")

// +kubebuilder:rbac:groups=undersong.dev,resources=teammemories/status;memoryblocks/status,verbs=patch

// Scrubber looks for the texts of spec.scrubs wherever a memory keeps something,
// and takes them out where it is asked to.
//
// It walks from place to place, thing by thing, and notes in the store how far it
// is: the next process goes on there. What a live Session has it leaves to the
// Reconciler, by Scrubs. It begins when no reconcile runs any more that does not
// know the text, so that none stands anew behind it.
type Scrubber struct {
	// Client reads from the cache and writes status.
	Client client.Client
	// Live reads past the cache.
	Live client.Reader
	// Connect opens stores and Letta back ends.
	Connect *connect.Opener
	// Agents is told which revision a memory has.
	Agents *connect.Agents
	// Redactor has the built-in rules.
	Redactor *redact.Redactor
	// Scrubs is shared with the Reconciler.
	Scrubs *Scrubs
	// Clock tells the time.
	Clock clock.PassiveClock
	// Patience is how long a Session may take. Zero means five minutes.
	Patience time.Duration
}

// Start looks after scrubs until ctx ends.
func (w *Scrubber) Start(ctx context.Context) error {
	again := map[types.UID]time.Time{}
	wait.UntilWithContext(ctx, func(ctx context.Context) { w.round(ctx, again) }, scrubEvery)
	return nil
}

// round looks after each memory's scrubs, except of those that are left alone
// until a time in again.
func (w *Scrubber) round(ctx context.Context, again map[types.UID]time.Time) {
	var list v1alpha1.TeamMemoryList
	if err := w.Client.List(ctx, &list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing TeamMemories")
		return
	}
	for i := range list.Items {
		mem := &list.Items[i]
		if w.Clock.Now().Before(again[mem.UID]) {
			continue
		}
		delete(again, mem.UID)
		if err := w.Scrub(ctx, mem); err != nil && ctx.Err() == nil {
			again[mem.UID] = w.Clock.Now().Add(scrubAgain)
			ctrl.LoggerFrom(ctx).Info("Leaving a scrub for the next time", "TeamMemory", client.ObjectKeyFromObject(mem), "reason", err.Error())
		}
	}
}

// Scrub does what is left of each of a memory's scrubs. When it returns nil all
// are Done or Refused. Doing it again does nothing.
func (w *Scrubber) Scrub(ctx context.Context, mem *v1alpha1.TeamMemory) error {
	if len(mem.Spec.Scrubs) == 0 && len(mem.Status.Scrubs) == 0 || !mem.DeletionTimestamp.IsZero() {
		return nil
	}
	bucket, err := w.Connect.Store(ctx, mem)
	if err != nil {
		return err
	}
	if err := w.clear(ctx, mem, bucket); err != nil {
		return err
	}
	var first error
	for i := range mem.Spec.Scrubs {
		entry := &mem.Spec.Scrubs[i]
		if at := slices.IndexFunc(mem.Status.Scrubs, func(s v1alpha1.ScrubStatus) bool { return s.ID == entry.ID }); at >= 0 {
			if s := &mem.Status.Scrubs[at]; s.Mode == entry.Mode && s.Phase != v1alpha1.ScrubRunning {
				continue
			}
		}
		if err := w.one(ctx, mem, bucket, entry); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// clear forgets the scrubs that spec does not have any more.
func (w *Scrubber) clear(ctx context.Context, mem *v1alpha1.TeamMemory, bucket *store.Bucket) error {
	for _, s := range mem.Status.Scrubs {
		if slices.ContainsFunc(mem.Spec.Scrubs, func(e v1alpha1.Scrub) bool { return e.ID == s.ID }) {
			continue
		}
		if err := bucket.Delete(ctx, segment.ScrubRunKey(mem.Namespace, mem.Name, s.ID)); err != nil {
			return w.Connect.StoreError(mem, err)
		}
		if err := w.tell(ctx, mem, s.ID, nil); err != nil {
			return err
		}
	}
	return nil
}

// one runs one scrub from where it is to its end.
func (w *Scrubber) one(ctx context.Context, mem *v1alpha1.TeamMemory, bucket *store.Bucket, entry *v1alpha1.Scrub) error {
	refuse := func(why string) error {
		return w.tell(ctx, mem, entry.ID, &v1alpha1.ScrubStatus{ID: entry.ID, Mode: entry.Mode, Phase: v1alpha1.ScrubRefused, Message: clip(why)})
	}
	identity, err := w.Connect.ScrubIdentity(ctx, mem, false)
	if errors.Is(err, store.ErrNotExist) {
		return refuse(connect.ErrNotSealedHere.Error())
	}
	if err != nil {
		return err
	}
	known, err := connect.Known(identity, entry)
	if err != nil {
		return refuse(err.Error())
	}
	run := &scrubRun{w: w, mem: mem, bucket: bucket, entry: entry, rule: redact.KnownRule(entry.ID)}
	if run.only, err = redact.New(redact.Options{Known: []redact.Known{known}, OnlyKnown: true}); err != nil {
		return refuse(err.Error())
	}
	if run.full, err = (&connect.Redactors{BuiltIn: w.Redactor, Open: w.Connect}).For(ctx, mem); err != nil {
		return err
	}
	if err := run.resume(ctx); err != nil {
		return err
	}
	if !runs(mem, entry) { // else status says so, or why it waits
		if err := run.report(ctx, v1alpha1.ScrubRunning, ""); err != nil {
			return err
		}
	}
	if run.removes() {
		settled := w.Scrubs.settled()
		if err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) { return settled(), nil }); err != nil {
			return err
		}
	}
	if err := run.all(ctx); err != nil {
		return errors.Join(err, run.report(ctx, v1alpha1.ScrubRunning, "it waits and goes on by itself: "+err.Error()))
	}
	return run.report(ctx, v1alpha1.ScrubDone, "")
}

// runs reports whether status says already that a scrub runs.
func runs(mem *v1alpha1.TeamMemory, entry *v1alpha1.Scrub) bool {
	return slices.ContainsFunc(mem.Status.Scrubs, func(s v1alpha1.ScrubStatus) bool {
		return s.ID == entry.ID && s.Mode == entry.Mode && s.Phase == v1alpha1.ScrubRunning
	})
}

// tell writes what became of a scrub into status; nil takes it away.
func (w *Scrubber) tell(ctx context.Context, mem *v1alpha1.TeamMemory, id string, s *v1alpha1.ScrubStatus) error {
	for try := 0; ; try++ {
		live := &v1alpha1.TeamMemory{}
		if err := w.Live.Get(ctx, client.ObjectKeyFromObject(mem), live); err != nil {
			return client.IgnoreNotFound(err)
		}
		before := live.DeepCopy()
		at := slices.IndexFunc(live.Status.Scrubs, func(o v1alpha1.ScrubStatus) bool { return o.ID == id })
		switch {
		case s == nil && at >= 0:
			live.Status.Scrubs = slices.Delete(live.Status.Scrubs, at, at+1)
		case s != nil && !slices.ContainsFunc(live.Spec.Scrubs, func(e v1alpha1.Scrub) bool { return e.ID == id }):
			return nil // it was taken away meanwhile
		case s != nil && at >= 0:
			live.Status.Scrubs[at] = *s
		case s != nil:
			live.Status.Scrubs = append(live.Status.Scrubs, *s)
		}
		if equality.Semantic.DeepEqual(before, live) {
			return nil
		}
		err := w.Client.Status().Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), scrubManager)
		if !apierrors.IsConflict(err) || try == 10 {
			return client.IgnoreNotFound(err)
		}
	}
}

// scrubRun is one scrub under way.
type scrubRun struct {
	w      *Scrubber
	mem    *v1alpha1.TeamMemory
	bucket *store.Bucket
	entry  *v1alpha1.Scrub
	// only finds the text and nothing else; full is what is written with.
	only, full *redact.Redactor
	rule       string
	// stays are the places where the thing that was changed last has it still.
	stays []v1alpha1.ScrubPlace
	// unsaved counts the things since the run was saved.
	unsaved int

	scrubProgress
}

// scrubProgress is what the store keeps of a run.
type scrubProgress struct {
	Format int                `json:"format"`
	Mode   v1alpha1.ScrubMode `json:"mode"`
	// Stage and Cursor are the place and the last thing in it that is done.
	Stage  int    `json:"stage"`
	Cursor string `json:"cursor"`
	// Counted is the thing whose finds are counted and which may be changed.
	Counted  string                `json:"counted,omitempty"`
	Pending  []v1alpha1.ScrubFound `json:"pending,omitempty"`
	Found    []v1alpha1.ScrubFound `json:"found,omitempty"`
	Sessions []string              `json:"sessions,omitempty"`
	Left     []string              `json:"left,omitempty"`
	// Texts are the digests of blocks' texts in which it stood.
	Texts []string `json:"texts,omitempty"`
}

func (s *scrubRun) removes() bool { return s.entry.Mode == v1alpha1.ScrubRemove }

func (s *scrubRun) key() string {
	return segment.ScrubRunKey(s.mem.Namespace, s.mem.Name, s.entry.ID)
}

// resume reads how far an earlier process came.
func (s *scrubRun) resume(ctx context.Context) error {
	fresh := scrubProgress{Format: scrubRunFormat, Mode: s.entry.Mode}
	data, err := s.bucket.Get(ctx, s.key(), maxScrubRun)
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return s.w.Connect.StoreError(s.mem, err)
	}
	if err == nil && json.Unmarshal(data, &s.scrubProgress) == nil && s.Format == scrubRunFormat && s.Mode == s.entry.Mode {
		return nil
	}
	s.scrubProgress = fresh
	return nil
}

// save notes how far it is.
func (s *scrubRun) save(ctx context.Context) error {
	s.unsaved = 0
	data, err := json.Marshal(&s.scrubProgress)
	if err != nil {
		return fmt.Errorf("encode the run: %w", err)
	}
	return s.w.Connect.StoreError(s.mem, s.bucket.Put(ctx, s.key(), data))
}

// report writes what is found so far into status.
func (s *scrubRun) report(ctx context.Context, phase v1alpha1.ScrubPhase, message string) error {
	st := &v1alpha1.ScrubStatus{ID: s.entry.ID, Mode: s.entry.Mode, Phase: phase, Message: clip(message), Found: s.Found, Sessions: s.Sessions, NotReached: s.Left}
	if phase == v1alpha1.ScrubDone {
		now := metav1.NewTime(s.w.Clock.Now().Truncate(time.Second))
		st.FinishedAt = &now
	}
	return s.w.tell(ctx, s.mem, s.entry.ID, st)
}

// all walks through all places. What Letta has comes first, so that no turn
// reads it meanwhile, and once more at the end, for a turn that had.
func (s *scrubRun) all(ctx context.Context) error {
	stages := []func(context.Context) error{s.blocks, s.archive, s.conversations, s.texts, s.memoryBlocks, s.sessions, s.uploads}
	if s.removes() {
		stages = append(stages, s.blocks)
	}
	for ; s.Stage < len(stages); s.Stage++ {
		if err := stages[s.Stage](ctx); err != nil {
			return err
		}
		s.Cursor = ""
		if err := s.report(ctx, v1alpha1.ScrubRunning, ""); err != nil {
			return err
		}
		if s.Stage+1 < len(stages) {
			s.Stage++
			if err := s.save(ctx); err != nil {
				return err
			}
			s.Stage--
		}
	}
	return nil
}

// thing looks at one thing, and changes it where the text stands in it and is to
// be removed. Things come in the order of their names, and what is done already
// is passed over. What is found is noted before it is changed: it is not found
// again by a process that goes on from there.
func (s *scrubRun) thing(ctx context.Context, name string, look func() ([]v1alpha1.ScrubFound, error), change func() (bool, error)) error {
	if name <= s.Cursor {
		return nil
	}
	found, err := look()
	if err != nil {
		return err
	}
	if s.Counted != name {
		hit := false
		for _, f := range found {
			s.count(f)
			hit = hit || f.Found > 0
		}
		if hit && s.removes() {
			s.Counted, s.Pending = name, found
			if err := s.save(ctx); err != nil {
				return err
			}
		}
	}
	if s.Counted == name {
		s.stays = nil
		changed, err := change()
		if err != nil {
			return err
		}
		for _, f := range s.Pending {
			if changed && !slices.Contains(s.stays, f.Place) {
				s.count(v1alpha1.ScrubFound{Place: f.Place, Changed: f.Found})
			}
		}
		s.Counted, s.Pending, s.unsaved = "", nil, saveEvery
	}
	s.Cursor = name
	if s.unsaved++; s.unsaved < saveEvery {
		return nil
	}
	return s.save(ctx)
}

// count adds up.
func (s *scrubRun) count(f v1alpha1.ScrubFound) {
	i := slices.IndexFunc(s.Found, func(o v1alpha1.ScrubFound) bool { return o.Place == f.Place })
	if i < 0 {
		s.Found = append(s.Found, v1alpha1.ScrubFound{Place: f.Place})
		i = len(s.Found) - 1
	}
	s.Found[i].Looked += f.Looked
	s.Found[i].Found += f.Found
	s.Found[i].Changed += f.Changed
}

// leave notes what is not reached.
func (s *scrubRun) leave(format string, args ...any) {
	what := clip(fmt.Sprintf(format, args...))
	const more = "more than is listed here; correct these and scrub again"
	switch {
	case slices.Contains(s.Left, what):
	case len(s.Left) < maxLeft-1:
		s.Left = append(s.Left, what)
	case len(s.Left) == maxLeft-1:
		s.Left = append(s.Left, more)
	}
}

// in notes a Session in whose words the text stood.
func (s *scrubRun) in(session string) {
	if !slices.Contains(s.Sessions, session) && len(s.Sessions) < maxScrubSessions {
		s.Sessions = append(s.Sessions, session)
	}
}

// clip bounds what status says.
func clip(what string) string {
	if len(what) <= maxLeftBytes {
		return what
	}
	return strings.ToValidUTF8(what[:maxLeftBytes-3], "") + "…"
}

// has reports whether the text stands in one of these.
func (s *scrubRun) has(texts ...string) bool {
	return slices.ContainsFunc(texts, func(t string) bool {
		_, found := s.only.Text(t)
		return found[s.rule] > 0
	})
}

// looked is what looking at one thing gives.
func looked(place v1alpha1.ScrubPlace, hit bool) v1alpha1.ScrubFound {
	f := v1alpha1.ScrubFound{Place: place, Looked: 1}
	if hit {
		f.Found = 1
	}
	return f
}

// agents are the memory's agents, those of earlier scopes too, by id.
func (s *scrubRun) agents(ctx context.Context) (letta.Client, []string, error) {
	c, err := s.w.Connect.Letta(ctx, s.mem)
	if err != nil {
		return nil, nil, err
	}
	found, err := c.AgentsByTag(ctx, []string{connect.MemoryTag(s.mem)})
	if err != nil {
		return nil, nil, s.w.Connect.LettaError(s.mem, err)
	}
	var ids []string
	for _, a := range found {
		ids = append(ids, a.ID)
	}
	if id := s.mem.Spec.Agent.ID; id != "" && !slices.Contains(ids, id) {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return c, ids, nil
}

// blocks looks at what the agents know.
func (s *scrubRun) blocks(ctx context.Context) error {
	c, ids, err := s.agents(ctx)
	if err != nil {
		return err
	}
	caps, err := c.Capabilities(ctx)
	if err != nil {
		return s.w.Connect.LettaError(s.mem, err)
	}
	for _, id := range ids {
		var memory letta.Memory
		err := s.thing(ctx, id, func() (found []v1alpha1.ScrubFound, err error) {
			if memory, err = c.Memory(ctx, id); errors.Is(err, letta.ErrNotFound) {
				return nil, nil
			}
			if err != nil {
				return nil, s.w.Connect.LettaError(s.mem, err)
			}
			if memory.Rejected > 0 {
				s.leave("%d texts that the agent %s keeps under names that are no labels: look at them at Letta", memory.Rejected, id)
			}
			has := false
			for _, b := range memory.Blocks {
				hit := s.has(b.Value, b.Description)
				has = has || hit
				f := looked(v1alpha1.ScrubBlocks, hit)
				if s.Stage > 0 { // they were counted, see all
					f.Looked = 0
				}
				found = append(found, f)
			}
			had := len(s.Texts) > 0
			if caps.BlockHistory {
				past, err := s.revisions(ctx, c, id, memory)
				if err != nil {
					return nil, err
				}
				had = had || past
			}
			if had && !has && s.removes() { // else when it is changed
				return found, s.recompile(ctx, c, id)
			}
			return found, nil
		}, func() (bool, error) {
			for _, b := range memory.Blocks {
				if !s.has(b.Value, b.Description) {
					continue
				}
				value, _ := s.full.Text(b.Value)
				description, _ := s.full.Text(b.Description)
				revision, err := c.PutBlock(ctx, id, letta.Block{Label: b.Label, Value: value.String(), Description: description.String()}, "undersong: take a text out")
				if err != nil {
					return false, s.w.Connect.LettaError(s.mem, err)
				}
				s.w.Agents.Saw(id, revision)
			}
			return true, s.recompile(ctx, c, id)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// revisions looks at what the blocks of an agent were, where Letta keeps that,
// and reports whether the text stands there. It cannot be taken out. A block that
// is gone is known by its MemoryBlock.
func (s *scrubRun) revisions(ctx context.Context, c letta.Client, agent string, memory letta.Memory) (had bool, _ error) {
	var list v1alpha1.MemoryBlockList
	if err := s.w.Client.List(ctx, &list, client.InNamespace(s.mem.Namespace)); err != nil {
		return false, fmt.Errorf("list MemoryBlocks: %w", err)
	}
	var labels []string
	for _, b := range memory.Blocks {
		labels = append(labels, b.Label)
	}
	for i := range list.Items {
		if of := &list.Items[i].Spec; of.MemoryRef.Name == s.mem.Name {
			labels = append(labels, of.Label)
		}
	}
	slices.Sort(labels)
	for _, label := range slices.Compact(labels) {
		all, err := c.BlockHistory(ctx, agent, label, letta.MaxHistory)
		if errors.Is(err, letta.ErrNotFound) {
			return had, nil
		}
		if err != nil {
			return false, s.w.Connect.LettaError(s.mem, err)
		}
		hit := slices.ContainsFunc(all, func(r letta.BlockRevision) bool { return s.has(r.Block.Value, r.Block.Description, r.Reason) })
		had = had || hit
		switch {
		case hit:
			s.leave("revisions of the block %s of the agent %s, which Letta keeps in the history of its memory", label, agent)
		case len(all) == letta.MaxHistory:
			s.leave("revisions of the block %s of the agent %s before its last %d: nobody has looked at them", label, agent, letta.MaxHistory)
		}
	}
	return had, nil
}

// recompile takes the text out of what the conversations of an agent are told
// before all messages: that is made once and kept, also of a conversation that
// nobody goes on with.
func (s *scrubRun) recompile(ctx context.Context, c letta.Client, agent string) error {
	all, err := c.Conversations(ctx, agent, "")
	if err != nil && !errors.Is(err, letta.ErrNotFound) {
		return s.w.Connect.LettaError(s.mem, err)
	}
	for _, one := range all {
		err := c.Recompile(ctx, letta.Ref{AgentID: agent, ConversationID: one.ID})
		if err != nil && !errors.Is(err, letta.ErrNotFound) {
			return s.w.Connect.LettaError(s.mem, err)
		}
	}
	return nil
}

// archive looks at what is kept of each session.
func (s *scrubRun) archive(ctx context.Context) error {
	one := &keptSession{}
	for info, err := range s.bucket.List(ctx, segment.ArchiveOf(s.mem.Namespace)) {
		if err != nil {
			return s.w.Connect.StoreError(s.mem, err)
		}
		prefix := sessionPrefix(info.Key, segment.ArchiveOf(s.mem.Namespace))
		if prefix != one.prefix {
			if err := s.keptSession(ctx, one); err != nil {
				return err
			}
			one = &keptSession{prefix: prefix}
		}
		if prefix > s.Cursor {
			one.keys = append(one.keys, info.Key)
		}
	}
	return s.keptSession(ctx, one)
}

// sessionPrefix is what the keys of all that is kept of a session begin with.
func sessionPrefix(key, archive string) string {
	rest := strings.TrimPrefix(key, archive)
	owner, rest, _ := strings.Cut(rest, "/")
	name, _, _ := strings.Cut(rest, "/")
	return archive + owner + "/" + name + "/"
}

// keptSession is what the archive has of one session.
type keptSession struct {
	prefix string
	keys   []string

	rec  *record
	live *v1alpha1.Session
	// hits by key, and by segment.
	keyed map[string]bool
	hits  map[segmentID][]int
	// named means that the record says the text.
	named bool
}

// keptSession looks at one session's archive.
func (s *scrubRun) keptSession(ctx context.Context, k *keptSession) error {
	if len(k.keys) == 0 {
		return nil
	}
	k.keyed, k.hits = map[string]bool{}, map[segmentID][]int{}
	return s.thing(ctx, k.prefix, func() ([]v1alpha1.ScrubFound, error) {
		ours, err := s.whose(ctx, k)
		if err != nil || !ours {
			return nil, err
		}
		var found []v1alpha1.ScrubFound
		for _, key := range k.keys {
			switch {
			case strings.HasSuffix(key, ".jsonl.zst"):
				hit, err := s.kept(ctx, k, key)
				if err != nil {
					return nil, err
				}
				found = append(found, looked(v1alpha1.ScrubArchive, hit))
			case strings.HasPrefix(strings.TrimPrefix(key, k.prefix), "parked-"):
				s.leave("the segment %s, which was set aside unopened: delete it from the bucket", key)
			}
		}
		if k.rec != nil {
			if data, err := json.Marshal(k.rec); err == nil {
				k.named = s.has(string(data))
			}
			found = append(found, looked(v1alpha1.ScrubRecords, k.named))
		}
		if s.removes() && k.live != nil && told(k.live, k.hits) { // it goes before it is looked at
			found = append(found, looked(v1alpha1.ScrubConversations, true))
		}
		return found, nil
	}, func() (bool, error) {
		if k.live != nil {
			if spec, err := json.Marshal(recordOf(k.live).Spec); err == nil && k.named && s.has(string(spec)) {
				s.leave("the record of Session %s in the bucket, which repeats its spec: delete that Session and scrub again", k.live.Name)
				s.stays = append(s.stays, v1alpha1.ScrubRecords)
			}
			return s.ask(ctx, client.ObjectKeyFromObject(k.live), &scrubTask{hits: k.hits, named: k.named})
		}
		return true, s.rewrite(ctx, k)
	})
}

// record is the key of the session's record.
func (k *keptSession) record() string { return strings.TrimSuffix(k.prefix, "/") + recordName }

// whose reads the record of a session and looks whether it is still there. It
// reports whether it is of this memory.
func (s *scrubRun) whose(ctx context.Context, k *keptSession) (bool, error) {
	data, err := s.bucket.Get(ctx, k.record(), maxRecord)
	switch {
	case err == nil:
		if k.rec, err = parseRecord(data); err != nil {
			s.leave("the record %s, which cannot be read", k.record())
		} else if k.rec.Spec.MemoryRef.Name != s.mem.Name {
			return false, nil
		}
	case !errors.Is(err, store.ErrNotExist):
		return false, s.w.Connect.StoreError(s.mem, err)
	}
	parts := strings.Split(strings.TrimSuffix(k.prefix, "/"), "/")
	live := &v1alpha1.Session{}
	err = s.w.Live.Get(ctx, types.NamespacedName{Namespace: s.mem.Namespace, Name: parts[len(parts)-1]}, live)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read a Session: %w", err)
	}
	if segment.ArchivePrefix(live.Namespace, live.Spec.Owner, live.Name) == k.prefix {
		k.live = live
		return live.Spec.MemoryRef.Name == s.mem.Name, nil
	}
	return true, nil
}

// kept looks at one segment.
func (s *scrubRun) kept(ctx context.Context, k *keptSession, key string) (bool, error) {
	h, lines, _, err := s.open(ctx, key)
	if err != nil || lines == nil {
		return false, err
	}
	for i, line := range lines {
		if _, found := s.only.Line(line); found[s.rule] > 0 {
			id := segmentID{h.Workstation, chapterOf(k.prefix, key), h.Seq}
			k.hits[id] = append(k.hits[id], i)
			k.keyed[key] = true
		}
	}
	if k.keyed[key] {
		s.in(h.Session)
	}
	return k.keyed[key], nil
}

// chapterOf is the chapter of a segment with this key, below its session's prefix.
func chapterOf(prefix, key string) int32 {
	_, rest, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/~")
	number, _, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return 0 // the first is not written down
	}
	return int32(n)
}

// open reads a segment; it has no lines if it cannot be read.
func (s *scrubRun) open(ctx context.Context, key string) (h segment.Header, lines [][]byte, raw []byte, err error) {
	packed, err := s.bucket.Get(ctx, key, segment.MaxPacked)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return h, nil, nil, nil // it went meanwhile
	case err != nil && !errors.Is(err, store.ErrTooLarge):
		return h, nil, nil, s.w.Connect.StoreError(s.mem, err)
	case err == nil:
		if raw, err = segment.Unpack(packed); err == nil {
			h, lines, err = segment.Decode(raw)
		}
	}
	if err != nil {
		s.leave("%s in the bucket, which cannot be read: %s", key, errors.Unwrap(err))
		return h, nil, nil, nil
	}
	return h, lines, raw, nil
}

// rewrite takes the text out of the archive of a session whose Session is gone.
func (s *scrubRun) rewrite(ctx context.Context, k *keptSession) error {
	for _, key := range k.keys {
		if !k.keyed[key] {
			continue
		}
		_, lines, raw, err := s.open(ctx, key)
		if err != nil {
			return err
		}
		if lines == nil {
			continue
		}
		clean, _ := s.full.Lines(lines)
		if raw, err = segment.Rewrite(raw, clean); err != nil {
			return fmt.Errorf("rewrite %s: %w", key, err)
		}
		if err := s.bucket.Put(ctx, key, segment.Pack(raw)); err != nil {
			return s.w.Connect.StoreError(s.mem, err)
		}
	}
	if k.rec == nil {
		return nil
	}
	// Written although it says nothing new: a sweep that went by meanwhile has left
	// what was rewritten behind, and finds it again by the record.
	label := func(of *string, n int) {
		clean, _ := s.full.Text(*of)
		*of = text.Label(clean, n)
	}
	st, spec := &k.rec.Status, &k.rec.Spec
	label(&st.Title, 60)
	label(&st.Tag, 60)
	label(&st.PullRequest, 200)
	for i := range spec.Writers {
		label(&spec.Writers[i].Branch, 200)
	}
	label(&spec.Project.Name, 100)
	data, err := json.Marshal(k.rec)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if s.has(string(data)) {
		s.leave("the record %s: what stands in it names the session", k.record())
		s.stays = append(s.stays, v1alpha1.ScrubRecords)
	}
	return s.w.Connect.StoreError(s.mem, s.bucket.Put(ctx, k.record(), data))
}

// ask has a live Session do its part, and waits for it.
func (s *scrubRun) ask(ctx context.Context, key types.NamespacedName, t *scrubTask) (bool, error) {
	q := s.w.Scrubs
	q.put(key, t)
	defer q.take(key)
	patience := s.w.Patience
	if patience == 0 {
		patience = scrubPatience
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	poll := time.NewTicker(scrubPoll)
	defer poll.Stop()
	for {
		q.wake(key)
		select {
		case <-t.done:
			for _, l := range t.left {
				s.leave("%s", l)
			}
			if t.stays {
				s.stays = append(s.stays, v1alpha1.ScrubConversations)
			}
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-over.C:
			if err := s.w.Connect.Resting(s.mem); err != nil {
				return false, err // it is not the Session that does not come to it
			}
			s.leave("Session %s, which does not come to it: see its conditions, and scrub again", key.Name)
			return false, nil
		case <-poll.C:
		}
		err := s.w.Live.Get(ctx, key, &v1alpha1.Session{})
		if apierrors.IsNotFound(err) {
			return false, fmt.Errorf("the Session %s went meanwhile", key.Name) // its archive is looked at once more
		}
	}
}

// conversations looks at what was said between sessions and agents.
func (s *scrubRun) conversations(ctx context.Context) error {
	c, ids, err := s.agents(ctx)
	if err != nil {
		return err
	}
	caps, err := c.Capabilities(ctx)
	if err != nil {
		return s.w.Connect.LettaError(s.mem, err)
	}
	if !caps.FullHistory {
		s.leave("what a conversation was compacted of: this Letta lists what was said since only")
	}
	owners, err := s.owners(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		found, err := c.Conversations(ctx, id, "")
		if errors.Is(err, letta.ErrNotFound) {
			continue
		}
		if err != nil {
			return s.w.Connect.LettaError(s.mem, err)
		}
		slices.SortFunc(found, func(a, b letta.Conversation) int { return strings.Compare(a.ID, b.ID) })
		for _, one := range found {
			ref := letta.Ref{AgentID: id, ConversationID: one.ID}
			err := s.thing(ctx, id+"/"+one.ID, func() ([]v1alpha1.ScrubFound, error) {
				if slices.Contains(s.Left, leftConversation(one.ID)) {
					return nil, nil // counted with its session
				}
				hit, err := s.said(ctx, c, ref)
				return []v1alpha1.ScrubFound{looked(v1alpha1.ScrubConversations, hit)}, err
			}, func() (bool, error) {
				if key, ok := owners[one.ID]; ok {
					return s.ask(ctx, key, &scrubTask{said: true})
				}
				if !strings.HasPrefix(one.Summary, "undersong "+s.mem.Namespace+"/") {
					s.leave("the conversation %s of the agent %s, which is none of undersong's: delete it at Letta", one.ID, id)
					return false, nil
				}
				err := c.DeleteConversation(ctx, ref)
				switch {
				case errors.Is(err, letta.ErrUnsupported):
					s.leave("%s", leftConversation(one.ID))
					return false, nil
				case err != nil && !errors.Is(err, letta.ErrNotFound):
					return false, s.w.Connect.LettaError(s.mem, err)
				}
				return true, nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// said reports whether the text stands in a conversation.
func (s *scrubRun) said(ctx context.Context, c letta.Client, ref letta.Ref) (bool, error) {
	for m, err := range c.Messages(ctx, ref, "") {
		if errors.Is(err, letta.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, s.w.Connect.LettaError(s.mem, err)
		}
		if s.has(m.Text) {
			return true, nil
		}
	}
	return false, nil
}

// owners are the Sessions of the memory by their conversations.
func (s *scrubRun) owners(ctx context.Context) (map[string]types.NamespacedName, error) {
	all, err := s.list(ctx)
	owners := map[string]types.NamespacedName{}
	for i := range all {
		if y := all[i].Status.SyncState; y != nil && y.ConversationID != "" {
			owners[y.ConversationID] = client.ObjectKeyFromObject(&all[i])
		}
	}
	return owners, err
}

// list lists the memory's Sessions, by name.
func (s *scrubRun) list(ctx context.Context) ([]v1alpha1.Session, error) {
	var list v1alpha1.SessionList
	if err := s.w.Client.List(ctx, &list, client.InNamespace(s.mem.Namespace)); err != nil {
		return nil, fmt.Errorf("list Sessions: %w", err)
	}
	all := slices.DeleteFunc(list.Items, func(o v1alpha1.Session) bool { return o.Spec.MemoryRef.Name != s.mem.Name })
	slices.SortFunc(all, func(a, b v1alpha1.Session) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// texts looks at the texts of blocks that the store has. A text keeps its name,
// which is the digest of what it was: a revision is restored without the text.
func (s *scrubRun) texts(ctx context.Context) error {
	for info, err := range s.bucket.List(ctx, segment.BlocksOf(s.mem.Namespace)) {
		if err != nil {
			return s.w.Connect.StoreError(s.mem, err)
		}
		if info.Key <= s.Cursor {
			continue
		}
		var value string
		err := s.thing(ctx, info.Key, func() ([]v1alpha1.ScrubFound, error) {
			data, err := s.bucket.Get(ctx, info.Key, maxBlockBytes)
			if err != nil && !errors.Is(err, store.ErrNotExist) {
				return nil, s.w.Connect.StoreError(s.mem, err)
			}
			value = string(data)
			hit := s.has(value)
			if digest := info.Key[strings.LastIndex(info.Key, "/")+1:]; hit && len(s.Texts) < maxTexts && !slices.Contains(s.Texts, digest) {
				s.Texts = append(s.Texts, digest)
			}
			return []v1alpha1.ScrubFound{looked(v1alpha1.ScrubBlockTexts, hit)}, nil
		}, func() (bool, error) {
			clean, _ := s.full.Text(value)
			return true, s.w.Connect.StoreError(s.mem, s.bucket.Put(ctx, info.Key, []byte(clean.String())))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// memoryBlocks looks at the MemoryBlocks.
func (s *scrubRun) memoryBlocks(ctx context.Context) error {
	var list v1alpha1.MemoryBlockList
	if err := s.w.Client.List(ctx, &list, client.InNamespace(s.mem.Namespace)); err != nil {
		return fmt.Errorf("list MemoryBlocks: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.MemoryBlock) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		b := &list.Items[i]
		if b.Spec.MemoryRef.Name != s.mem.Name {
			continue
		}
		err := s.thing(ctx, b.Name, func() ([]v1alpha1.ScrubFound, error) {
			if s.has(b.Spec.Value, b.Spec.Description) {
				s.leave("spec of MemoryBlock %s, which its author changes: kubectl edit memoryblock %s", b.Name, b.Name)
			}
			return []v1alpha1.ScrubFound{looked(v1alpha1.ScrubMemoryBlocks, s.shows(&b.Status))}, nil
		}, func() (bool, error) { return true, s.hide(ctx, client.ObjectKeyFromObject(b)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// shows reports whether the status of a MemoryBlock has the text.
func (s *scrubRun) shows(st *v1alpha1.MemoryBlockStatus) bool {
	if s.has(st.Value) {
		return true
	}
	for i, h := range st.History {
		if s.has(h.Change) || h.Change != "" && s.pieces(st.History, i) {
			return true
		}
	}
	return false
}

// pieces reports whether a change may show the text in pieces, line by line or
// cut: the revision, or the one before it, had it.
func (s *scrubRun) pieces(history []v1alpha1.BlockRevision, i int) bool {
	return slices.Contains(s.Texts, history[i].Digest) || i+1 < len(history) && slices.Contains(s.Texts, history[i+1].Digest)
}

// hide takes the text out of the status of a MemoryBlock.
func (s *scrubRun) hide(ctx context.Context, key types.NamespacedName) error {
	for try := 0; ; try++ {
		live := &v1alpha1.MemoryBlock{}
		if err := s.w.Live.Get(ctx, key, live); err != nil {
			return client.IgnoreNotFound(err)
		}
		before := live.DeepCopy()
		st := &live.Status
		if s.has(st.Value) {
			clean, _ := s.full.Text(st.Value)
			st.Value = text.Plain(clean, maxBlockBytes)
		}
		for i := range st.History {
			if h := &st.History[i]; s.has(h.Change) || s.pieces(st.History, i) {
				h.Change = ""
			}
		}
		err := s.w.Client.Status().Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), scrubManager)
		if !apierrors.IsConflict(err) || try == 10 {
			return client.IgnoreNotFound(err)
		}
	}
}

// sessions looks at what Sessions themselves say.
func (s *scrubRun) sessions(ctx context.Context) error {
	all, err := s.list(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		ses := &all[i]
		err := s.thing(ctx, ses.Name, func() ([]v1alpha1.ScrubFound, error) {
			names := []string{ses.Spec.Project.Name, ses.Spec.Project.Remote, ses.Spec.Owner}
			for _, w := range ses.Spec.Writers {
				names = append(names, w.Branch)
			}
			if s.has(names...) {
				s.leave("spec of Session %s, its project or branch, which nobody can change: delete that Session", ses.Name)
			}
			shown := []string{ses.Status.Title, ses.Status.Tag, ses.Status.PullRequest}
			for _, w := range ses.Status.Whispers {
				shown = append(shown, w.Text)
			}
			return []v1alpha1.ScrubFound{looked(v1alpha1.ScrubSessions, s.has(shown...))}, nil
		}, func() (bool, error) { return s.ask(ctx, client.ObjectKeyFromObject(ses), &scrubTask{}) })
		if err != nil {
			return err
		}
	}
	return nil
}

// uploads looks at what is sent and not verified. It is not changed: the chain
// must fit when it is verified, and then the text is taken out.
func (s *scrubRun) uploads(ctx context.Context) error {
	var list v1alpha1.WorkstationList
	if err := s.w.Client.List(ctx, &list, client.InNamespace(s.mem.Namespace)); err != nil {
		return fmt.Errorf("list Workstations: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Workstation) int { return strings.Compare(string(a.UID), string(b.UID)) })
	for i := range list.Items {
		for info, err := range s.bucket.List(ctx, segment.InboxPrefix(string(list.Items[i].UID))) {
			if err != nil {
				return s.w.Connect.StoreError(s.mem, err)
			}
			err := s.thing(ctx, info.Key, func() ([]v1alpha1.ScrubFound, error) {
				_, lines, _, err := s.open(ctx, info.Key)
				hit := slices.ContainsFunc(lines, func(line []byte) bool {
					_, found := s.only.Line(line)
					return found[s.rule] > 0
				})
				if hit {
					s.leave("what workstation %s has sent and nobody has verified yet: it is taken out when it is verified", list.Items[i].Name)
				}
				return []v1alpha1.ScrubFound{looked(v1alpha1.ScrubUploads, hit)}, err
			}, func() (bool, error) { return false, nil })
			if err != nil {
				return err
			}
		}
	}
	return nil
}
