package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// archivist is a machine with transcripts of before init, in two repositories of
// which the team hears one glob.
type archivist struct {
	*machine
	state, projects string
	config          note.Config
}

// sessionIDs are those of its sessions, the oldest first.
var sessionIDs = []string{
	"11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000", "33333333-0000-4000-8000-000000000000",
}

func newArchivist(t *testing.T) *archivist {
	t.Helper()
	m := newMachine(t)
	a := &archivist{machine: m, state: filepath.Join(m.dir, "state"), projects: filepath.Join(m.dir, ".claude", "projects")}
	for i, repository := range []string{"tide", "moon", "tide"} {
		cwd := filepath.Join(m.dir, "src", repository)
		put(t, filepath.Join(cwd, ".git", "HEAD"), "ref: refs/heads/main\n")
		put(t, filepath.Join(cwd, ".git", "config"), "[remote \"origin\"]\n\turl = https://git.example.com/alpha/"+repository+".git\n")
		at := now.AddDate(0, i-3, 0)
		var text strings.Builder
		for n, words := range []string{"The key is ghp_0123456789abcdefghijABCDEFGHIJ456789, use it.", "Five words are in this."} {
			fmt.Fprintf(&text, `{"type":"user","uuid":"u%d-%d","sessionId":%q,"cwd":%q,"entrypoint":"cli","timestamp":%q,"origin":{"kind":"human"},"message":{"role":"user","content":%q}}`+"\n",
				i, n, sessionIDs[i], cwd, at.Add(time.Duration(n)*time.Minute).Format(time.RFC3339), words)
		}
		fmt.Fprintf(&text, `{"type":"custom-title","customTitle":"Of the %s","sessionId":%q}`+"\n", repository, sessionIDs[i])
		put(t, filepath.Join(a.projects, "-src-"+repository, sessionIDs[i]+".jsonl"), text.String())
	}
	need(t, os.MkdirAll(a.state, 0o700))
	_, err := daemon.WriteBaseline(a.state, a.projects)
	need(t, err)
	a.config = note.Config{Owner: "ada", Namespace: "alpha", Memory: "main", Workstation: "ws-1", Daemon: "/nowhere", ConsentedAt: now}
	need(t, note.SaveConfig(a.state, a.config))
	put(t, filepath.Join(a.state, note.PolicyFile), `{"version":1,"include":["git.example.com/alpha/*"]}`)
	return a
}

// offered are the ids that a dry run lists.
func (a *archivist) offered(t *testing.T, args ...string) []string {
	t.Helper()
	code, out, errs := a.run(append([]string{"import", "--dry-run", "--json"}, args...)...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var o outlook
	need(t, json.Unmarshal([]byte(out), &o))
	ids := []string{}
	for _, p := range o.Sessions {
		ids = append(ids, p.ID)
	}
	return ids
}

func TestImportSaysWhatItWouldDo(t *testing.T) {
	a := newArchivist(t)
	before := files(t, a.dir)
	code, out, errs := a.run("import", "--dry-run")
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{"Of the moon", "git.example.com/alpha/tide", "Taken out, by rule: github-token 3.", "3 sessions of before init: 9 records would leave", "cannot be asked for the team's budget"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "ghp_0") {
		t.Error("the secret itself is printed")
	}
	if code, _, errs := a.run("import"); code != 1 || !strings.Contains(errs, "nobody to ask") {
		t.Errorf("without a terminal: exit %d, %s", code, errs)
	}
	a.Terminal = func() bool { return true }
	a.In = strings.NewReader("n\n")
	if code, _, errs := a.run("import"); code != 1 || !strings.Contains(errs, "nothing was imported") {
		t.Errorf("after a no: exit %d, %s", code, errs)
	}
	after := files(t, a.dir)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("something was changed: %s", diff)
	}
}

func TestImportChooses(t *testing.T) {
	a := newArchivist(t)
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"all":     {nil, sessionIDs},
		"project": {[]string{"--project", "git.example.com/*/moon"}, sessionIDs[1:2]},
		"session": {[]string{"--session", strings.ToUpper(sessionIDs[2])}, sessionIDs[2:]},
		"newest":  {[]string{"--limit", "2"}, sessionIDs[1:]},
		"since":   {[]string{"--since", now.AddDate(0, -1, -5).Format(time.DateOnly)}, sessionIDs[2:]},
		"until":   {[]string{"--until", now.AddDate(0, -2, 0).Format(time.DateOnly)}, sessionIDs[:2]},
		"folder":  {[]string{filepath.Join(a.projects, "-src-moon")}, sessionIDs[1:2]},
		"none":    {[]string{"--project", "git.example.com/beta/*"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, a.offered(t, tt.args...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, args := range [][]string{{"--since", "yesterday"}, {"--session", "../x"}, {"--limit", "-1"}, {"/nowhere"}} {
		if code, _, errs := a.run(append([]string{"import", "--dry-run"}, args...)...); code != 1 || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit %d, %s", args, code, errs)
		}
	}
}

// TestImportLeavesWhatThePluginSent: by its file, by the copy that migrate made,
// and by what undersong found when it wrote over the file.
func TestImportLeavesWhatThePluginSent(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, a *archivist){
		"its file": func(t *testing.T, a *archivist) {
			t.Helper()
			put(t, filepath.Join(a.dir, "src", "moon", ".letta", "claude", "session-"+sessionIDs[1]+".json"), fmt.Sprintf(`{"sessionId":%q,"lastProcessedIndex":2}`, sessionIDs[1]))
		},
		"the copy": func(t *testing.T, a *archivist) {
			t.Helper()
			put(t, filepath.Join(a.state, migratedDir, "0123456789abcdef", "session-"+sessionIDs[1]+".json"), fmt.Sprintf(`{"sessionId":%q,"lastProcessedIndex":2}`, sessionIDs[1]))
		},
		"found": func(t *testing.T, a *archivist) {
			t.Helper()
			open, err := spool.Open(spool.Options{Dir: filepath.Join(a.state, daemon.SessionsDir), Owner: "ada", Workstation: "ws-1"})
			need(t, err)
			s, err := open.Ensure(sessionIDs[1], now)
			need(t, err)
			ours, its := int64(1), int64(2)
			need(t, s.Update(func(state *spool.State) { state.WroteIndex, state.PluginIndex = &ours, &its }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArchivist(t)
			change(t, a)
			if diff := cmp.Diff([]string{sessionIDs[0], sessionIDs[2]}, a.offered(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			_, out, _ := a.run("import", "--dry-run")
			if !strings.Contains(out, "1 "+read.ReasonSent) {
				t.Errorf("it does not say why:\n%s", out)
			}
		})
	}
	t.Run("ours", func(t *testing.T) {
		a := newArchivist(t)
		put(t, filepath.Join(a.dir, "src", "moon", ".letta", "claude", "session-"+sessionIDs[1]+".json"), fmt.Sprintf(`{"sessionId":%q,"lastProcessedIndex":2}`, sessionIDs[1]))
		open, err := spool.Open(spool.Options{Dir: filepath.Join(a.state, daemon.SessionsDir), Owner: "ada", Workstation: "ws-1"})
		need(t, err)
		s, err := open.Ensure(sessionIDs[1], now)
		need(t, err)
		ours := int64(2)
		need(t, s.Update(func(state *spool.State) { state.WroteIndex = &ours }))
		if !slices.Contains(a.offered(t), sessionIDs[1]) {
			t.Error("what undersong wrote was taken for the plugin's")
		}
		need(t, s.Update(func(state *spool.State) { state.WroteIndex, state.WritingIndex = nil, &ours }))
		if !slices.Contains(a.offered(t), sessionIDs[1]) {
			t.Error("what undersong is about to write was taken for the plugin's")
		}
	})
}

// TestImportIsHandedOver: what was agreed to is kept for the daemon; a second
// import adds to it, and --stop drops it.
func TestImportIsHandedOver(t *testing.T) {
	a := newArchivist(t)
	// There is no daemon to be started here.
	if code, _, errs := a.run("import", "--yes", "--limit", "1"); code != 1 || !strings.Contains(errs, "the next hook does") {
		t.Errorf("exit %d, %s", code, errs)
	}
	planned := func() []string {
		h, err := daemon.LoadHistory(a.state, a.config)
		need(t, err)
		ids := []string{}
		for _, s := range h.Sessions {
			ids = append(ids, s.ID)
		}
		return ids
	}
	if diff := cmp.Diff(sessionIDs[2:], planned()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	a.env["CLAUDECODE"] = "1"
	if code, _, errs := a.run("import", "--yes"); code != 1 || !strings.Contains(errs, "a terminal of your own") {
		t.Errorf("the agent agrees: exit %d, %s", code, errs)
	}
	delete(a.env, "CLAUDECODE")
	_, _, _ = a.run("import", "--yes", "--session", sessionIDs[0])
	if diff := cmp.Diff([]string{sessionIDs[0], sessionIDs[2]}, planned()); diff != "" {
		t.Errorf("both are to be imported (-want +got):\n%s", diff)
	}
	if _, out, _ := a.run("import", "--status"); !strings.Contains(out, "0 of 2 sessions read") || !strings.Contains(out, "No daemon runs") {
		t.Errorf("the status is:\n%s", out)
	}
	if _, out, _ := a.run("status"); !strings.Contains(out, "0 of 2 sessions read") {
		t.Errorf("undersong status does not speak of it:\n%s", out)
	}
	if code, out, errs := a.run("import", "--stop"); code != 0 || !strings.Contains(out, "Nothing more is read") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if _, out, _ := a.run("import", "--status"); !strings.Contains(out, "Nothing is being imported") || len(planned()) != 0 {
		t.Errorf("after --stop:\n%s", out)
	}
	put(t, filepath.Join(a.state, "import.json"), "{")
	if code, _, errs := a.run("import", "--status"); code != 1 || !strings.Contains(errs, "--stop removes it") {
		t.Errorf("with a damaged file: exit %d, %s", code, errs)
	}
	if code, _, _ := a.run("import", "--stop"); code != 0 {
		t.Error("--stop does not remove it")
	}
	if _, err := os.Stat(filepath.Join(a.state, "import.json")); err == nil {
		t.Error("it is still there")
	}
}

func TestTheBudgetSaysHowLongItTakes(t *testing.T) {
	day := func(tokens, spent, spentByImports, daily int64, on time.Time) int64 {
		o := &outlook{Tokens: tokens}
		m := &v1alpha1.TeamMemory{}
		m.Spec.Budget.DailyTokens = &daily
		m.Status.Usage = &v1alpha1.DayUsage{Day: on.UTC().Format(time.DateOnly), Tokens: spent, ImportTokens: spentByImports}
		o.spend(m, now)
		return o.Budget.Days
	}
	for name, tt := range map[string]struct{ got, want int64 }{
		"today":             {day(200, 0, 0, 1000, now), 1},
		"a token more":      {day(201, 0, 0, 1000, now), 2},
		"spent by imports":  {day(200, 150, 150, 1000, now), 2},
		"spent by the team": {day(200, 1000, 0, 1000, now), 2},
		"yesterday's":       {day(200, 1000, 200, 1000, now.AddDate(0, 0, -1)), 1},
		"weeks":             {day(4000, 0, 0, 1000, now), 20},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d days, want %d", name, tt.got, tt.want)
		}
	}
}
