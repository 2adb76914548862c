//go:build envtest

package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/undersong-dev/undersong/agent/hook"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/statefile"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// pin makes or replaces a block of the memory.
func (s *standin) pin(t *testing.T, project, label, value string) {
	t.Helper()
	c, ns := s.client, s.ns
	name := v1alpha1.MemoryBlockName(memory, project, label)
	b := &v1alpha1.MemoryBlock{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       v1alpha1.MemoryBlockSpec{MemoryRef: v1alpha1.LocalRef{Name: memory}, Project: project, Label: label, Mode: v1alpha1.BlockLearned},
	}
	if err := c.Get(t.Context(), keyOf(b), b); err != nil {
		must(t, c.Create(t.Context(), b))
	}
	at := metav1.Now()
	b.Status.Value, b.Status.Bytes, b.Status.UpdatedAt = value, int64(len(value)), &at
	b.Status.Digest = fmt.Sprintf("%064x", len(value)) // each value has another length here
	must(t, c.Status().Update(t.Context(), b))
}

// call runs the hook as the agent does.
func (k *talk) call(event string, fields ...string) string {
	k.m.t.Helper()
	for _, name := range []string{"LETTA_MODE", "LETTA_HOME", "CLAUDE_PROJECT_DIR"} {
		k.m.t.Setenv(name, "")
	}
	k.m.t.Setenv("CLAUDE_CODE_ENTRYPOINT", "cli")
	in := map[string]string{
		"hook_event_name": event, "session_id": k.id, "transcript_path": k.path, "cwd": k.m.cwd, "permission_mode": "default",
	}
	if event == "SessionStart" {
		delete(in, "permission_mode")
	}
	for i := 0; i < len(fields); i += 2 {
		in[fields[i]] = fields[i+1]
	}
	stdin, err := json.Marshal(in)
	must(k.m.t, err)
	var out bytes.Buffer
	hook.Run(bytes.NewReader(stdin), &out, hook.Env{Now: time.Now, Home: k.m.home})
	return out.String()
}

var spokenID = regexp.MustCompile(`id=\\"([^\\]+)\\"`)

// given appends the record in which the agent says what context it was given.
func (k *talk) given(printed string) []string {
	k.m.t.Helper()
	var ids []string
	for _, m := range spokenID.FindAllStringSubmatch(printed, -1) {
		ids = append(ids, m[1])
	}
	content, err := json.Marshal(printed)
	must(k.m.t, err)
	k.append(fmt.Sprintf(`{"type":"attachment","uuid":"%s-a%d","sessionId":%q,"cwd":%q,"attachment":{"type":"hook_additional_context","content":[%s]}}`,
		k.id, k.n, k.id, k.m.cwd, content))
	return ids
}

// TestBriefReachesTheFirstPrompt: of a project that this workstation has never
// seen, and again after a compaction.
func TestBriefReachesTheFirstPrompt(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	s.pin(t, remote, "brief", "Run make generate first.")
	s.pin(t, "git.example.com/alpha/other", "brief", "Another project's brief, which is not for this one.")
	s.pin(t, remote, "pitfalls", "Not shown in mode Brief.")
	m.start()

	k := m.talk()
	for i, source := range []string{"startup", "compact"} {
		if out := k.call("SessionStart", "source", source); strings.Contains(out, "team_memory") {
			t.Errorf("shown where nobody says how permissions are handled: %s", out)
		}
		var printed string
		eventually(t, "the brief is shown", func() error {
			if printed = k.call("PreToolUse"); !strings.Contains(printed, "Run make generate first.") {
				return fmt.Errorf("printed %q, trouble %v", printed, m.trouble())
			}
			return nil
		})
		if strings.Contains(printed, "Another project") || strings.Contains(printed, "Not shown") {
			t.Errorf("start %d: shown, too: %s", i, printed)
		}
		k.turn("What first?", "make generate.")
		k.given(printed)
		k.call("Stop")
		eventually(t, "the brief has arrived", func() error {
			if claimed, err := whisper.Claimed(m.home, k.id); err != nil || len(claimed) > 0 {
				return fmt.Errorf("claimed: %v, %w", claimed, err)
			}
			return nil
		})
		if out := k.call("UserPromptSubmit"); strings.Contains(out, "team_memory") {
			t.Errorf("start %d: shown again: %s", i, out)
		}
	}
	if _, err := statefile.Blocks(m.cwd, k.id); err == nil {
		if blocks, _ := statefile.Blocks(m.cwd, k.id); len(blocks) > 0 {
			t.Errorf("lastBlockValues is filled in mode Brief: %v", blocks)
		}
	}
}

// TestSuspendReachesTheHook: a lead's suspend: Recall holds back what waits on
// a laptop already, and gives it free again.
func TestSuspendReachesTheHook(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	s.pin(t, remote, "brief", "Run make generate first.")
	m.start()
	k := m.talk()
	k.call("SessionStart", "source", "startup")
	eventually(t, "the memory is known", func() error {
		if _, ok := whisper.LoadMemory(m.home, remote, true); !ok {
			return errors.New("it is not")
		}
		return nil
	})
	suspend := func(what v1alpha1.Suspend) {
		t.Helper()
		mem := &v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Namespace: m.ns, Name: memory}}
		must(t, adminClient(t).Get(t.Context(), keyOf(mem), mem))
		mem.Spec.Suspend = what
		must(t, adminClient(t).Update(t.Context(), mem))
		eventually(t, "the daemon knows", func() error {
			if recall := note.LoadPolicy(m.home).Recall; recall == (what == v1alpha1.SuspendRecall) {
				return fmt.Errorf("recall is %v", recall)
			}
			return nil
		})
	}
	suspend(v1alpha1.SuspendRecall)
	if out := k.call("UserPromptSubmit"); strings.Contains(out, "team_memory") {
		t.Errorf("shown while it is suspended: %s", out)
	}
	suspend(v1alpha1.SuspendNone)
	if out := k.call("UserPromptSubmit"); !strings.Contains(out, "Run make generate first.") {
		t.Errorf("not shown when it is no longer suspended: %q", out)
	}
}

// TestFullShowsBlocksThenChanges, and the plugin's lastBlockValues says what the
// session knows.
func TestFullShowsBlocksThenChanges(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	mem := &v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Namespace: m.ns, Name: memory}}
	must(t, adminClient(t).Get(t.Context(), keyOf(mem), mem))
	mem.Spec.Recall.Mode = v1alpha1.RecallFull
	must(t, adminClient(t).Update(t.Context(), mem))
	s.pin(t, remote, "brief", "Run make generate first.")
	s.pin(t, "", "conventions", "Commit small.")
	m.start()

	k := m.talk()
	k.call("SessionStart", "source", "startup")
	var printed string
	eventually(t, "both blocks are shown", func() error {
		printed = k.call("PreToolUse")
		if !strings.Contains(printed, "Run make generate first.") || !strings.Contains(printed, "Commit small.") {
			return fmt.Errorf("printed %q, trouble %v", printed, m.trouble())
		}
		return nil
	})
	k.turn("What first?", "make generate.")
	k.given(printed)
	k.call("Stop")
	want := map[string]string{"brief": "Run make generate first.", "conventions": "Commit small."}
	knows := func() error {
		got, err := statefile.Blocks(m.cwd, k.id)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			return fmt.Errorf("%w (-want +got):\n%s", err, diff)
		}
		return nil
	}
	eventually(t, "lastBlockValues says so", knows)

	s.pin(t, remote, "brief", "Run make generate first.\nThen make manifests.")
	eventually(t, "the change is shown", func() error {
		if printed = k.call("PreToolUse"); !strings.Contains(printed, "+ Then make manifests.") {
			return fmt.Errorf("printed %q, trouble %v", printed, m.trouble())
		}
		return nil
	})
	if strings.Contains(printed, "Run make generate") || strings.Contains(printed, "Commit small.") {
		t.Errorf("shown again: %s", printed)
	}
	k.turn("And then?", "make manifests.")
	k.given(printed)
	k.call("Stop")
	want["brief"] = "Run make generate first.\nThen make manifests."
	eventually(t, "lastBlockValues says so", knows)
	if name := statefile.Path(m.cwd, k.id); !strings.HasPrefix(name, filepath.Join(m.cwd, ".letta")) {
		t.Errorf("state file at %s", name)
	}
}

// TestAWrongWhisperIsWithdrawn: by a request of the owner, made on any of the
// workstations, and it does not come back while the status still has it.
func TestAWrongWhisperIsWithdrawn(t *testing.T) {
	s := newTeam(t)
	s.set(func() { s.say = "Migrations run twice." })
	m := newMachine(t, s, "ada")
	m.start()
	k := m.talk()
	k.turn("What now?", "We migrate.")
	k.settled(2)
	var id string
	eventually(t, "a whisper waits", func() error {
		unheard, err := whisper.Unheard(m.home, k.id)
		for _, w := range unheard {
			if w.Text != "" {
				id = w.ID
				return nil
			}
		}
		return fmt.Errorf("%v, %w", unheard, err)
	})
	key := keyOf(k.live())
	q := v1alpha1.Request{ID: "w-1", Kind: v1alpha1.RequestWrongWhisper, Whisper: id}
	for range 2 { // said twice is said once
		must(t, upload.Request(t.Context(), m.client(), key, q))
	}
	must(t, upload.Request(t.Context(), m.client(), key, v1alpha1.Request{ID: "w-2", Kind: v1alpha1.RequestWrongWhisper, Whisper: "another"}))
	if live := k.live(); len(live.Spec.Requests) != 2 || live.Spec.Requests[0] != q || len(live.Spec.Writers) != 1 {
		t.Errorf("spec: %+v", live.Spec)
	}
	eventually(t, "it is withdrawn", func() error {
		unheard, err := whisper.Unheard(m.home, k.id)
		for _, w := range unheard {
			if w.ID == id {
				return errors.New("it still waits")
			}
		}
		return err
	})
	if out := k.call("UserPromptSubmit"); strings.Contains(out, "Migrations") {
		t.Errorf("shown: %s", out)
	}
	// Answers make room for others.
	live := k.live()
	live.Status.Answered = []v1alpha1.Answer{{ID: "w-1", Result: v1alpha1.AnswerDone}}
	must(t, s.client.Status().Update(t.Context(), live))
	must(t, upload.Request(t.Context(), m.client(), key, v1alpha1.Request{ID: "w-3", Kind: v1alpha1.RequestWrongWhisper, Whisper: "a third"}))
	var ids []string
	for _, r := range k.live().Spec.Requests {
		ids = append(ids, r.ID)
	}
	if diff := cmp.Diff([]string{"w-2", "w-3"}, ids); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestAWhisperThatWasTakenBackMeanwhile: while this workstation slept the request
// was answered and made room for others, or the words were erased; the whisper
// that was here already is not shown after its next look.
func TestAWhisperThatWasTakenBackMeanwhile(t *testing.T) {
	s := newTeam(t)
	s.set(func() { s.say = "Migrations run twice." })
	m := newMachine(t, s, "ada")
	stop := m.start()
	k := m.talk()
	k.turn("What now?", "We migrate.")
	k.settled(2)
	waits := func() (id string, err error) {
		unheard, err := whisper.Unheard(m.home, k.id)
		for _, w := range unheard {
			if w.Text != "" {
				id = w.ID
			}
		}
		return id, err
	}
	var id string
	eventually(t, "a whisper waits", func() (err error) {
		if id, err = waits(); id == "" {
			return errors.Join(errors.New("none waits"), err)
		}
		return nil
	})
	stop()
	s.set(func() { s.paused = true })
	live := k.live()
	live.Status.Whispers, live.Status.Withdrawn = nil, []string{"0000", id}
	must(t, s.client.Status().Update(t.Context(), live))
	m.start()
	eventually(t, "it is withdrawn", func() error {
		if got, err := waits(); got != "" || err != nil {
			return errors.Join(errors.New("it still waits"), err)
		}
		return nil
	})
	if out := k.call("UserPromptSubmit"); strings.Contains(out, "Migrations") {
		t.Errorf("shown: %s", out)
	}
}
