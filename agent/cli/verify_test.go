package cli

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

// told is a session of two segments of one line each, with something withheld
// between them and behind them.
func told() (spool.State, []spool.Receipt) {
	const name, workstation = "s-00000000", "ws"
	var receipts []spool.Receipt
	head := segment.Start(name, workstation)
	for i, r := range []spool.Receipt{
		{Seq: 1, Stream: "main", Offset: 0, EndOffset: 10, Lines: 1},
		{Seq: 2, Stream: "main", Offset: 10, EndOffset: 40, Lines: 1, Withheld: []read.Withheld{{Range: segment.Range{FromOffset: 10, ToOffset: 30, Reason: "paused"}}}},
	} {
		digest := segment.Sum(sha256.Sum256([]byte{byte(i)}))
		head = head.NextDigest(digest)
		r.Digest, r.Chain = digest.String(), head.String()
		receipts = append(receipts, r)
	}
	return spool.State{
		Name: name, SessionID: "s", Head: spool.Mark{Segments: 2, Lines: 2, Chain: head.String()},
		Cursors: map[string]read.Cursor{"main": {Offset: 50, Pending: []read.Withheld{{Range: segment.Range{FromOffset: 40, ToOffset: 50, Reason: "private"}}}}},
	}, receipts
}

// TestProof: what fits, and each thing that does not.
func TestProof(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		spoil  func(state *spool.State, receipts []spool.Receipt, live *v1alpha1.Session) []spool.Receipt
		gap    string
	}{
		"whole": {reason: "nothing is wrong"},
		"a receipt of a crash": {reason: "it was never in the spool's state", spoil: func(_ *spool.State, r []spool.Receipt, _ *v1alpha1.Session) []spool.Receipt {
			return append(r, spool.Receipt{Seq: 3, Stream: "main", Offset: 900, Chain: "x"})
		}},
		"no first receipt": {reason: "nobody can say what it held", gap: "no receipt of segment 1", spoil: func(_ *spool.State, r []spool.Receipt, _ *v1alpha1.Session) []spool.Receipt {
			return r[1:]
		}},
		"no last receipt": {reason: "as above", gap: "segments 2 to 2 have no receipts", spoil: func(_ *spool.State, r []spool.Receipt, _ *v1alpha1.Session) []spool.Receipt {
			return r[:1]
		}},
		"another digest": {reason: "the chain is not this one's", gap: "segment 2 does not follow", spoil: func(_ *spool.State, r []spool.Receipt, _ *v1alpha1.Session) []spool.Receipt {
			r[1].Digest = r[0].Digest
			return r
		}},
		"a hole": {reason: "bytes that nobody speaks of", gap: "bytes 10 to 20 of main are in no segment", spoil: func(_ *spool.State, r []spool.Receipt, _ *v1alpha1.Session) []spool.Receipt {
			r[1].Offset, r[1].Withheld[0].FromOffset = 20, 20
			return r
		}},
		"a hole at the end": {reason: "the cursor went on", gap: "bytes 50 to 60 of main were read", spoil: func(s *spool.State, r []spool.Receipt, _ *v1alpha1.Session) []spool.Receipt {
			c := s.Cursors["main"]
			c.Offset = 60
			s.Cursors["main"] = c
			return r
		}},
		"lines": {reason: "a line is missing", gap: "2 lines, the spool of 3", spoil: func(s *spool.State, r []spool.Receipt, _ *v1alpha1.Session) []spool.Receipt {
			s.Head.Lines = 3
			return r
		}},
		"another upload": {reason: "the cluster has another story", gap: "uploaded is another one", spoil: func(_ *spool.State, r []spool.Receipt, live *v1alpha1.Session) []spool.Receipt {
			live.Spec.Writers[0].Chain = r[0].Chain
			return r
		}},
		"another archive": {reason: "so has the archive", gap: "verified is another one", spoil: func(_ *spool.State, r []spool.Receipt, live *v1alpha1.Session) []spool.Receipt {
			live.Status.SyncState.Writers[0].Verified.Chain = r[0].Chain
			return r
		}},
		"ahead of us": {reason: "the state here is an old one", gap: "there is no receipt of the last", spoil: func(_ *spool.State, r []spool.Receipt, live *v1alpha1.Session) []spool.Receipt {
			live.Spec.Writers[0].Segments = 7
			return r
		}},
		"gone": {reason: "a segment cannot be sent again", gap: "segment 2 was asked for again", spoil: func(_ *spool.State, r []spool.Receipt, live *v1alpha1.Session) []spool.Receipt {
			live.Spec.Writers[0].Gone = []int64{2}
			return r
		}},
		"lost": {reason: "the cluster counts lost lines", gap: "3 lines of this session were lost", spoil: func(_ *spool.State, r []spool.Receipt, live *v1alpha1.Session) []spool.Receipt {
			live.Status.LostLines = 3
			return r
		}},
	} {
		t.Run(name, func(t *testing.T) {
			state, receipts := told()
			head := state.Head.Chain
			live := &v1alpha1.Session{
				Spec: v1alpha1.SessionSpec{Writers: []v1alpha1.Writer{{Workstation: "ws", Segments: 2, Chain: head}}},
				Status: v1alpha1.SessionStatus{SyncState: &v1alpha1.SyncState{Writers: []v1alpha1.WriterSync{{
					Workstation: "ws", Verified: v1alpha1.WriterVerified{Segments: 2, Chain: head}, Delivered: v1alpha1.Cut{Segments: 2},
				}}}},
			}
			if tt.spoil != nil {
				receipts = tt.spoil(&state, receipts, live)
			}
			p := &proof{Name: state.Name, Workstation: "ws"}
			p.fromReceipts(&state, receipts)
			p.compare(live, receipts)
			if (tt.gap == "") != (p.Gap == "") || !strings.Contains(p.Gap, tt.gap) {
				t.Errorf("%s: the gap is %q, want %q", tt.reason, p.Gap, tt.gap)
			}
			if text := p.render(); (p.Gap == "") != strings.Contains(text, "the chain is whole") {
				t.Errorf("%s: gap %q, and it says:\n%s", tt.reason, p.Gap, text)
			}
			if name == "whole" && (len(p.Withheld) != 2 || p.Withheld[0].Reason != "paused" || p.Withheld[1].Reason != "private") {
				t.Errorf("withheld: %+v", p.Withheld)
			}
		})
	}
}

// TestARegistrationThatGoesOn: what an earlier one has sent is no gap, and no
// receipt of it is left by which lines could be forgotten by their time.
func TestARegistrationThatGoesOn(t *testing.T) {
	state, receipts := told()
	if !accounted(receipts, &state, "ws") {
		t.Error("all receipts are there, and lines are not accounted for")
	}
	for i := range receipts {
		receipts[i].Offset, receipts[i].EndOffset = receipts[i].Offset+100, receipts[i].EndOffset+100
	}
	receipts[1].Withheld, state.Cursors = nil, nil
	p := &proof{Name: state.Name, Workstation: "ws"}
	if p.fromReceipts(&state, receipts); !strings.Contains(p.Gap, "bytes 0 to 100 of main are in no segment") {
		t.Errorf("without an earlier registration the gap is %q", p.Gap)
	}
	state.Earlier = []spool.Place{{Stream: "main", Offset: 100}}
	p = &proof{Name: state.Name, Workstation: "ws"}
	if p.fromReceipts(&state, receipts); p.Gap != "" {
		t.Errorf("gap %q", p.Gap)
	}
	if accounted(receipts, &state, "ws") {
		t.Error("what an earlier registration has sent is taken for accounted for")
	}
}
