package status

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/utils/ptr"

	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

func TestResend(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	soon, late := now.Add(-time.Minute), now.Add(-time.Hour)
	uploaded := spool.Segment{Seq: 4, Slot: 9, SlotState: spool.SlotUploaded}
	sending := spool.Segment{Seq: 4, SlotState: spool.SlotNone, ResentAt: &now}
	resent := func(at time.Time) spool.Segment {
		g := uploaded
		g.ResentAt = &at
		return g
	}
	type test struct {
		reason  string
		segment spool.Segment
		gone    []int64
		wanted  []int64
		want    spool.Segment
		nowGone []int64
		changed bool
	}
	for name, tt := range map[string]test{
		"nothing wanted": {reason: "nothing to do", segment: uploaded, want: uploaded},
		"wanted":         {reason: "into another slot", segment: uploaded, wanted: []int64{4}, want: sending, changed: true},
		"on its way":     {reason: "once is enough", segment: sending, wanted: []int64{4}, want: sending},
		"sent again": {
			reason: "the cluster may not have looked yet", segment: resent(soon), wanted: []int64{4}, want: resent(soon),
		},
		"still wanted": {reason: "that one did not help either", segment: resent(late), wanted: []int64{4}, want: sending, changed: true},
		"arrived":      {reason: "the next time counts anew", segment: resent(soon), want: uploaded},
		"verified long ago": {
			reason: "the spool has it no more", segment: uploaded, wanted: []int64{2}, want: uploaded, nowGone: []int64{2}, changed: true,
		},
		"said already": {reason: "once is enough", segment: uploaded, gone: []int64{2}, wanted: []int64{2}, want: uploaded, nowGone: []int64{2}},
		"no longer":    {reason: "the gap is recorded", segment: uploaded, gone: []int64{2}, want: uploaded},
		"never made":   {reason: "a number beyond the head is nobody's", segment: uploaded, wanted: []int64{99}, want: uploaded},
	} {
		t.Run(name, func(t *testing.T) {
			state := &spool.State{Head: spool.Mark{Segments: 4}, Verified: spool.Mark{Segments: 3}, Segments: []spool.Segment{tt.segment}, Gone: tt.gone}
			changed := resend(state, tt.wanted, now)
			if changed != tt.changed {
				t.Errorf("%s: changed is %v", tt.reason, changed)
			}
			if diff := cmp.Diff([]spool.Segment{tt.want}, state.Segments); diff != "" {
				t.Errorf("%s: segments (-want +got):\n%s", tt.reason, diff)
			}
			if diff := cmp.Diff(tt.nowGone, state.Gone, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: gone (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func memoryOf(include []string, mode v1alpha1.RecallMode, suspend v1alpha1.Suspend) *v1alpha1.TeamMemory {
	m := &v1alpha1.TeamMemory{}
	m.Spec.Capture.Projects.Include = include
	m.Spec.Recall.Mode, m.Spec.Suspend = mode, suspend
	return m
}

func TestViewOutlivesTheConnection(t *testing.T) {
	home := t.TempDir()
	v := OpenView(home)
	if _, _, known := v.Capture(); known {
		t.Error("something is known of a memory that was never seen")
	}
	if recall, _ := v.Recall(); recall {
		t.Error("whispers may be shown of a memory that was never seen")
	}
	m := memoryOf([]string{"host/*"}, "", "")
	m.Spec.Recall.MaxCharacters = ptr.To[int32](500)
	if heard, shown, err := v.See(m); !heard || !shown || err != nil {
		t.Errorf("first look: heard %v, shown %v, %v", heard, shown, err)
	}
	if heard, shown, err := v.See(m); heard || shown || err != nil {
		t.Errorf("the same again: heard %v, shown %v, %v", heard, shown, err)
	}
	again := OpenView(home)
	include, _, known := again.Capture()
	recall, most := again.Recall()
	if !known || !cmp.Equal(include, []string{"host/*"}) || !recall || most != 500 {
		t.Errorf("after a restart: %v %v, %v %d", known, include, recall, most)
	}
	if heard, shown, err := again.See(nil); !heard || shown || err != nil {
		t.Errorf("deleted: heard %v, shown %v, %v", heard, shown, err)
	}
	if _, _, known := OpenView(home).Capture(); known {
		t.Error("a deleted memory is still known after a restart")
	}
}

func TestExpired(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(days int) time.Time { return now.AddDate(0, 0, -days) }
	type test struct {
		reason string
		days   *int32
		state  spool.State
		want   bool
	}
	for name, tt := range map[string]test{
		"recent":       {"a person deleted it", nil, spool.State{Active: ago(29)}, false},
		"old":          {"30 days unless said otherwise", nil, spool.State{Active: ago(30)}, true},
		"clocks":       {"they differ a little", nil, spool.State{Active: ago(30).Add(time.Minute)}, true},
		"kept longer":  {"the team says so", ptr.To[int32](60), spool.State{Active: ago(45)}, false},
		"kept shorter": {"the team says so", ptr.To[int32](7), spool.State{Active: ago(8)}, true},
		"never there":  {"nothing is known of it", nil, spool.State{}, false},
		"of before":    {"a version that did not note it", nil, spool.State{Processed: spool.Processed{At: ago(31)}}, true},
		"sent since": {
			"what was sent last was heard",
			nil,
			spool.State{Active: ago(31), Applied: &v1alpha1.Writer{Segments: 2}, Segments: []spool.Segment{{Seq: 2, CreatedAt: ago(1)}}},
			false,
		},
		"not sent": {
			"what waits was never heard",
			nil,
			spool.State{Active: ago(31), Applied: &v1alpha1.Writer{Segments: 1}, Segments: []spool.Segment{{Seq: 2, CreatedAt: ago(1)}}},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			m := memoryOf([]string{"x"}, "", "")
			m.Spec.Retention.SessionDays = tt.days
			if _, _, err := OpenView(home).See(m); err != nil {
				t.Fatal(err)
			}
			if got := OpenView(home).Expired(&tt.state, now); got != tt.want {
				t.Errorf("%s: expired is %v", tt.reason, got)
			}
		})
	}
	if !OpenView(t.TempDir()).Expired(&spool.State{Active: ago(30)}, now) {
		t.Error("a memory that was never seen keeps Sessions for ever")
	}
}

func TestRecallIsHeldBack(t *testing.T) {
	type test struct {
		reason  string
		mode    v1alpha1.RecallMode
		suspend v1alpha1.Suspend
		want    bool
	}
	for name, tt := range map[string]test{
		"default":  {"shown unless said otherwise", "", "", true},
		"off":      {"the team wants none", v1alpha1.RecallOff, "", false},
		"recall":   {"suspended", v1alpha1.RecallWhisper, v1alpha1.SuspendRecall, false},
		"all":      {"suspended", v1alpha1.RecallWhisper, v1alpha1.SuspendAll, false},
		"delivery": {"something else is suspended", v1alpha1.RecallWhisper, v1alpha1.SuspendDelivery, true},
	} {
		t.Run(name, func(t *testing.T) {
			v := OpenView(t.TempDir())
			if _, _, err := v.See(memoryOf([]string{"x"}, tt.mode, tt.suspend)); err != nil {
				t.Fatal(err)
			}
			if got, most := v.Recall(); got != tt.want || most != defaultCharacters {
				t.Errorf("%s: recall is %v with %d characters", tt.reason, got, most)
			}
		})
	}
}

func TestMoreIsShownOnlyWhenItWasHeldBack(t *testing.T) {
	v := OpenView(t.TempDir())
	for i, step := range []struct {
		suspend v1alpha1.Suspend
		shown   bool
	}{{"", true}, {v1alpha1.SuspendRecall, false}, {"", true}, {v1alpha1.SuspendDelivery, false}} {
		_, shown, err := v.See(memoryOf([]string{"x"}, "", step.suspend))
		if err != nil || shown != step.shown {
			t.Errorf("step %d: shown is %v, %v", i, shown, err)
		}
	}
}

func TestTimesAreThisComputers(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for skew, want := range map[time.Duration]time.Time{
		0: at, 30 * time.Second: at, time.Hour: at.Add(-time.Hour), -24 * time.Hour: at.Add(24 * time.Hour),
	} {
		if got := local(at, skew); !got.Equal(want) {
			t.Errorf("skew %v: %v, want %v", skew, got, want)
		}
	}
	if !local(time.Time{}, time.Hour).IsZero() {
		t.Error("never became a time")
	}
}
