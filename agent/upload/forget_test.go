package upload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// oneSession is a cluster with at most one Session, and a controller that answers
// its requests when it is looked at again.
type oneSession struct {
	live   *v1alpha1.Session // nil: there is none
	answer v1alpha1.AnswerResult
	silent bool // the controller does not answer

	calls, failAt int
	after         bool   // the failing call is made, and its answer lost
	before        func() // the next call

	asked   []string // ids of requests, as they came
	deleted int
}

var errCut = errors.New("dial tcp: connect: network is unreachable")

func (o *oneSession) call(f func() error) error {
	if before := o.before; before != nil {
		o.before = nil
		before()
	}
	if o.calls++; o.calls == o.failAt && !o.after {
		return errCut
	}
	if err := f(); err != nil {
		return err
	}
	if o.calls == o.failAt {
		return errCut
	}
	return nil
}

func (o *oneSession) found() error {
	if o.live == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "sessions"}, "s")
	}
	return nil
}

func (o *oneSession) Get(_ context.Context, _ kube.Key, into kube.Object) error {
	return o.call(func() error {
		if err := o.found(); err != nil {
			return err
		}
		for _, q := range o.live.Spec.Requests {
			if _, done := AnswerTo(o.live, q.ID); !done && !o.silent {
				o.live.Status.Answered = append(o.live.Status.Answered, v1alpha1.Answer{ID: q.ID, Result: o.answer, Message: "the message"})
			}
		}
		o.live.DeepCopyInto(into.(*v1alpha1.Session))
		return nil
	})
}

func (o *oneSession) Apply(_ context.Context, applied *unstructured.Unstructured, _ string) error {
	return o.call(func() error {
		if err := o.found(); err != nil {
			return err
		}
		data, err := json.Marshal(applied)
		if err != nil {
			return err
		}
		var object v1alpha1.Session
		if err := json.Unmarshal(data, &object); err != nil {
			return err
		}
		o.live.Spec.Requests = object.Spec.Requests
		for _, q := range object.Spec.Requests {
			o.asked = append(o.asked, q.ID)
		}
		return nil
	})
}

func (o *oneSession) Delete(context.Context, kube.Object) error {
	return o.call(func() error {
		if err := o.found(); err != nil {
			return err
		}
		o.live = nil
		o.deleted++
		return nil
	})
}

// told notes what is told of trouble.
type told map[string]string

func (t told) Set(part, message string) { t[part] = message }

var wishedAt = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// wished is a state directory with a wish, and who asks for it.
func wished(t *testing.T, c API, w Wish) *Forgetter {
	t.Helper()
	home := t.TempDir()
	w.SessionID, w.Name, w.Request.ID, w.Request.Kind = "id", "s", "forget-1", v1alpha1.RequestForget
	keep(t, home, w)
	return &Forgetter{Client: c, Home: home, Namespace: "alpha", Addressee: "here", Trouble: told{}, Log: slog.New(slog.DiscardHandler)}
}

func keep(t *testing.T, home string, w Wish) {
	t.Helper()
	if err := UpdateWishes(t.Context(), home, func([]Wish) []Wish { return []Wish{w} }); err != nil {
		t.Fatal(err)
	}
}

func wishOf(t *testing.T, home string) Wish {
	t.Helper()
	list, err := Wishes(home)
	if err != nil || len(list) != 1 {
		t.Fatalf("wishes %+v, %v", list, err)
	}
	return list[0]
}

// TestForgettingSurvivesEveryFault: the way to the cluster is cut at each call,
// before it or behind it, and the daemon begins again. It ends as it does
// undisturbed: asked once, deleted once, and said.
func TestForgettingSurvivesEveryFault(t *testing.T) {
	type end struct {
		Result  string
		Asked   []string
		Deleted int
		Trouble string
	}
	play := func(t *testing.T, failAt int, after bool) (got end, calls int) {
		t.Helper()
		o := &oneSession{live: &v1alpha1.Session{}, answer: v1alpha1.AnswerDone, failAt: failAt, after: after}
		f := wished(t, o, Wish{For: "here", Whole: true})
		again := true
		for n := 0; again; n++ {
			if n > 5 {
				t.Fatalf("it does not end: %+v, trouble %v", wishOf(t, f.Home), f.Trouble)
			}
			// As a new process would: it knows the file alone.
			again = (&Forgetter{Client: o, Home: f.Home, Namespace: f.Namespace, Addressee: f.Addressee, Trouble: f.Trouble, Log: f.Log}).look(t.Context(), wishedAt)
		}
		return end{wishOf(t, f.Home).Result, o.asked, o.deleted, f.Trouble.(told)[PartForget]}, o.calls
	}
	want, calls := play(t, 0, false)
	if diff := cmp.Diff(end{"forgotten in the cluster. The Session is deleted.", []string{"forget-1"}, 1, ""}, want); diff != "" {
		t.Fatalf("undisturbed (-want +got):\n%s", diff)
	}
	if calls < 4 {
		t.Fatalf("%d calls: that is no test", calls)
	}
	for n := 1; n <= calls; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %v", n, after), func(t *testing.T) {
				got, _ := play(t, n, after)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestAWishWaitsForItsLines: as long as the cluster may be told of the lines at any
// moment, and no longer.
func TestAWishWaitsForItsLines(t *testing.T) {
	to := int64(4)
	for name, tt := range map[string]struct {
		reason string
		lines  int64 // that the cluster knows
		state  spool.State
		asked  int
	}{
		"on their way": {"they would come behind the answer", 2, spool.State{Told: 2, Applied: &v1alpha1.Writer{Segments: 1}, Segments: make([]spool.Segment, 1)}, 0},
		"known":        {"there is nothing to wait for", 4, spool.State{Told: 2, Applied: &v1alpha1.Writer{Segments: 1}, Segments: make([]spool.Segment, 1)}, 1},
		"not told":     {"they were taken out here", 2, spool.State{Told: 1, Applied: &v1alpha1.Writer{Segments: 1}, Segments: make([]spool.Segment, 1)}, 1},
		"withdrawn":    {"they never come", 2, spool.State{Told: 2, Withdrawn: true, Segments: make([]spool.Segment, 1)}, 1},
		"dropped":      {"they never come", 2, spool.State{Told: 2}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := &oneSession{live: &v1alpha1.Session{Spec: v1alpha1.SessionSpec{Writers: []v1alpha1.Writer{{Workstation: "ws", Lines: tt.lines}}}}}
			f := wished(t, o, Wish{For: "here", Request: v1alpha1.Request{Workstation: "ws", ToLine: &to}})
			data, err := json.Marshal(tt.state)
			must(t, err)
			dir := filepath.Join(f.Home, sessionsDir, "id")
			must(t, os.MkdirAll(dir, 0o700))
			must(t, os.WriteFile(filepath.Join(dir, "state.json"), data, 0o600))
			if again := f.look(t.Context(), wishedAt); !again || len(o.asked) != tt.asked {
				t.Errorf("%s: asked %q, again %v", tt.reason, o.asked, again)
			}
		})
	}
}

// TestWhatBecomesOfAWish: each answer, and each that there is none.
func TestWhatBecomesOfAWish(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		wish   Wish
		world  oneSession
		want   Wish // what is kept
		again  bool
		calls  int // of a look after that
	}{
		"lines": {
			reason: "the Session stays", wish: Wish{For: "here"},
			world: oneSession{live: &v1alpha1.Session{}, answer: v1alpha1.AnswerDone},
			want:  Wish{For: "here", Result: "forgotten in the cluster.", At: wishedAt},
		},
		"partial": {
			reason: "what could not be reached is said", wish: Wish{For: "here", Whole: true},
			world: oneSession{live: &v1alpha1.Session{}, answer: v1alpha1.AnswerPartial},
			want:  Wish{For: "here", Whole: true, Answered: true, Result: "the message. The Session is deleted.", At: wishedAt},
		},
		"refused": {
			reason: "it is not asked for again, and nothing is deleted", wish: Wish{For: "here", Whole: true},
			world: oneSession{live: &v1alpha1.Session{}, answer: v1alpha1.AnswerRefused},
			want:  Wish{For: "here", Whole: true, Result: "refused: the message.", At: wishedAt},
		},
		"no answer": {
			reason: "the controller does not run", wish: Wish{For: "here"},
			world: oneSession{live: &v1alpha1.Session{}, silent: true},
			want:  Wish{For: "here"}, again: true, calls: 2,
		},
		"absent": {
			reason: "archive and conversation may be there", wish: Wish{For: "here", Whole: true},
			want: Wish{For: "here", Whole: true, Absent: true}, calls: 1,
		},
		"answered": {
			reason: "a run that was cut off deleted it", wish: Wish{For: "here", Whole: true, Answered: true},
			want: Wish{For: "here", Whole: true, Answered: true, Result: "forgotten in the cluster. The Session is deleted.", At: wishedAt},
		},
		"made again": {
			reason: "a lead did so", wish: Wish{For: "here", Absent: true},
			world: oneSession{live: &v1alpha1.Session{}, silent: true},
			want:  Wish{For: "here"}, again: true, calls: 2,
		},
		"unsent": {
			reason: "there is nothing to forget", wish: Wish{For: "here", Whole: true, Unsent: true},
			want: Wish{For: "here", Whole: true, Unsent: true, Result: "the cluster was never told of it.", At: wishedAt},
		},
		"stored": {
			reason: "what lies in the inbox", wish: Wish{For: "here", Whole: true, Unsent: true, Stored: true},
			want: Wish{For: "here", Whole: true, Unsent: true, Stored: true, At: wishedAt, Result: "the cluster was never told of it, but what was uploaded before may lie in the bucket's inbox, where nobody reads it. " +
				"It is removed there by the rule for inbox/; to have it gone at once, ask whoever runs undersong in the cluster."},
		},
		"for another cluster": {
			reason: "lines of one writer are others' there", wish: Wish{For: "elsewhere"},
			world: oneSession{live: &v1alpha1.Session{}},
			want:  Wish{For: "elsewhere"},
		},
		"of an older undersong": {
			reason: "nobody knows whom it is for", wish: Wish{},
			world: oneSession{live: &v1alpha1.Session{}},
			want:  Wish{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := wished(t, &tt.world, tt.wish)
			again := f.look(t.Context(), wishedAt)
			if again && !tt.again { // the answer comes when it is looked at again
				again = f.look(t.Context(), wishedAt)
			}
			got := wishOf(t, f.Home)
			tt.want.SessionID, tt.want.Name, tt.want.Request = got.SessionID, got.Name, got.Request
			if diff := cmp.Diff(tt.want, got); diff != "" || again != tt.again {
				t.Errorf("%s: again is %v (-want +got):\n%s", tt.reason, again, diff)
			}
			before := tt.world.calls
			f.look(t.Context(), wishedAt.Add(time.Hour))
			if n := tt.world.calls - before; n > tt.calls {
				t.Errorf("%s: it is asked %d times again, want %d", tt.reason, n, tt.calls)
			}
			if len(tt.world.asked) > 1 {
				t.Errorf("%s: asked for %q", tt.reason, tt.world.asked)
			}
		})
	}
}

// TestTwoAskAtATime: the command and the daemon work at one wish, and the one
// finds that the other has deleted the Session.
func TestTwoAskAtATime(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		other  func(ctx context.Context, home string) error
		want   string
	}{
		"noted": {"the daemon has noted what became of it", func(ctx context.Context, home string) error {
			return changeWish(ctx, home, "forget-1", func(w *Wish) { w.Answered, w.Result = true, "forgotten in the cluster. The Session is deleted." })
		}, "forgotten in the cluster. The Session is deleted."},
		"cut off": {"the other was killed behind its call", func(ctx context.Context, home string) error {
			return changeWish(ctx, home, "forget-1", func(w *Wish) { w.Answered = true })
		}, "forgotten in the cluster. The Session is deleted."},
		"told": {"another command has told its person", func(ctx context.Context, home string) error {
			return DropWishes(ctx, home, "forget-1")
		}, "another undersong forget has said what became of it."},
	} {
		t.Run(name, func(t *testing.T) {
			o := &oneSession{live: &v1alpha1.Session{}}
			f := wished(t, o, Wish{For: "here", Whole: true})
			o.before = func() {
				o.live = nil
				if err := tt.other(t.Context(), f.Home); err != nil {
					t.Error(err)
				}
			}
			text, err := Forget(t.Context(), o, f.Home, "alpha", wishOf(t, f.Home))
			if err != nil || text != tt.want {
				t.Errorf("%s: %q, %v", tt.reason, text, err)
			}
		})
	}
}

// TestForgetterTellsOfTrouble: of what only a person can help with, and not for
// ever of what became of a wish.
func TestForgetterTellsOfTrouble(t *testing.T) {
	o := &oneSession{live: &v1alpha1.Session{}, failAt: 1}
	f := wished(t, o, Wish{For: "here"})
	if again := f.look(t.Context(), wishedAt); !again || f.Trouble.(told)[PartAPI] == "" || f.Trouble.(told)[PartForget] != "" {
		t.Errorf("again is %v, trouble %v; want that of the cluster alone", again, f.Trouble)
	}
	keep(t, f.Home, Wish{Result: "forgotten in the cluster.", At: wishedAt})
	f.look(t.Context(), wishedAt.Add(keepResult))
	if w := wishOf(t, f.Home); w.Result == "" {
		t.Errorf("kept is %+v", w)
	}
	f.look(t.Context(), wishedAt.Add(keepResult+time.Second))
	if list, err := Wishes(f.Home); err != nil || len(list) != 0 {
		t.Errorf("after its time %+v is kept, %v", list, err)
	}
}
