//go:build envtest

package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/seal"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// standin does, in a few lines, what a workstation sees of the controller: it
// grants slots, verifies segments into an archive of its own, and publishes.
type standin struct {
	client client.WithWatch
	bucket *store.Bucket
	ns     string

	mu      sync.Mutex
	archive map[string]map[int64][][]byte  // lines, by Session and stream, and number of the segment
	records map[string]v1alpha1.WriterSync // of Sessions that are not there any more, too
	wanted  map[string]int                 // how often to ask for a Session's first segment again
	say     string                         // whispered for each verified segment
	life    time.Duration                  // of a grant
	host    string                         // replaces the store's in grants
	paused  bool
	active  *time.Time // when sessions last had anything new
}

// start runs the stand-in until the test ends.
func startStandin(t *testing.T, ns string) *standin {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	config, err := cluster.Controller(ctx)
	if err != nil {
		t.Fatalf("controller's config: %v", err)
	}
	c, err := cluster.Client(config)
	if err != nil {
		t.Fatalf("controller's client: %v", err)
	}
	s := &standin{
		client: c, bucket: openBucket(t), ns: ns, archive: map[string]map[int64][][]byte{},
		wanted: map[string]int{}, records: map[string]v1alpha1.WriterSync{}, life: time.Hour,
	}
	var group sync.WaitGroup
	group.Go(func() { s.run(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return s
}

// run looks at everything when something changes.
func (s *standin) run(ctx context.Context) {
	sessions, err := s.client.Watch(ctx, &v1alpha1.SessionList{}, client.InNamespace(s.ns))
	if ctx.Err() != nil {
		return // the test is over already
	}
	if err != nil {
		panic(err)
	}
	defer sessions.Stop()
	workstations, err := s.client.Watch(ctx, &v1alpha1.WorkstationList{}, client.InNamespace(s.ns))
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		panic(err)
	}
	defer workstations.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var event watch.Event
		select {
		case <-ctx.Done():
			return
		case event = <-sessions.ResultChan():
		case event = <-workstations.ResultChan():
		case <-tick.C:
		}
		if event.Type == watch.Deleted {
			continue
		}
		s.look(ctx)
	}
}

func (s *standin) look(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		return
	}
	var workstations v1alpha1.WorkstationList
	if s.client.List(ctx, &workstations, client.InNamespace(s.ns)) != nil {
		return
	}
	for i := range workstations.Items {
		s.grant(ctx, &workstations.Items[i])
	}
	var sessions v1alpha1.SessionList
	if s.client.List(ctx, &sessions, client.InNamespace(s.ns)) != nil {
		return
	}
	for i := range sessions.Items {
		for j := range workstations.Items {
			s.verify(ctx, &sessions.Items[i], &workstations.Items[j])
		}
		s.answer(ctx, &sessions.Items[i])
	}
}

func (s *standin) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// grant answers an open request.
func (s *standin) grant(ctx context.Context, w *v1alpha1.Workstation) {
	first := int64(1)
	if have := w.Status.Grant; have != nil {
		if have.Request >= w.Spec.GrantRequest {
			return
		}
		first = have.ToSlot + 1
	}
	if w.Spec.GrantRequest == 0 {
		return
	}
	g := seal.Grant{ExpiresAt: time.Now().Add(s.life)}
	for n := first; n < first+32; n++ {
		url, headers, err := s.bucket.PresignPut(ctx, segment.InboxKey(string(w.UID), n), s.life)
		if err != nil {
			return
		}
		if s.host != "" {
			url = s.host + "/x"
		}
		g.Slots = append(g.Slots, seal.Slot{N: n, URL: url, Headers: headers})
	}
	sealed, err := seal.SealGrant(g, w.Spec.PublicKey)
	if err != nil {
		return
	}
	before := w.DeepCopy()
	w.Status.Grant = &v1alpha1.Grant{
		Request: w.Spec.GrantRequest, Sealed: sealed, FromSlot: first, ToSlot: first + 31, ExpiresAt: metav1.NewTime(g.ExpiresAt),
	}
	_ = s.client.Status().Patch(ctx, w, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) // looked at again
}

// verify takes what one workstation uploaded.
func (s *standin) verify(ctx context.Context, ses *v1alpha1.Session, w *v1alpha1.Workstation) {
	i := slices.IndexFunc(ses.Spec.Writers, func(x v1alpha1.Writer) bool { return x.Workstation == w.Name })
	if i < 0 {
		return
	}
	entry := ses.Spec.Writers[i]
	before := ses.DeepCopy()
	sync := s.sync(ses, w.Name)
	if s.active != nil {
		ses.Status.LastActivityTime = &metav1.Time{Time: *s.active}
	}
	if sync.Verified.Segments >= entry.Segments {
		return
	}
	if s.wanted[ses.Name] > 0 && !slices.Contains(sync.Wanted, 1) {
		s.wanted[ses.Name]--
		sync.Wanted = []int64{1}
		key := segment.InboxKey(string(w.UID), entry.Slots[0].Slot)
		if err := s.bucket.Delete(ctx, key); err != nil {
			return
		}
	} else if !s.read(ctx, ses, &entry, w, sync) {
		return
	}
	record := *sync.DeepCopy()
	if s.client.Status().Patch(ctx, ses, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) == nil {
		s.records[ses.Name+"/"+w.Name] = record // else it is looked at again
	}
}

// answer says of everything to forget that it is done.
func (s *standin) answer(ctx context.Context, ses *v1alpha1.Session) {
	before := ses.DeepCopy()
	for _, q := range ses.Spec.Requests {
		if _, done := upload.AnswerTo(ses, q.ID); !done && q.Kind == v1alpha1.RequestForget {
			ses.Status.Answered = append(ses.Status.Answered, v1alpha1.Answer{ID: q.ID, Result: v1alpha1.AnswerDone})
		}
	}
	if len(ses.Status.Answered) > len(before.Status.Answered) {
		_ = s.client.Status().Patch(ctx, ses, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) // looked at again
	}
}

// read moves the segments that are in the inbox into the archive.
func (s *standin) read(ctx context.Context, ses *v1alpha1.Session, entry *v1alpha1.Writer, w *v1alpha1.Workstation, sync *v1alpha1.WriterSync) bool {
	moved := false
	for _, slot := range entry.Slots {
		if slot.Seq != sync.Verified.Segments+1 {
			continue
		}
		packed, err := s.bucket.Get(ctx, segment.InboxKey(string(w.UID), slot.Slot), segment.MaxPacked)
		if err != nil {
			return moved
		}
		raw, err := segment.Unpack(packed)
		if err != nil {
			panic(err)
		}
		h, lines, err := segment.Decode(raw)
		if err != nil {
			panic(err)
		}
		chain, _ := segment.ParseSum(sync.Verified.Chain)
		if h.PreviousChain != chain.String() || h.Seq != slot.Seq {
			panic(fmt.Sprintf("segment %d does not continue the chain", slot.Seq))
		}
		sync.Verified = v1alpha1.WriterVerified{Segments: slot.Seq, Chain: chain.Next(raw).String()}
		sync.Wanted = nil
		if h.Stream == segment.MainStream {
			sync.LastProcessedIndex = h.LastIndex
		}
		key := ses.Name + "/" + h.Stream
		if s.archive[key] == nil {
			s.archive[key] = map[int64][][]byte{}
		}
		s.archive[key][slot.Seq] = lines // again, when the status could not be written
		s.whisper(ses, w, slot.Seq)
		moved = true
	}
	return moved
}

// whisper adds a message to the status.
func (s *standin) whisper(ses *v1alpha1.Session, w *v1alpha1.Workstation, seq int64) {
	if s.say == "" {
		return
	}
	now := time.Now().Truncate(time.Second)
	text := seal.WhisperText{
		ID: fmt.Sprintf("w-%s-%d", ses.Spec.SessionID, seq), Session: ses.Spec.SessionID, Project: ses.Spec.Project.Remote,
		Memory: ses.Spec.MemoryRef.Name, Text: s.say, At: now, Expires: now.Add(2 * time.Hour),
	}
	sealed, err := seal.SealWhisper(text, w.Spec.PublicKey)
	if err != nil {
		panic(err)
	}
	ses.Status.Whispers = append(ses.Status.Whispers, v1alpha1.Whisper{ID: text.ID, At: metav1.NewTime(now), Bytes: int32(len(text.Text)), Sealed: sealed})
	if n := len(ses.Status.Whispers); n > 4 {
		ses.Status.Whispers = ses.Status.Whispers[n-4:]
	}
}

// sync returns the writer's entry of the status.
func (s *standin) sync(ses *v1alpha1.Session, workstation string) *v1alpha1.WriterSync {
	if ses.Status.SyncState == nil {
		ses.Status.SyncState = &v1alpha1.SyncState{ConversationID: "conv-" + ses.Spec.SessionID, AgentID: "agent-1", LastProcessedIndex: -1, LastSeenMessageID: "message-1"}
	}
	st := ses.Status.SyncState
	for i := range st.Writers {
		if st.Writers[i].Workstation == workstation {
			return &st.Writers[i]
		}
	}
	record, ok := s.records[ses.Name+"/"+workstation]
	if !ok {
		record = v1alpha1.WriterSync{
			Workstation: workstation, LastProcessedIndex: -1,
			Verified: v1alpha1.WriterVerified{Chain: segment.Start(ses.Name, workstation).String()},
		}
	}
	st.Writers = append(st.Writers, record)
	return &st.Writers[len(st.Writers)-1]
}

// lines returns what the archive has of a stream.
func (s *standin) lines(session, stream string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	segments := s.archive[session+"/"+stream]
	var lines []string
	for _, seq := range slices.Sorted(maps.Keys(segments)) {
		for _, line := range segments[seq] {
			lines = append(lines, string(line))
		}
	}
	return lines
}
