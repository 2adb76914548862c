package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
)

const (
	pluginSession  = "8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11"
	pluginSettings = `{"model":"x","enabledPlugins":{"claude-subconscious@letta":true,"other@shop":true}}`
)

// subconscious is a machine on which the plugin was at work: it sent the first
// lines of a transcript.
type subconscious struct {
	*machine
	state, project, transcript, settings string
	lines                                []string
}

func newSubconscious(t *testing.T) *subconscious {
	t.Helper()
	m := newMachine(t)
	p := &subconscious{
		machine: m, state: filepath.Join(m.dir, "state"), project: filepath.Join(m.dir, "src", "tide"),
		transcript: filepath.Join(m.dir, ".claude", "projects", "-src-tide", pluginSession+".jsonl"),
		settings:   filepath.Join(m.dir, ".claude", "settings.json"),
	}
	for i := range 6 {
		p.lines = append(p.lines, fmt.Sprintf(`{"type":"user","uuid":"u%d","cwd":%q,"message":{"role":"user","content":"x"}}`+"\n", i, p.project))
	}
	p.lines[1] = "torn\n" // no JSON: it has no index
	put(t, p.transcript, strings.Join(p.lines, ""))
	put(t, p.settings, pluginSettings)
	put(t, filepath.Join(p.project, ".letta", "claude", "conversations.json"), `{"`+pluginSession+`":{"conversationId":"conv-1","agentId":"agent-1"}}`)
	p.sent(t, 2)
	return p
}

// sent lets the plugin have sent up to an index.
func (p *subconscious) sent(t *testing.T, index int) {
	t.Helper()
	put(t, filepath.Join(p.project, ".letta", "claude", "session-"+pluginSession+".json"),
		fmt.Sprintf(`{"sessionId":%q,"conversationId":"conv-1","lastProcessedIndex":%d}`, pluginSession, index))
}

// configure is what init records; bytes of the transcript were there then.
func (p *subconscious) configure(t *testing.T, bytes int) {
	t.Helper()
	need(t, note.SaveConfig(p.state, note.Config{Owner: "ada", Namespace: "alpha", Memory: "main", Workstation: "ws-1", ConsentedAt: now}))
	put(t, filepath.Join(p.state, "baseline.json"), fmt.Sprintf(`{%q:%d}`, p.transcript, bytes))
}

// upTo is the offset behind the first n lines.
func (p *subconscious) upTo(n int) int64 { return int64(len(strings.Join(p.lines[:n], ""))) }

func (p *subconscious) baseline(t *testing.T) int64 {
	t.Helper()
	at, err := daemon.Baseline(p.state)
	need(t, err)
	return at(p.transcript)
}

// files returns every file below a folder.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	need(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			all[path] = get(t, path)
		}
		return err
	}))
	return all
}

func TestMigrateSaysAndChangesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		reason string
		change func(p *subconscious)
		want   []string
	}{
		"before init":  {"init withholds it all", func(*subconscious) {}, []string{"3 lines sent\n", "undersong init comes next", "claude-subconscious@letta"}},
		"all withheld": {"the baseline is further than the plugin", func(p *subconscious) { p.configure(t, int(p.upTo(6))) }, []string{"3 lines sent; none of them will be sent here"}},
		"further":      {"the plugin went on after init", func(p *subconscious) { p.configure(t, int(p.upTo(1))) }, []string{"3 lines sent; the last 2 lines of them will be withheld", "2 lines that the plugin has sent"}},
		"counts anew":  {"its SessionStart resets the index", func(p *subconscious) { p.sent(t, -1); p.configure(t, 0) }, []string{"nothing sent, or the plugin has lost count"}},
		"gone":         {"Claude Code deleted it", func(p *subconscious) { need(t, os.Remove(p.transcript)) }, []string{"its transcript is gone"}},
		"disabled":     {"nobody hears it twice", func(p *subconscious) { put(t, p.settings, `{"enabledPlugins":{"claude-subconscious@letta":false}}`) }, []string{"not enabled"}},
		"linked": {"a repository's link leads nowhere", func(p *subconscious) {
			need(t, os.Rename(filepath.Join(p.project, ".letta"), filepath.Join(p.dir, "moved")))
			need(t, os.Symlink(filepath.Join(p.dir, "moved"), filepath.Join(p.project, ".letta")))
		}, []string{"cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newSubconscious(t)
			tt.change(p)
			before := files(t, p.dir)
			code, out, errs := p.run("migrate", "--dry-run", "--project", p.project)
			if code != 0 {
				t.Fatalf("exit %d: %s", code, errs)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%s: there is no %q in:\n%s", tt.reason, want, out)
				}
			}
			if code, _, errs = p.run("migrate", "--project", p.project); code != 1 && !strings.Contains(out, "Nothing of") {
				t.Errorf("without a terminal: exit %d, %s", code, errs)
			}
			if diff := cmp.Diff(before, files(t, p.dir)); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMigrateFindsProjectsByTheirTranscripts: nobody needs to name them.
func TestMigrateFindsProjectsByTheirTranscripts(t *testing.T) {
	p := newSubconscious(t)
	if _, out, _ := p.run("migrate", "--dry-run"); !strings.Contains(out, "in "+p.project+"\n") || !strings.Contains(out, pluginSession) {
		t.Errorf("printed:\n%s", out)
	}
	if _, out, _ := newMachine(t).run("migrate"); !strings.Contains(out, "Nothing of claude-subconscious was found") {
		t.Errorf("printed:\n%s", out)
	}
	if code, _, errs := p.run("migrate", "--project", filepath.Join(p.dir, "nowhere")); code != 1 || !strings.Contains(errs, "no such folder") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// TestMigrate: what the plugin has sent is withheld, its files are kept and stay
// as they are, the plugin is disabled and nothing else, and again is nothing.
func TestMigrate(t *testing.T) {
	p := newSubconscious(t)
	p.configure(t, int(p.upTo(1)))
	letta := filepath.Join(p.project, ".letta")
	before := files(t, letta)
	p.Terminal = func() bool { return true }
	p.In = strings.NewReader("y\n")
	if code, out, errs := p.run("migrate", "--project", p.project); code != 0 || !strings.Contains(out, "are kept in") {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	if got := p.baseline(t); got != p.upTo(4) { // indexes 0 to 2 are lines 1, 3 and 4
		t.Errorf("baseline %d, want %d", got, p.upTo(4))
	}
	if diff := cmp.Diff(before, files(t, letta)); diff != "" {
		t.Errorf("the plugin's files (-want +got):\n%s", diff)
	}
	kept := map[string]string{}
	for path, text := range files(t, filepath.Join(p.state, "migrated")) {
		kept[filepath.Join(letta, "claude", filepath.Base(path))] = text
	}
	if diff := cmp.Diff(before, kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if got := get(t, p.settings+migrateSuffix); got != pluginSettings {
		t.Errorf("settings kept: %s", got)
	}
	want := "{\n  \"model\": \"x\",\n  \"enabledPlugins\": {\n    \"claude-subconscious@letta\": false,\n    \"other@shop\": true\n  }\n}\n"
	if diff := cmp.Diff(want, get(t, p.settings)); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}

	p.sent(t, -1) // what is kept is from before
	all := files(t, p.dir)
	if code, _, errs := p.run("migrate", "--project", p.project, "--yes"); code != 0 {
		t.Fatalf("again: %s", errs)
	}
	if diff := cmp.Diff(all, files(t, p.dir)); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
}

// TestMigrateASessionThatIsBeingRead: its cursor does not ask the baseline.
func TestMigrateASessionThatIsBeingRead(t *testing.T) {
	p := newSubconscious(t)
	p.configure(t, 0)
	options := spool.Options{Dir: filepath.Join(p.state, daemon.SessionsDir), Owner: "ada", Workstation: "ws-1"}
	change := func(cursor int64, wrote *int64) {
		t.Helper()
		open, err := spool.Open(options)
		need(t, err)
		session, err := open.Ensure(pluginSession, now)
		need(t, err)
		need(t, session.Update(func(state *spool.State) {
			state.Transcript, state.WroteIndex = p.transcript, wrote
			state.Cursors = map[string]read.Cursor{read.Main: {Path: p.transcript, Offset: cursor}}
		}))
	}
	for name, tt := range map[string]struct {
		reason string
		cursor int64
		wrote  *int64
		want   int64
	}{
		"behind":   {"lines 3 and 4 would go twice", p.upTo(2), nil, p.upTo(4)},
		"in front": {"both have sent them", p.upTo(5), nil, 0},
		"ours":     {"we wrote the index ourselves", p.upTo(2), new(int64(2)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			change(tt.cursor, tt.wrote)
			if code, _, errs := p.run("migrate", "--project", p.project, "--yes"); code != 0 {
				t.Fatal(errs)
			}
			states := spool.States(options.Dir)
			if len(states) != 1 {
				t.Fatalf("%d sessions", len(states))
			}
			behind := int64(0)
			for _, kept := range states[0].Cursors[read.Main].Kept {
				if kept.Reason == read.ReasonSent && kept.FromOffset == 0 {
					behind = kept.ToOffset
				}
			}
			if behind != tt.want {
				t.Errorf("%s: up to %d is withheld as sent, want %d", tt.reason, behind, tt.want)
			}
			need(t, os.RemoveAll(filepath.Join(p.state, "sent.json")))
		})
	}
}
