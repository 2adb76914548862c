package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/seal"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/test/stack"
)

// What a company of this size looks like.
const (
	namespaces       = 8
	ownersPerTeam    = 16
	projectsPerTeam  = 12
	secondWriterOf   = 6  // every sixth session was gone on with on a second workstation
	whisperedOf      = 2  // every second one still has whispers in its status
	askedOf          = 50 // every fiftieth has a request that is answered
	learnedOf        = 4  // every fourth delta changes the memory
	endedOf          = 10 // seven of ten ended, the others were left
	writesInParallel = 24
)

// owner is a person with two workstations.
type owner struct {
	name string
	api  client.Client
	// desks are the person's workstations.
	desks []*desk
}

// desk is a workstation.
type desk struct {
	name, key string
	uid       types.UID
	slot      atomic.Int64
}

// team is a namespace.
type team struct {
	*stack.Team
	bucket   *store.Bucket
	owners   []*owner
	projects []v1alpha1.Project
	// models are the statuses of sessions that the controller finished.
	models []v1alpha1.Session
}

// company is all teams.
type company struct {
	stack    *stack.Stack
	redactor *redact.Redactor
	// controller writes as the controller does.
	controller client.Client
	teams      []*team
	active     []*talk
}

// found makes the teams, their people and their workstations.
func found(ctx context.Context, s *stack.Stack) (*company, error) {
	c := &company{stack: s}
	var err error
	if c.redactor, err = redact.New(); err != nil {
		return nil, err
	}
	cfg, err := s.Cluster.Controller(ctx)
	if err != nil {
		return nil, err
	}
	if c.controller, err = s.Cluster.Client(cfg); err != nil {
		return nil, err
	}
	for i := range namespaces {
		t := &team{}
		name := fmt.Sprintf("team-%d", i+1)
		var people []string
		for j := range ownersPerTeam {
			people = append(people, fmt.Sprintf("oidc:dev-%d-%02d@example.com", i+1, j+1))
		}
		if t.Team, err = s.Team(ctx, stack.TeamOptions{Namespace: name, Members: people, Include: []string{"git.example.com/**"}, Change: func(m *v1alpha1.TeamMemory) {
			m.Spec.Budget.DailyTokens = new(int64(1_000_000_000)) // money is not what is measured
		}}); err != nil {
			return nil, err
		}
		if t.bucket, err = t.Open(); err != nil { //nolint:contextcheck // opening reads no network
			return nil, err
		}
		for j := range projectsPerTeam {
			project := fmt.Sprintf("service-%02d", j+1)
			t.projects = append(t.projects, v1alpha1.Project{Name: project, Remote: "git.example.com/" + name + "/" + project})
		}
		for j, person := range people {
			o, err := c.hire(ctx, t, person, fmt.Sprintf("ws-%d-%02d", i+1, j+1))
			if err != nil {
				return nil, err
			}
			t.owners = append(t.owners, o)
		}
		c.teams = append(c.teams, t)
	}
	return c, nil
}

func (c *company) hire(ctx context.Context, t *team, name, desks string) (*owner, error) {
	o := &owner{name: name}
	var err error
	if o.api, err = client.New(c.stack.Cluster.User(name), client.Options{Scheme: c.stack.Admin.Scheme(), Mapper: c.stack.Admin.RESTMapper()}); err != nil {
		return nil, err
	}
	for _, suffix := range []string{"a", "b"} {
		identity, err := seal.NewIdentity()
		if err != nil {
			return nil, err
		}
		ws := &v1alpha1.Workstation{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: desks + suffix},
			Spec:       v1alpha1.WorkstationSpec{Owner: name, MemoryRef: v1alpha1.LocalRef{Name: t.Memory}, PublicKey: identity.Recipient()},
		}
		if err := o.api.Create(ctx, ws); err != nil {
			return nil, fmt.Errorf("register %s: %w", ws.Name, err)
		}
		o.desks = append(o.desks, &desk{name: ws.Name, key: identity.Recipient(), uid: ws.UID})
	}
	return o, nil
}

// talk is a session that goes on: what its daemon knows of it.
type talk struct {
	team    *team
	owner   *owner
	desk    *desk
	key     types.NamespacedName
	id      string
	uid     types.UID
	seq     int64
	lines   int64
	bytes   int64
	offset  int64
	chain   segment.Sum
	earlier segment.Sum
	slots   []v1alpha1.Slot
}

// begin makes a Session, with what its first workstation has said, if anything.
func begin(ctx context.Context, t *team, n int, said ...v1alpha1.Writer) (*talk, error) {
	o := t.owners[n%len(t.owners)]
	k := &talk{team: t, owner: o, desk: o.desks[0], id: uuid.NewString()}
	k.key = types.NamespacedName{Namespace: t.Namespace, Name: v1alpha1.SessionName(k.id, o.name)}
	k.chain = segment.Start(k.key.Name, k.desk.name)
	ses := &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: k.key.Name},
		Spec: v1alpha1.SessionSpec{
			Owner: o.name, SessionID: k.id, Agent: v1alpha1.AgentClaudeCode, MemoryRef: v1alpha1.LocalRef{Name: t.Memory},
			Project: t.projects[n%len(t.projects)], Writers: said,
		},
	}
	for _, w := range said {
		ses.Spec.Lines += w.Lines
	}
	if err := o.api.Create(ctx, ses, client.FieldOwner("undersong-create")); err != nil {
		return nil, fmt.Errorf("make a Session: %w", err)
	}
	k.uid = ses.UID
	return k, nil
}

// grow makes the active sessions, each with its first words.
func (c *company) grow(ctx context.Context, n int) error {
	c.active = make([]*talk, n)
	return c.each(ctx, n, func(ctx context.Context, i int) error {
		k, err := begin(ctx, c.teams[i%len(c.teams)], i/len(c.teams))
		if err != nil {
			return err
		}
		c.active[i] = k
		return c.say(ctx, k, i)
	})
}

// each runs f for 0 to n-1, some at a time.
func (c *company) each(ctx context.Context, n int, f func(context.Context, int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writesInParallel)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}

// say uploads one more segment of a session and names it in its spec, as a
// daemon does.
func (c *company) say(ctx context.Context, k *talk, n int) error {
	r := rand.New(rand.NewPCG(uint64(n), uint64(k.seq)))
	first := prose(r, 60)
	if n%learnedOf == 0 {
		first += "\nNote for the team: " + prose(r, 12) + " " + uuid.NewString() + "."
	}
	lines := []string{
		userLine(k.id, first),
		assistantLine(k.id, prose(r, 200)),
		userLine(k.id, prose(r, 30)),
		assistantLine(k.id, prose(r, 250)),
	}
	h := segment.Header{
		Session: k.key.Name, Workstation: k.desk.name, Seq: k.seq + 1, Stream: segment.MainStream, FirstIndex: k.lines, Offset: k.offset,
		PreviousChain: k.chain.String(), Rules: redact.RulesVersion, At: now().Truncate(time.Second),
	}
	var clean []redact.Redacted
	for i, line := range lines {
		text, _ := c.redactor.Line([]byte(line))
		clean = append(clean, text)
		h.Offsets, h.Indexes = append(h.Offsets, k.offset), append(h.Indexes, k.lines+int64(i))
		k.offset += int64(len(line)) + 1
	}
	h.EndOffset, h.LastIndex = k.offset, k.lines+int64(len(lines))-1
	raw, err := segment.Encode(h, clean)
	if err != nil {
		return err
	}
	slot := k.desk.slot.Add(1)
	if err := k.team.bucket.Put(ctx, segment.InboxKey(string(k.desk.uid), slot), segment.Pack(raw)); err != nil {
		return err
	}
	k.seq++
	k.lines += int64(len(lines))
	k.bytes += int64(len(raw))
	k.earlier, k.chain = k.chain, k.chain.Next(raw)
	k.slots = []v1alpha1.Slot{{Seq: k.seq, Slot: slot}}
	return apply(ctx, k.owner, k.key, k.uid, v1alpha1.Writer{
		Workstation: k.desk.name, State: v1alpha1.WriterActive, Branch: "main", Segments: k.seq, Lines: k.lines, Bytes: k.bytes,
		Chain: k.chain.String(), PreviousChain: k.earlier.String(), Slots: k.slots,
	}, k.lines)
}

// apply applies one writer's entry.
func apply(ctx context.Context, o *owner, key types.NamespacedName, uid types.UID, w v1alpha1.Writer, lines int64) error {
	data, err := json.Marshal(w)
	if err != nil {
		return err
	}
	var entry map[string]any
	if err := json.Unmarshal(data, &entry); err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Session",
		"metadata": map[string]any{"namespace": key.Namespace, "name": key.Name, "uid": string(uid)},
		"spec":     map[string]any{"writers": []any{entry}, "lines": lines},
	}}
	err = o.api.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("undersong-"+w.Workstation), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply the entry of %s: %w", w.Workstation, err)
	}
	return nil
}

// rest makes n sessions as the controller leaves them after weeks of use: what
// it wrote for the active ones is what they are modelled on.
func (c *company) rest(ctx context.Context, n int) error {
	for _, t := range c.teams {
		all, err := t.Sessions(ctx)
		if err != nil {
			return err
		}
		for i := range all {
			if !stack.CaughtUp(&all[i]) || all[i].Status.SyncState == nil || all[i].Status.SyncState.MemoryRevision == "" {
				return fmt.Errorf("session %s is no model: it is behind", all[i].Name)
			}
		}
		if len(all) == 0 {
			return errors.New("there is no session to take for a model")
		}
		t.models = all
	}
	return c.each(ctx, n, func(ctx context.Context, i int) error { return c.left(ctx, c.teams[i%len(c.teams)], i/len(c.teams)) })
}

// left makes one session of the past.
func (c *company) left(ctx context.Context, t *team, n int) error {
	r := rand.New(rand.NewPCG(uint64(n), 7))
	state := v1alpha1.WriterEnded
	if n%endedOf >= 7 {
		state = v1alpha1.WriterActive
	}
	desks := t.owners[n%len(t.owners)].desks[:1]
	if n%secondWriterOf == 0 {
		desks = t.owners[n%len(t.owners)].desks
	}
	model := &t.models[n%len(t.models)]
	for i := range t.models { // of the same project, if there is one
		if t.models[i].Spec.Project == t.projects[n%len(t.projects)] {
			model = &t.models[i]
			break
		}
	}
	st := model.Status.DeepCopy()
	y := st.SyncState
	y.Writers, st.Lines = nil, 0
	var said []v1alpha1.Writer
	for _, d := range desks {
		segments := 1 + r.Int64N(40)
		w := v1alpha1.Writer{
			Workstation: d.name, State: state, Branch: "feature/" + word(r) + "-" + word(r), Segments: segments, Lines: segments * (3 + r.Int64N(60)), Bytes: segments * 40_000,
			Chain: sum(r), PreviousChain: sum(r), Slots: []v1alpha1.Slot{{Seq: segments, Slot: 1 + r.Int64N(4000)}},
		}
		said = append(said, w)
		st.Lines += w.Lines
		y.Writers = append(y.Writers, v1alpha1.WriterSync{
			Workstation: d.name, Verified: v1alpha1.WriterVerified{Segments: segments, Chain: w.Chain}, Delivered: v1alpha1.Cut{Segments: segments},
			Lines: w.Lines, LastProcessedIndex: w.Lines - 1,
		})
	}
	k, err := begin(ctx, t, n, said[0])
	if err != nil {
		return err
	}
	for _, w := range said[1:] {
		if err := apply(ctx, k.owner, k.key, k.uid, w, st.Lines); err != nil {
			return err
		}
	}
	generation := int64(len(said))
	at := metav1.NewTime(now().Add(-time.Duration(2+r.IntN(25*24)) * time.Hour).Truncate(time.Second))
	st.LastActivityTime, st.State = &at, v1alpha1.SessionIdle
	if state == v1alpha1.WriterEnded {
		st.State = v1alpha1.SessionEnded
	}
	for i := range st.Conditions {
		st.Conditions[i].ObservedGeneration, st.Conditions[i].LastTransitionTime = generation, at
	}
	st.ObservedGeneration = generation
	st.Title, st.PullRequest = strings.TrimSpace(prose(r, 6)), fmt.Sprintf("%s#%d", "example/"+word(r), n)
	if len(st.Title) > 60 {
		st.Title = st.Title[:60]
	}
	st.Usage = v1alpha1.Usage{Turns: 20, Tokens: 120_000, Source: v1alpha1.UsageEstimated, Day: at.UTC().Format(time.DateOnly), DayTokens: 80_000}
	last := y.Writers[len(y.Writers)-1]
	y.ConversationID, y.LastSeenMessageID, y.Seen, y.Record = "conv-"+uuid.NewString(), "message-"+uuid.NewString(), sum(r), 60
	y.LastProcessedIndex = last.LastProcessedIndex
	if d := y.Delivery; d != nil {
		d.ID, d.Workstation, d.From, d.To, d.At = uuid.NewString(), last.Workstation, v1alpha1.Cut{Segments: last.Delivered.Segments - 1}, last.Delivered, &at
	}
	st.Whispers = nil
	if n%whisperedOf == 0 {
		if st.Whispers, err = whispers(r, k, desks, at); err != nil {
			return err
		}
	}
	ses := &v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Namespace: k.key.Namespace, Name: k.key.Name}}
	before := ses.DeepCopy()
	ses.Status = *st
	if err := c.controller.Status().Patch(ctx, ses, client.MergeFrom(before), client.FieldOwner("undersong-controller")); err != nil {
		return fmt.Errorf("write a status: %w", err)
	}
	return nil
}

// whispers are what a session was last told.
func whispers(r *rand.Rand, k *talk, desks []*desk, at metav1.Time) ([]v1alpha1.Whisper, error) {
	var keys []string
	for _, d := range k.owner.desks {
		keys = append(keys, d.key)
	}
	var all []v1alpha1.Whisper
	for range 1 + r.IntN(3) {
		text := prose(r, 20+r.IntN(60))
		id := uuid.NewString()
		sealed, err := seal.SealWhisper(seal.WhisperText{
			ID: id, Session: k.id, Project: "git.example.com/team", Memory: "team", Text: text, At: at.Time, Expires: at.Add(2 * time.Hour),
			Source: seal.WhisperSource{Session: k.key.Name, Workstation: desks[0].name, FromSegment: 1, ToSegment: 2, Agent: uuid.NewString(), Conversation: uuid.NewString()},
		}, keys...)
		if err != nil {
			return nil, err
		}
		all = append(all, v1alpha1.Whisper{ID: id, At: at, Bytes: int32(len(text)), Sealed: sealed})
	}
	return all, nil
}

func sum(r *rand.Rand) string {
	b := make([]byte, 32)
	for i := range b {
		b[i] = byte(r.UintN(256))
	}
	return hex.EncodeToString(b)
}

var vocabulary = strings.Fields(`the of and a retry queue harbour lantern index cache migration schema request handler timeout test build because before
	after when table column worker token session flag module package commit branch review release config default limit error message we should
	keep never always please check why does not work with this file that function and its caller`)

func word(r *rand.Rand) string { return vocabulary[r.IntN(len(vocabulary))] }

// prose is n words.
func prose(r *rand.Rand, n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = word(r)
	}
	return strings.Join(words, " ")
}

func userLine(session, text string) string {
	return fmt.Sprintf(`{"type":"user","uuid":%q,"parentUuid":null,"isSidechain":false,"sessionId":%q,"cwd":"/src/lantern","timestamp":"2026-11-01T09:00:00.000Z","origin":{"kind":"human"},"message":{"role":"user","content":%q}}`, uuid.NewString(), session, text)
}

func assistantLine(session, text string) string {
	id := uuid.NewString()
	return fmt.Sprintf(`{"type":"assistant","uuid":%q,"parentUuid":null,"isSidechain":false,"sessionId":%q,"cwd":"/src/lantern","timestamp":"2026-11-01T09:00:01.000Z","message":{"role":"assistant","id":"msg_%s","model":"claude-demo-1","content":[{"type":"text","text":%q}]}}`, id, session, id, text)
}

// size is the mean size of the Sessions as the API server gives them out, and
// of the part that is managedFields.
func (c *company) size(ctx context.Context) (sessions, mean, managed int, err error) {
	for _, t := range c.teams {
		all, err := t.Sessions(ctx)
		if err != nil {
			return 0, 0, 0, err
		}
		for i := range all {
			data, err := json.Marshal(&all[i])
			if err != nil {
				return 0, 0, 0, err
			}
			fields, err := json.Marshal(all[i].ManagedFields)
			if err != nil {
				return 0, 0, 0, err
			}
			sessions, mean, managed = sessions+1, mean+len(data), managed+len(fields)
		}
	}
	return sessions, mean / cmp.Or(sessions, 1), managed / cmp.Or(sessions, 1), nil
}
