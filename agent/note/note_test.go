package note_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/agent/note"
)

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func example(n int) note.Note {
	return note.Note{
		Version: 1, Event: "Stop", Session: fmt.Sprintf("session-%d", n),
		Transcript: "/t/s.jsonl", Cwd: "/work", Entrypoint: "cli", At: at.Add(time.Duration(n) * time.Second),
	}
}

func TestNotesAreListedOldestFirst(t *testing.T) {
	home := t.TempDir()
	if files, err := note.List(home); err != nil || files != nil {
		t.Fatalf("without a folder: %v, %v; want nothing", files, err)
	}
	var want []note.Note
	for _, n := range []int{3, 1, 2} {
		if err := note.Write(home, example(n)); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n <= 3; n++ {
		want = append(want, example(n))
	}
	files, err := note.List(home)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, notes(files)); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	for range 2 { // the second time they are absent, which is success
		for _, f := range files {
			if err := note.Remove(home, f.Name); err != nil {
				t.Errorf("remove: %v", err)
			}
		}
	}
	if files, err := note.List(home); err != nil || files != nil {
		t.Errorf("after removal: %v, %v; want nothing", files, err)
	}
}

func TestBrokenNotesAreSetAside(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		content string
		file    string
	}{
		"no time":      {reason: "not a name of ours", content: `{"version":1,"event":"Stop","session":"a"}`, file: "a.json"},
		"empty":        {reason: "a crash may leave an empty file", content: ""},
		"torn":         {reason: "a part of a note", content: `{"version":1,"eve`},
		"other json":   {reason: "not an object", content: `[1]`},
		"newer":        {reason: "a later undersong wrote it", content: `{"version":2,"event":"Stop","session":"a"}`},
		"no session":   {reason: "nothing to act on", content: `{"version":1,"event":"Stop"}`},
		"bad session":  {reason: "would become a file name", content: `{"version":1,"event":"Stop","session":"../a"}`},
		"past the end": {reason: "larger than any note", content: `{"version":1,"event":"Stop","session":"a","cwd":"` + strings.Repeat("a", 64<<10) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			if err := note.Write(home, example(2)); err != nil {
				t.Fatal(err)
			}
			file := tc.file
			if file == "" {
				file = "00000000000000000001-1-1.json"
			}
			broken := filepath.Join(note.Dir(home), file)
			if err := os.WriteFile(broken, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				files, err := note.List(home)
				if err != nil {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				if diff := cmp.Diff([]note.Note{example(2)}, notes(files)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
			got, err := note.Broken(home)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{filepath.Base(broken)}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestBrokenNotesAreBounded(t *testing.T) {
	home := t.TempDir()
	if err := note.Write(home, example(1)); err != nil {
		t.Fatal(err)
	}
	for n := range 105 {
		name := filepath.Join(note.Dir(home), fmt.Sprintf("%020d-1-1.json", n))
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := note.List(home); err != nil || len(files) != 1 {
		t.Fatalf("%d notes, %v; want one", len(files), err)
	}
	if got, err := note.Broken(home); err != nil || len(got) != 100 {
		t.Errorf("%d set aside, %v; want 100", len(got), err)
	}
}

func TestListIsBounded(t *testing.T) {
	home := t.TempDir()
	for n := range 1001 {
		if err := note.Write(home, example(n)); err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	for _, want := range []int{1000, 1, 0} {
		files, err := note.List(home)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != want {
			t.Errorf("%d notes, want %d", len(files), want)
		}
		for _, f := range files {
			if f.Note.Session != fmt.Sprintf("session-%d", total) {
				t.Errorf("note %d is of %s", total, f.Note.Session)
			}
			total++
			if err := note.Remove(home, f.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestNotesAreWhole: a reader beside many writers sees every note once and
// never a part of one.
func TestNotesAreWhole(t *testing.T) {
	home := t.TempDir()
	const writers, each = 8, 25
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for j := range each {
				n := example(1) // same time, same process
				n.Cwd = fmt.Sprintf("/src/%d/%d", i, j/5)
				if err := note.Write(home, n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	seen := 0
	for last := false; ; {
		files, err := note.List(home)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			seen++
			if err := note.Remove(home, f.Name); err != nil {
				t.Fatal(err)
			}
		}
		if last {
			break
		}
		select {
		case <-done:
			last = true // and once more, now that all are written
		default:
		}
	}
	if seen != writers*each {
		t.Errorf("%d notes seen, %d written", seen, writers*each)
	}
	if bad, err := note.Broken(home); err != nil || len(bad) > 0 {
		t.Errorf("broken notes: %v, %v", bad, err)
	}
}

// TestNotesOfOneKindShareAFile: making a file is the dearest thing that a hook
// does.
func TestNotesOfOneKindShareAFile(t *testing.T) {
	home := t.TempDir()
	for n := range 3 {
		one := example(0)
		one.At = at.Add(time.Duration(n) * time.Second)
		if err := note.Write(home, one); err != nil {
			t.Fatal(err)
		}
	}
	files, err := note.List(home)
	if err != nil || len(files) != 3 {
		t.Fatalf("%d notes, %v", len(files), err)
	}
	var infos []os.FileInfo
	for _, f := range files {
		info, err := os.Stat(filepath.Join(note.Dir(home), f.Name))
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	if !os.SameFile(infos[0], infos[1]) || !os.SameFile(infos[0], infos[2]) {
		t.Error("they are three files")
	}
}

// TestSharedFileIsDamaged: what the power left of it must not become a note.
func TestSharedFileIsDamaged(t *testing.T) {
	home := t.TempDir()
	for n := range 3 {
		if n > 0 {
			same, err := filepath.Glob(filepath.Join(note.Dir(home), "same", "*"))
			if err != nil || len(same) != 1 {
				t.Fatal(same, err)
			}
			if err := os.Remove(same[0]); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(same[0], []byte(strings.Repeat("x", 70<<10*(n-1))), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := note.Write(home, example(1)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := note.List(home)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]note.Note{example(1), example(1), example(1)}, notes(files)); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestSweep(t *testing.T) {
	home := t.TempDir()
	if err := note.Sweep(home, at); err != nil {
		t.Fatalf("nothing there: %v", err)
	}
	if err := note.Write(home, example(1)); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(note.Dir(home), ".tmp-1.json")
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left := func() int {
		names, err := filepath.Glob(filepath.Join(note.Dir(home), "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(half); err == nil {
			names = append(names, half)
		}
		return len(names)
	}
	for _, step := range []struct {
		age  time.Duration
		want int
	}{{23 * time.Hour, 2}, {25 * time.Hour, 0}} {
		if err := note.Sweep(home, time.Now().Add(step.age)); err != nil { // files carry the machine's time
			t.Fatal(err)
		}
		if got := left(); got != step.want {
			t.Errorf("after %v: %d files left, want %d", step.age, got, step.want)
		}
	}
	if err := note.Write(home, example(1)); err != nil {
		t.Fatal(err)
	}
	if files, err := note.List(home); err != nil || len(files) != 2 {
		t.Errorf("%d notes, %v; want both", len(files), err)
	}
}

func TestWriteRefusesAHugeNote(t *testing.T) {
	n := example(1)
	n.Cwd = strings.Repeat("a", 64<<10)
	if err := note.Write(t.TempDir(), n); err == nil {
		t.Error("a note that nobody would read was written")
	}
}

func TestRemoveStaysInItsFolder(t *testing.T) {
	home := t.TempDir()
	if err := note.SaveConfig(home, note.Config{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../config.json", "", ".", "bad"} {
		if err := note.Remove(home, name); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
	if _, err := note.LoadConfig(home); err != nil {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	home := filepath.Join(t.TempDir(), "state", "undersong")
	if _, err := note.LoadConfig(home); !errors.Is(err, note.ErrNotConfigured) {
		t.Errorf("without a file: %v, want %v", err, note.ErrNotConfigured)
	}
	want := note.Config{
		Version: 1, Server: "https://kube.example", Context: "team", Kubeconfig: "/home/a/.kube/config",
		Namespace: "alpha", Memory: "team", StoreHost: "s3.example:9000", Owner: "alice", Workstation: "w1",
		Daemon: "/usr/bin/undersong", Env: map[string]string{"PATH": "/usr/bin"}, ConsentedAt: at,
		Exclude: []string{"github.com/acme/secret"}, Off: true, IdleExitSeconds: 60,
	}
	if err := note.SaveConfig(home, want); err != nil {
		t.Fatal(err)
	}
	got, err := note.LoadConfig(home)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestConfigIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		content string
		mode    os.FileMode
	}{
		"torn":  {reason: "half of it is not what the user said", content: `{"version":1,`, mode: 0o600},
		"newer": {reason: "a later undersong wrote it", content: `{"version":2}`, mode: 0o600},
		"no version": {
			reason: "not a configuration of ours", content: `{}`, mode: 0o600,
		},
		"readable by others": {reason: "what git checks out, nobody consented to", content: `{"version":1}`, mode: 0o644},
		"too large":          {reason: "bounded", content: `{"version":1}` + strings.Repeat(" ", 256<<10), mode: 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && tc.mode != 0o600 {
				t.Skip("Windows has no mode bits")
			}
			home := t.TempDir()
			if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(tc.content), tc.mode); err != nil {
				t.Fatal(err)
			}
			_, err := note.LoadConfig(home)
			if diff := cmp.Diff(note.ErrConfig, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestHome(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the cases are those of Linux")
	}
	for name, tc := range map[string]struct {
		reason           string
		own, state, home string
		want             string
		err              error
	}{
		"default":        {reason: "the XDG default", home: "/home/a", want: "/home/a/.local/state/undersong"},
		"state home":     {reason: "XDG", home: "/home/a", state: "/s", want: "/s/undersong"},
		"relative state": {reason: "XDG has it ignored", home: "/home/a", state: "s", want: "/home/a/.local/state/undersong"},
		"own":            {reason: "ours wins", own: "/u/../v", home: "/home/a", state: "/s", want: "/v"},
		"relative own":   {reason: "would move with the agent", own: "../..", home: "/home/a", err: note.ErrHome},
		"literal tilde":  {reason: "nobody expanded it", own: "~/u", home: "/home/a", err: note.ErrHome},
		"literal HOME":   {reason: "nobody expanded it", own: "$HOME/u", home: "/home/a", err: note.ErrHome},
		"no home":        {reason: "never a folder named ~ in the project", err: note.ErrHome},
		"relative home":  {reason: "never below the project", home: "x", err: note.ErrHome},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("UNDERSONG_HOME", tc.own)
			t.Setenv("XDG_STATE_HOME", tc.state)
			t.Setenv("HOME", tc.home)
			got, err := note.Home()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestValidSession(t *testing.T) {
	for id, want := range map[string]bool{
		"8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11": true, "A": true, strings.Repeat("a", 64): true,
		"": false, "..": false, "a/b": false, `a\b`: false, "a b": false, "é": false, "a\x00": false,
		strings.Repeat("a", 65): false,
	} {
		if got := note.ValidSession(id); got != want {
			t.Errorf("%q: %v, want %v", id, got, want)
		}
	}
}

func notes(files []note.File) []note.Note {
	var out []note.Note
	for _, f := range files {
		out = append(out, f.Note)
	}
	return out
}

// TestEqualNotesAreBounded: where no daemon takes them, they do not fill the
// disk; one that takes them lets more come.
func TestEqualNotesAreBounded(t *testing.T) {
	home := t.TempDir()
	n := example(1)
	for round := range 2 {
		for i := range 100 {
			n.At = n.At.Add(time.Duration(i) * time.Second)
			if err := note.Write(home, n); err != nil {
				t.Fatal(err)
			}
		}
		files, err := note.List(home)
		if err != nil || len(files) < 2 || len(files) > 20 {
			t.Errorf("round %d: %d notes wait, %v", round, len(files), err)
		}
		for _, f := range files {
			if err := note.Remove(home, f.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if at := note.Oldest(home); !at.IsZero() {
		t.Errorf("the oldest of none is of %v", at)
	}
}

// TestConfigOfAnotherFolder: one that came with a repository, whose settings
// name it as the state directory, is refused, whatever its mode.
func TestConfigOfAnotherFolder(t *testing.T) {
	home, planted := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "repository", "state")
	if err := note.SaveConfig(home, note.Config{Daemon: "/bin/sh"}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(home, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(planted, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(planted, "config.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := note.LoadConfig(planted); !errors.Is(err, note.ErrConfig) {
		t.Errorf("a copy elsewhere: %v", err)
	}
	if _, err := note.LoadConfig(home); err != nil {
		t.Errorf("where it was made: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(home, link); err == nil {
		if _, err := note.LoadConfig(link); err != nil {
			t.Errorf("by another name: %v", err)
		}
	}
}
