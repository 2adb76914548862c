package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
