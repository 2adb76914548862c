package daemon

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/agent/read"
)

var t0 = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func TestAgenda(t *testing.T) {
	a := newAgenda()
	if _, planned := a.next(); planned {
		t.Error("something is planned at the start")
	}
	a.add("b", at(5), at(2), at(2))
	a.add("a", at(1))
	a.atMostBy("b", at(3)) // it is read at 2 anyway
	a.atMostBy("a", at(0))
	if next, _ := a.next(); !next.Equal(at(0)) {
		t.Errorf("next is %v", next)
	}
	if diff := cmp.Diff([]string{"a", "b"}, a.due(at(2))); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
	if a.pending("a") || !a.pending("b") {
		t.Error("times that have come are still planned, or others are not")
	}
	if diff := cmp.Diff([]string{}, a.due(at(4))); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b"}, a.due(at(5))); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
}

func TestAgendaIsBounded(t *testing.T) {
	a := newAgenda()
	for n := range 1000 {
		a.add("s", at(n))
	}
	if got := len(a.at["s"]); got != maxTimes {
		t.Errorf("%d times", got)
	}
	a.due(at(998))
	if !a.pending("s") {
		t.Error("the latest read was dropped, which finds what all others would")
	}
}

func TestTheLogIsBounded(t *testing.T) {
	home := t.TempDir()
	log, file, err := openLog(home)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 64<<10)
	for range 3 * maxLog / len(line) {
		log.Info(line)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{LogFile, LogFile + ".1"} {
		info, err := os.Stat(filepath.Join(home, name))
		if err != nil || info.Size() > maxLog || info.Size() == 0 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(home, LogFile))
	if err != nil || !bytes.HasPrefix(data, []byte("{")) {
		t.Errorf("a line was torn by the change of files: %v", err)
	}
}

func TestTroubleIsToldOnce(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(t0)
	told := 0
	tr := newTroubles(clock, func() { told++ })
	tr.Set("store", "")
	tr.Set("store", "away")
	clock.SetTime(at(60))
	tr.Set("store", "away")
	tr.Set("session/x", "taken")
	if told != 2 {
		t.Errorf("told %d times, want 2", told)
	}
	if got := tr.last(); got != "taken" {
		t.Errorf("the newest is %q", got)
	}
	want := []Trouble{{Part: "store", Message: "away", Since: t0}, {Part: "session/x", Message: "taken", Since: at(60)}}
	if diff := cmp.Diff(want, tr.all()); diff != "" {
		t.Errorf("trouble (-want +got):\n%s", diff)
	}
	tr.Set("store", "")
	tr.Set("session/x", "")
	if tr.last() != "" || len(tr.all()) != 0 || told != 4 {
		t.Errorf("trouble that has ended is there: %v", tr.all())
	}
}

func TestBaseline(t *testing.T) {
	home, projects := t.TempDir(), t.TempDir()
	main := filepath.Join(projects, "-a", "s1.jsonl")
	agent := filepath.Join(projects, "-a", "s1", "subagents", "agent-1.jsonl")
	for path, text := range map[string]string{main: "12345", agent: "123", filepath.Join(projects, "-a", "x.json"): "1"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := WriteBaseline(home, projects); n != 2 || err != nil {
		t.Fatalf("%d files, %v", n, err)
	}
	b, err := readBaseline(home)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int64{
		main: 5, agent: 3, filepath.Join(projects, "-a", "new.jsonl"): 0,
		filepath.Join(projects, "-worktree", "s1.jsonl"): 5, // moved since
	} {
		if got := b.size(read.Source{Path: path}); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	if n, err := WriteBaseline(home, filepath.Join(projects, "none")); n != 0 || err != nil {
		t.Errorf("without projects: %d files, %v", n, err)
	}
	if _, err := readBaseline(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without baseline: %v", err)
	}
}

func TestLoadRESTReadsOnlyWhatIsPinned(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"a",
"clusters":[{"name":"a","cluster":{"server":"https://a.example.com"}}],
"users":[{"name":"a","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"login","interactiveMode":"Always"}}}],
"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(dir, "evil"))
	config, err := LoadREST(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://a.example.com" || config.ExecProvider.InteractiveMode != "Never" {
		t.Errorf("host %s, interactive %s", config.Host, config.ExecProvider.InteractiveMode)
	}
	for name, args := range map[string][2]string{
		"no file": {filepath.Join(dir, "none"), ""}, "no context": {path, "b"}, "relative": {"config", ""},
	} {
		if _, err := LoadREST(args[0], args[1]); !errors.Is(err, ErrKubeconfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
