package upload

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
)

var me = who{owner: "ada", memory: "main", workstation: "ws-1", branch: "main"}

// stateOf is a state with segments up to seq, each of 10 lines and 100 bytes,
// those up to verified verified, those up to uploaded in slot 100+seq.
func stateOf(verified, uploaded, head int64) *spool.State {
	mark := func(n int64) spool.Mark {
		return spool.Mark{Segments: n, Lines: 10 * n, Bytes: 100 * n, Chain: fmt.Sprint("c", n)}
	}
	s := &spool.State{
		SessionID: "s", Name: "s-1", UID: "uid", Project: &read.Project{Name: "tide", Remote: "host/tide"},
		Head: mark(head), Verified: mark(verified),
	}
	for seq := verified + 1; seq <= head; seq++ {
		g := spool.Segment{Seq: seq, Lines: 10, Bytes: 100, Chain: fmt.Sprint("c", seq), SlotState: spool.SlotNone}
		if seq <= uploaded {
			g.Slot, g.SlotState = 100+seq, spool.SlotUploaded
		}
		s.Segments = append(s.Segments, g)
	}
	return s
}

// liveOf is a Session with these writers.
func liveOf(writers ...v1alpha1.Writer) *v1alpha1.Session {
	live := &v1alpha1.Session{}
	live.UID = types.UID("uid")
	live.Spec = v1alpha1.SessionSpec{
		Owner: "ada", MemoryRef: v1alpha1.LocalRef{Name: "main"}, Project: v1alpha1.Project{Name: "tide", Remote: "host/tide"}, Writers: writers,
	}
	return live
}

// entryOf is the entry of ws-1 with segments up to n.
func entryOf(n int64, previous string, slots ...int64) v1alpha1.Writer {
	w := v1alpha1.Writer{
		Workstation: "ws-1", State: v1alpha1.WriterActive, Branch: "main",
		Segments: n, Lines: 10 * n, Bytes: 100 * n, Chain: fmt.Sprint("c", n), PreviousChain: previous,
	}
	for _, seq := range slots {
		w.Slots = append(w.Slots, v1alpha1.Slot{Seq: seq, Slot: 100 + seq})
	}
	return w
}

func edit[T any](v T, change func(*T)) T {
	change(&v)
	return v
}

func TestPlan(t *testing.T) {
	elsewhere := v1alpha1.Writer{Workstation: "ws-2", Segments: 4, Lines: 7, Chain: "x"}
	type test struct {
		reason string
		live   *v1alpha1.Session
		state  *spool.State
		want   v1alpha1.Writer
		write  bool
		err    error
	}
	again := liveOf(entryOf(3, "c2"))
	again.UID = "another uid"
	stranger := liveOf(edit(entryOf(3, "c2"), func(w *v1alpha1.Writer) { w.Chain = "x" }))
	stranger.UID = "another uid"
	back := func(chain string) *v1alpha1.Session {
		live := liveOf(entryOf(2, "c1"))
		live.Status.SyncState = &v1alpha1.SyncState{Writers: []v1alpha1.WriterSync{{
			Workstation: "ws-1", Verified: v1alpha1.WriterVerified{Segments: 4, Chain: chain},
		}}}
		return live
	}
	for name, tt := range map[string]test{
		"made again from the archive": {
			reason: "a Session that names a head of ours is ours, whatever its uid", live: again, state: stateOf(3, 4, 4),
			want: entryOf(4, "c3", 4), write: true,
		},
		"made again by a stranger": {
			reason: "another head under another uid is a deleted Session", live: stranger, state: stateOf(3, 4, 4), err: ErrWithdrawn,
		},
		"restored": {
			reason: "an entry of before is brought up to date once the archive shows our head", live: back("c4"), state: stateOf(4, 5, 5),
			want: entryOf(5, "c2", 5), write: true,
		},
		"restored, not caught up": {
			reason: "without our head in the archive nothing is proved", live: liveOf(entryOf(2, "c1")), state: stateOf(4, 5, 5), err: ErrDisagree,
		},
		"restored, another chain": {
			reason: "another head in the archive proves the opposite", live: back("x"), state: stateOf(4, 5, 5), err: ErrDisagree,
		},
		"new entry": {
			reason: "it starts at chain 0", live: liveOf(elsewhere), state: stateOf(0, 2, 3),
			want: entryOf(2, "c0", 1, 2), write: true,
		},
		"grown": {
			reason: "it continues the head that the cluster has, and slots of verified segments leave",
			live:   liveOf(entryOf(2, "c0", 1, 2)), state: stateOf(1, 4, 4),
			want: entryOf(4, "c2", 2, 3, 4), write: true,
		},
		"nothing new": {
			reason: "the same entry", live: liveOf(entryOf(2, "c0", 1, 2)), state: stateOf(0, 2, 2),
			want: entryOf(2, "c0", 1, 2),
		},
		"only verified": {
			reason: "slots that leave are not worth a write", live: liveOf(entryOf(2, "c0", 1, 2)), state: stateOf(2, 2, 2),
			want: entryOf(2, "c0"),
		},
		"applied, not recorded": {
			reason: "the live entry is past what our upload record says", live: liveOf(entryOf(3, "c2", 1, 2, 3)), state: stateOf(0, 2, 3),
			want: entryOf(3, "c2", 1, 2),
		},
		"ended": {
			reason: "alone, when nothing else is to be said", live: liveOf(entryOf(2, "c0")),
			state: edit(stateOf(2, 2, 2), func(s **spool.State) { (*s).Ended = true }),
			want:  edit(entryOf(2, "c0"), func(w *v1alpha1.Writer) { w.State = v1alpha1.WriterEnded }), write: true,
		},
		"ended, more to come": {
			reason: "an entry that will grow has not ended", live: liveOf(entryOf(2, "c0")),
			state: edit(stateOf(2, 3, 4), func(s **spool.State) { (*s).Ended = true }),
			want:  entryOf(3, "c2", 3), write: true,
		},
		"resumed": {
			reason: "later records make it active", state: stateOf(2, 3, 3),
			live: liveOf(edit(entryOf(2, "c0"), func(w *v1alpha1.Writer) { w.State = v1alpha1.WriterEnded })),
			want: entryOf(3, "c2", 3), write: true,
		},
		"sent again": {
			reason: "another slot, the same chain", live: liveOf(entryOf(2, "c0", 1, 2)),
			state: edit(stateOf(0, 2, 2), func(s **spool.State) { (*s).Segments[0].Slot = 190 }),
			want:  edit(entryOf(2, "c0", 1, 2), func(w *v1alpha1.Writer) { w.Slots[0].Slot = 190 }), write: true,
		},
		"gone": {
			reason: "a file that is lost is said to be gone, and what follows goes on", live: liveOf(entryOf(1, "c0", 1)),
			state: edit(stateOf(0, 3, 3), func(s **spool.State) { (*s).Segments[1].SlotState = spool.SlotGone }),
			want:  edit(entryOf(3, "c1", 1, 3), func(w *v1alpha1.Writer) { w.Gone = []int64{2} }), write: true,
		},
		"asked for, dropped": {
			reason: "the spool has it no more", live: liveOf(entryOf(2, "c0")),
			state: edit(stateOf(2, 2, 2), func(s **spool.State) { (*s).Gone = []int64{1} }),
			want:  edit(entryOf(2, "c0"), func(w *v1alpha1.Writer) { w.Gone = []int64{1} }), write: true,
		},
		"other chain": {
			reason: "the cluster has what the spool never made", live: liveOf(edit(entryOf(2, "c0"), func(w *v1alpha1.Writer) { w.Chain = "y" })),
			state: stateOf(0, 3, 3), err: ErrDisagree,
		},
		"further than we are": {
			reason: "the local state was set back", live: liveOf(entryOf(5, "c4")), state: stateOf(0, 3, 3), err: ErrDisagree,
		},
		"set back": {
			reason: "the cluster was restored from before what is verified", live: liveOf(entryOf(1, "c0")), state: stateOf(2, 3, 3), err: ErrDisagree,
		},
		"entry lost": {
			reason: "so it was", live: liveOf(), state: stateOf(2, 3, 3), err: ErrDisagree,
		},
		"expired": {
			reason: "the next Session of that name goes on after what the archive has", live: liveOf(elsewhere),
			state: edit(stateOf(2, 3, 3), func(s **spool.State) { (*s).UID, (*s).Expired = "", true }),
			want:  entryOf(3, "c2", 3), write: true,
		},
		"withdrawn, asked for": {
			reason: "what was dropped will not come", live: liveOf(entryOf(2, "c0", 1, 2)),
			state: edit(stateOf(3, 3, 3), func(s **spool.State) { (*s).Withdrawn, (*s).Gone = true, []int64{2} }),
			want:  edit(entryOf(2, "c0", 1), func(w *v1alpha1.Writer) { w.Gone = []int64{2} }), write: true,
		},
		"withdrawn, no entry": {
			reason: "nobody waits for it", live: liveOf(elsewhere), err: ErrWithdrawn,
			state: edit(stateOf(3, 3, 3), func(s **spool.State) { (*s).Withdrawn, (*s).Gone = true, []int64{2} }),
		},
		"other owner": {
			reason: "somebody else's Session", live: edit(liveOf(), func(s **v1alpha1.Session) { (*s).Spec.Owner = "eve" }),
			state: stateOf(0, 1, 1), err: ErrNameTaken,
		},
		"made again": {
			reason: "deleted and made again", live: edit(liveOf(), func(s **v1alpha1.Session) { (*s).UID = "other" }),
			state: stateOf(0, 1, 1), err: ErrWithdrawn,
		},
		"other memory": {
			reason: "on another workstation", live: edit(liveOf(), func(s **v1alpha1.Session) { (*s).Spec.MemoryRef.Name = "x" }),
			state: stateOf(0, 1, 1), err: ErrOtherSession,
		},
		"other project": {
			reason: "on another workstation", live: edit(liveOf(), func(s **v1alpha1.Session) { (*s).Spec.Project.Remote = "x" }),
			state: stateOf(0, 1, 1), err: ErrOtherSession,
		},
		"eight writers": {
			reason: "no place", state: stateOf(0, 1, 1), err: ErrTooManyWriters,
			live: liveOf(make([]v1alpha1.Writer, 8)...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, write, err := plan(tt.live, tt.state, me)
			if diff := cmp.Diff(tt.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Fatalf("%s: error (-want +got):\n%s", tt.reason, diff)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: entry (-want +got):\n%s", tt.reason, diff)
			}
			if write != tt.write {
				t.Errorf("%s: write is %v, want %v", tt.reason, write, tt.write)
			}
		})
	}
}

func TestTotalCountsTheOthers(t *testing.T) {
	live := liveOf(entryOf(1, "c0"), v1alpha1.Writer{Workstation: "ws-2", Lines: 7})
	entry := entryOf(3, "c1")
	if got := total(live, &entry); got != 37 {
		t.Errorf("total is %d, want 37", got)
	}
}

func TestDueAsksOnlyForNews(t *testing.T) {
	applied := func(w v1alpha1.Writer) func(**spool.State) {
		return func(s **spool.State) { (*s).Applied = &w }
	}
	type test struct {
		reason string
		state  *spool.State
		want   bool
	}
	for name, tt := range map[string]test{
		"nothing uploaded": {"no Session before the first segment", stateOf(0, 0, 2), false},
		"first":            {"never applied", stateOf(0, 1, 1), true},
		"same":             {"applied", edit(stateOf(0, 1, 1), applied(entryOf(1, "c0", 1))), false},
		"more":             {"one more", edit(stateOf(0, 2, 2), applied(entryOf(1, "c0", 1))), true},
		"verified":         {"slots leave", edit(stateOf(1, 1, 1), applied(entryOf(1, "c0", 1))), false},
		"being sent again": {
			"nothing to say until it is there",
			edit(edit(stateOf(0, 2, 2), applied(entryOf(2, "c0", 1, 2))), func(s **spool.State) { (*s).Segments[0].SlotState = spool.SlotNone }), false,
		},
		"withdrawn, asked for": {
			"what was dropped will not come",
			edit(edit(stateOf(3, 3, 3), applied(entryOf(3, "c0"))), func(s **spool.State) { (*s).Withdrawn, (*s).Gone = true, []int64{2} }), true,
		},
		"withdrawn, said": {
			"once is enough",
			edit(edit(stateOf(3, 3, 3), applied(edit(entryOf(3, "c0"), func(w *v1alpha1.Writer) { w.Gone = []int64{2} }))),
				func(s **spool.State) { (*s).Withdrawn, (*s).Gone = true, []int64{2} }), false,
		},
		"withdrawn": {"never again", edit(stateOf(0, 1, 1), func(s **spool.State) { (*s).Withdrawn = true }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := due(tt.state, me); got != tt.want {
				t.Errorf("%s: due is %v", tt.reason, got)
			}
		})
	}
}

func TestExplainIsStable(t *testing.T) {
	one := Explain(errors.New(`Get "https://10.0.0.1:6443/x": read tcp 10.0.0.2:51234->10.0.0.1:6443: connection reset`))
	two := Explain(errors.New(`Get "https://10.0.0.1:6443/x": read tcp 10.0.0.2:51235->10.0.0.1:6443: connection reset`))
	if one != two || one == "" {
		t.Errorf("%q and %q", one, two)
	}
}

// TestABranchIsSafeToShow: its name comes from a repository.
func TestABranchIsSafeToShow(t *testing.T) {
	redactor, err := redact.New()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		reason, branch, want string
	}{
		"plain":   {"stays as it is", "topic/tide-tables", "topic/tide-tables"},
		"escapes": {"a terminal would obey them", "topic/\x1b]0;owned\x07\u202e", "topic/\ufffd]0;owned\ufffd\ufffd"},
		"line":    {"one line of a table is one line", "a\nb", "a b"},
		"token":   {"is no branch's name", "topic/ghp_" + strings.Repeat("A1b2", 9), "topic/[redacted:github-token]"},
		"hidden":  {"what hides in a token does not hide it", "topic/ghp_A1b2\u200b" + strings.Repeat("A1b2", 8), "topic/[redacted:github-token]"},
		"long":    {"as long as the field", strings.Repeat("é", 300), strings.Repeat("é", 200)},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Publisher{Redactor: redactor}
			if got := p.who(&spool.State{Branch: tt.branch}).branch; got != tt.want {
				t.Errorf("%s: %q, want %q", tt.reason, got, tt.want)
			}
		})
	}
}
