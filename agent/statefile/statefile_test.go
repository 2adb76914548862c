package statefile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/undersong-dev/undersong/agent/statefile"
)

const (
	session      = "8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11"
	other        = "11111111-4a1d-4d5e-9d58-2f0c6b7c1c11"
	conversation = "conversation-6a1"
	agent        = "agent-33333333-4a1d-4d5e-9d58-2f0c6b7c1c11"
)

var started = time.Date(2026, 3, 1, 12, 0, 0, 123e6, time.UTC)

func full() statefile.State {
	return statefile.State{
		SessionID: session, ConversationID: conversation, AgentID: agent,
		LastProcessedIndex: 41, LastSeenMessageID: "message-9", StartedAt: started,
	}
}

// path returns where a file lies, which the plugin and we must agree on.
func path(dir, name string) string { return filepath.Join(dir, ".letta", "claude", name) }

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const (
	wantSession = `{
  "conversationId": "conversation-6a1",
  "lastProcessedIndex": 41,
  "lastSeenMessageId": "message-9",
  "sessionId": "8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11",
  "startedAt": "2026-03-01T12:00:00.123Z"
}`
	wantConversations = `{
  "8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11": {
    "agentId": "agent-33333333-4a1d-4d5e-9d58-2f0c6b7c1c11",
    "conversationId": "conversation-6a1"
  }
}`
)

func TestWriteNew(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := statefile.Write(dir, full()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(wantSession, content(t, path(dir, "session-"+session+".json"))); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantConversations, content(t, path(dir, "conversations.json"))); diff != "" {
		t.Errorf("conversations (-want +got):\n%s", diff)
	}
	if got := content(t, path(dir, ".gitignore")); got != "*\n" {
		t.Errorf(".gitignore = %q", got)
	}
	entries, err := os.ReadDir(path(dir, ""))
	if err != nil || len(entries) != 3 {
		t.Errorf("files: %v, %v", entries, err)
	}
	if runtime.GOOS != "windows" {
		for _, e := range entries {
			if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
			}
		}
	}
	got, err := statefile.Read(dir, session)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

// TestUnchangedIsNotWritten: an idle session costs no write, and a reader no
// reload.
func TestUnchangedIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	if err := statefile.Write(dir, full()); err != nil {
		t.Fatal(err)
	}
	files := []string{path(dir, "session-"+session+".json"), path(dir, "conversations.json"), path(dir, ".gitignore")}
	var before []os.FileInfo
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		before = append(before, info)
	}
	if err := statefile.Write(dir, full()); err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		if info, err := os.Stat(f); err != nil || !os.SameFile(info, before[i]) {
			t.Errorf("%s was replaced: %v", filepath.Base(f), err)
		}
	}
}

// What the plugin writes: two blanks, no line end.
const (
	pluginConversations = `{
  "` + other + `": {
    "conversationId": "conversation-of-other",
    "agentId": "` + agent + `"
  },
  "legacy": "conversation-bare",
  "` + session + `": {
    "conversationId": "conversation-old",
    "agentId": "agent-old",
    "future": 1
  }
}`
	pluginSession = `{
  "lastProcessedIndex": 12,
  "sessionId": "` + session + `",
  "conversationId": "conversation-old",
  "startedAt": "2026-02-28T08:00:00.000Z",
  "lastBlockValues": {
    "persona": "a < b & \"c\"\n",
    "brief": ""
  },
  "lastSeenMessageId": "message-3",
  "future": {
    "number": 12345678901234567890
  }
}`
)

// TestFromThePluginAndBack: what the plugin wrote is read, continued without a
// loss, and in the plugin's shape.
func TestFromThePluginAndBack(t *testing.T) {
	dir := t.TempDir()
	write(t, path(dir, "conversations.json"), pluginConversations)
	write(t, path(dir, "session-"+session+".json"), pluginSession)

	got, err := statefile.Read(dir, session)
	if err != nil {
		t.Fatal(err)
	}
	want := statefile.State{
		SessionID: session, ConversationID: "conversation-old", AgentID: "agent-old", LastProcessedIndex: 12,
		LastSeenMessageID: "message-3", StartedAt: time.Date(2026, 2, 28, 8, 0, 0, 0, time.UTC),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}

	if err := statefile.Write(dir, full()); err != nil {
		t.Fatal(err)
	}
	wantConversations := `{
  "` + other + `": {
    "conversationId": "conversation-of-other",
    "agentId": "` + agent + `"
  },
  "` + session + `": {
    "agentId": "` + agent + `",
    "conversationId": "` + conversation + `",
    "future": 1
  },
  "legacy": "conversation-bare"
}`
	if diff := cmp.Diff(wantConversations, content(t, path(dir, "conversations.json"))); diff != "" {
		t.Errorf("conversations (-want +got):\n%s", diff)
	}
	wantSession := `{
  "conversationId": "` + conversation + `",
  "future": {
    "number": 12345678901234567890
  },
  "lastBlockValues": {
    "persona": "a < b & \"c\"\n",
    "brief": ""
  },
  "lastProcessedIndex": 41,
  "lastSeenMessageId": "message-9",
  "sessionId": "` + session + `",
  "startedAt": "2026-02-28T08:00:00.000Z"
}`
	if diff := cmp.Diff(wantSession, content(t, path(dir, "session-"+session+".json"))); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}

	// As the plugin reads it: types matter, a string would be a legacy entry.
	var conversations map[string]any
	if err := json.Unmarshal([]byte(content(t, path(dir, "conversations.json"))), &conversations); err != nil {
		t.Fatal(err)
	}
	if _, object := conversations[session].(map[string]any); !object {
		t.Errorf("entry = %v", conversations[session])
	}

	// The plugin's SessionStart drops all but four keys and starts over.
	write(t, path(dir, "session-"+session+".json"), `{
  "sessionId": "`+session+`",
  "conversationId": "`+conversation+`",
  "lastProcessedIndex": -1,
  "startedAt": "2026-03-02T08:00:00.000Z"
}`)
	got, err = statefile.Read(dir, session)
	if err != nil || got.LastProcessedIndex != -1 || got.AgentID != agent || got.LastSeenMessageID != "" {
		t.Errorf("after the plugin's start: %+v, %v", got, err)
	}
}

func TestLegacyEntry(t *testing.T) {
	dir := t.TempDir()
	write(t, path(dir, "conversations.json"), `{"`+session+`": "conversation-bare"}`)
	write(t, path(dir, "session-"+session+".json"), `{"lastProcessedIndex": 3, "sessionId": "`+session+`"}`)
	got, err := statefile.Read(dir, session)
	if err != nil || got.ConversationID != "conversation-bare" || got.AgentID != "" || got.LastProcessedIndex != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := statefile.Write(dir, statefile.State{SessionID: session, AgentID: agent, LastProcessedIndex: 3}); err != nil {
		t.Fatal(err)
	}
	got, err = statefile.Read(dir, session)
	if err != nil || got.ConversationID != "conversation-bare" || got.AgentID != agent {
		t.Errorf("as an object: %+v, %v", got, err)
	}
	if strings.Contains(content(t, path(dir, "conversations.json")), `"`+session+`": "`) {
		t.Error("the bare string is still there")
	}
}

func TestNothingKnownYet(t *testing.T) {
	dir := t.TempDir()
	if err := statefile.Write(dir, statefile.State{SessionID: session, LastProcessedIndex: -7}); err != nil {
		t.Fatal(err)
	}
	want := "{\n  \"lastProcessedIndex\": -1,\n  \"sessionId\": \"" + session + "\"\n}"
	if diff := cmp.Diff(want, content(t, path(dir, "session-"+session+".json"))); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(path(dir, "conversations.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an entry without ids: %v", err)
	}
	// And what is known stays when less is said.
	if err := statefile.Write(dir, full()); err != nil {
		t.Fatal(err)
	}
	if err := statefile.Write(dir, statefile.State{SessionID: session, LastProcessedIndex: 50}); err != nil {
		t.Fatal(err)
	}
	wanted := full()
	wanted.LastProcessedIndex = 50
	got, err := statefile.Read(dir, session)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

func TestReadOddValues(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		session string
		want    int64
		err     error
	}{
		"no index":     {reason: "nothing processed", session: `{"sessionId":"x"}`, want: -1},
		"null index":   {reason: "nothing processed", session: `{"lastProcessedIndex":null}`, want: -1},
		"text index":   {reason: "not a number", session: `{"lastProcessedIndex":"5"}`, want: -1},
		"large index":  {reason: "no file has so many lines", session: `{"lastProcessedIndex":1e300}`, want: -1},
		"below none":   {reason: "there is no such line", session: `{"lastProcessedIndex":-2}`, want: -1},
		"exponent":     {reason: "the same number", session: `{"lastProcessedIndex":1.2e1}`, want: 12},
		"odd types":    {reason: "as good as absent", session: `{"lastProcessedIndex":1,"conversationId":5,"lastSeenMessageId":{},"startedAt":"soon"}`, want: 1},
		"torn":         {reason: "a writer was killed", session: `{"lastProcessedIndex":5`, want: -1, err: statefile.ErrBroken},
		"empty":        {reason: "the disk was full", session: ``, want: -1, err: statefile.ErrBroken},
		"null":         {reason: "no object", session: `null`, want: -1, err: statefile.ErrBroken},
		"array":        {reason: "no object", session: `[1]`, want: -1, err: statefile.ErrBroken},
		"two objects":  {reason: "two writers at once", session: `{"lastProcessedIndex":5}{}`, want: -1, err: statefile.ErrBroken},
		"past the end": {reason: "bounded", session: `{"x":"` + strings.Repeat("x", 16<<20) + `"}`, want: -1, err: statefile.ErrBroken},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, path(dir, "conversations.json"), wantConversations)
			write(t, path(dir, "session-"+session+".json"), tc.session)
			got, err := statefile.Read(dir, session)
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			want := statefile.State{SessionID: session, ConversationID: conversation, AgentID: agent, LastProcessedIndex: tc.want}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if tc.err == nil {
				return
			}
			// Healed by the next write, with what was there kept.
			if err := statefile.Write(dir, full()); err != nil {
				t.Fatal(err)
			}
			if got, err := statefile.Read(dir, session); err != nil || !cmp.Equal(full(), got) {
				t.Errorf("%s: healed: %+v, %v", tc.reason, got, err)
			}
			if content(t, path(dir, "session-"+session+".json.broken")) != tc.session {
				t.Errorf("%s: what was broken is gone", tc.reason)
			}
		})
	}
}

func TestBrokenConversationsAreHealed(t *testing.T) {
	dir := t.TempDir()
	write(t, path(dir, "conversations.json"), `{"`+other+`": {"conver`)
	if err := statefile.Write(dir, full()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantConversations, content(t, path(dir, "conversations.json"))); diff != "" {
		t.Errorf("conversations (-want +got):\n%s", diff)
	}
	if !strings.Contains(content(t, path(dir, "conversations.json.broken")), other) {
		t.Error("what was broken is gone")
	}
}

func TestReadWithoutFiles(t *testing.T) {
	got, err := statefile.Read(t.TempDir(), session)
	if !errors.Is(err, fs.ErrNotExist) || got.LastProcessedIndex != -1 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := statefile.Read(filepath.Join(t.TempDir(), "gone"), session); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestTwoSessionsAtOnce: both entries are there in the end.
func TestTwoSessionsAtOnce(t *testing.T) {
	dir := t.TempDir()
	const sessions = 12
	var wg sync.WaitGroup
	for n := range sessions {
		wg.Go(func() {
			s := full()
			s.SessionID = fmt.Sprintf("session-%d", n)
			for i := range int64(5) {
				s.LastProcessedIndex = i
				if err := statefile.Write(dir, s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var conversations map[string]any
	if err := json.Unmarshal([]byte(content(t, path(dir, "conversations.json"))), &conversations); err != nil {
		t.Fatal(err)
	}
	if len(conversations) != sessions {
		t.Errorf("%d entries, want %d", len(conversations), sessions)
	}
}

func TestWriteRefuses(t *testing.T) {
	for _, id := range []string{"", "..", "../x", "a/b", `a\b`, "a b"} {
		dir := t.TempDir()
		s := full()
		s.SessionID = id
		if err := statefile.Write(dir, s); !errors.Is(err, statefile.ErrSession) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := statefile.Read(dir, id); !errors.Is(err, statefile.ErrSession) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := statefile.Dir(dir, "", id); !errors.Is(err, statefile.ErrSession) {
			t.Errorf("%q: %v", id, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%q: %v, %v", id, entries, err)
		}
	}
}

// TestLinksLeadNowhere: a repository can contain symbolic links.
func TestLinksLeadNowhere(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links need a privilege on Windows")
	}
	file := "session-" + session + ".json"
	for name, tc := range map[string]struct {
		reason string
		link   func(dir, outside string) error
		writes bool
	}{
		"state folder": {reason: "leads out", link: func(dir, outside string) error {
			return os.Symlink(outside, filepath.Join(dir, ".letta"))
		}},
		"relative": {reason: "leads out", link: func(dir, outside string) error {
			return os.Symlink(filepath.Join("..", filepath.Base(outside)), filepath.Join(dir, ".letta"))
		}},
		"inner folder": {reason: "leads out", link: func(dir, outside string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, ".letta"), 0o700), os.Symlink(outside, filepath.Join(dir, ".letta", "claude")))
		}},
		"the file": {reason: "is replaced, not followed", writes: true, link: func(dir, outside string) error {
			return errors.Join(os.MkdirAll(path(dir, ""), 0o700), os.Symlink(filepath.Join(outside, "claude", "x"), path(dir, file)))
		}},
		"the ignore file": {reason: "is left alone", writes: true, link: func(dir, outside string) error {
			return errors.Join(os.MkdirAll(path(dir, ""), 0o700), os.Symlink(filepath.Join(outside, "new"), path(dir, ".gitignore")))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dir, outside := filepath.Join(base, "project"), filepath.Join(base, "outside")
			write(t, filepath.Join(outside, "claude", "x"), `{"secret":"theirs"}`)
			if err := errors.Join(os.Mkdir(dir, 0o700), tc.link(dir, outside)); err != nil {
				t.Fatal(err)
			}
			err := statefile.Write(dir, full())
			if (err == nil) != tc.writes {
				t.Errorf("%s: %v", tc.reason, err)
			}
			var names []string
			werr := filepath.WalkDir(outside, func(path string, _ fs.DirEntry, err error) error {
				names = append(names, filepath.Base(path))
				return err
			})
			if werr != nil {
				t.Fatal(werr)
			}
			if diff := cmp.Diff([]string{"outside", "claude", "x"}, names); diff != "" {
				t.Errorf("%s: outside (-want +got):\n%s", tc.reason, diff)
			}
			if got := content(t, filepath.Join(outside, "claude", "x")); got != `{"secret":"theirs"}` {
				t.Errorf("%s: outside is %q", tc.reason, got)
			}
			if tc.writes && strings.Contains(content(t, path(dir, file)), "theirs") {
				t.Errorf("%s: read from outside", tc.reason)
			}
		})
	}
}

func TestDir(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	project := filepath.Join(home, "project")
	deep := filepath.Join(project, "a", "b")
	elsewhere := filepath.Join(home, "elsewhere")
	for _, dir := range []string{deep, elsewhere} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{project, elsewhere} {
		if err := statefile.Write(dir, full()); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		reason            string
		cwd, letta, other string
		id                string
		want              string
		err               error
	}{
		"here":              {reason: "the file is here", cwd: project, want: project},
		"drifted":           {reason: "the agent changed its folder", cwd: deep, want: project},
		"drifted and gone":  {reason: "the folder was removed", cwd: filepath.Join(deep, "gone"), want: project},
		"new session":       {reason: "no file of it anywhere", cwd: deep, id: other, want: deep},
		"started elsewhere": {reason: "the project folder has it", cwd: home, other: elsewhere, want: elsewhere},
		"nearest wins":      {reason: "over the project folder", cwd: deep, other: elsewhere, want: project},
		"relative project":  {reason: "is not asked", cwd: home, other: "elsewhere", want: home},
		"relative cwd":      {reason: "names no folder", cwd: "x", err: statefile.ErrBase},
		"LETTA_HOME":        {reason: "no search", cwd: deep, letta: filepath.Join(home, "l"), want: filepath.Join(home, "l")},
		"tilde":             {reason: "expanded", cwd: deep, letta: "~/l", want: filepath.Join(home, "l")},
		"only tilde":        {reason: "expanded", cwd: deep, letta: "~", want: home},
		"HOME":              {reason: "expanded", cwd: deep, letta: "$HOME/l", want: filepath.Join(home, "l")},
		"braces":            {reason: "expanded", cwd: deep, letta: "${HOME}/l/../m", want: filepath.Join(home, "m")},
		"other user":        {reason: "not expanded, so refused", cwd: deep, letta: "~bob/l", err: statefile.ErrBase},
		"other variable":    {reason: "not expanded, so refused", cwd: deep, letta: "$HOMEX/l", err: statefile.ErrBase},
		"relative letta":    {reason: "would move with the agent", cwd: deep, letta: "../..", err: statefile.ErrBase},
	} {
		t.Run(name, func(t *testing.T) {
			id := tc.id
			if id == "" {
				id = session
			}
			got, err := statefile.Dir(tc.cwd, tc.letta, id, tc.other)
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if got != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
			if err == nil {
				if info, serr := os.Stat(got); tc.letta != "" && (serr != nil || !info.IsDir()) {
					t.Errorf("%s: LETTA_HOME was not made: %v", tc.reason, serr)
				}
				if want := path(got, "session-"+id+".json"); statefile.Path(got, id) != want {
					t.Errorf("path = %s, want %s", statefile.Path(got, id), want)
				}
			}
		})
	}
}
