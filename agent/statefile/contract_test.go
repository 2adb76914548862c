package statefile_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/statefile"
)

// The eight points in which the files must agree with the plugin
// claude-subconscious, so that a session goes from one to the other and back.

func entries(t *testing.T, dir string) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(content(t, path(dir, "conversations.json"))), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func writeState(t *testing.T, dir string, s statefile.State) {
	t.Helper()
	if err := statefile.Write(dir, s); err != nil {
		t.Fatal(err)
	}
}

func index(t *testing.T, dir string) int64 {
	t.Helper()
	s, err := statefile.Read(dir, session)
	if err != nil {
		t.Fatal(err)
	}
	return s.LastProcessedIndex
}

// TestPoint1EntriesAreObjects: a bare id would have the plugin open a new
// conversation. Bare ids of older ones are read.
func TestPoint1EntriesAreObjects(t *testing.T) {
	dir := t.TempDir()
	write(t, path(dir, "conversations.json"), `{"`+session+`":"conv-old","other":"conv-2"}`)
	writeState(t, dir, full())
	want := map[string]any{"conversationId": full().ConversationID, "agentId": full().AgentID}
	if diff := cmp.Diff(map[string]any{session: want, "other": "conv-2"}, entries(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPoint2SessionNamesItself: the plugin saves to the name that is in the file.
func TestPoint2SessionNamesItself(t *testing.T) {
	dir := t.TempDir()
	write(t, path(dir, "session-"+session+".json"), `{"sessionId":"another","lastProcessedIndex":"x"}`)
	writeState(t, dir, full())
	var own map[string]any
	if err := json.Unmarshal([]byte(content(t, path(dir, "session-"+session+".json"))), &own); err != nil {
		t.Fatal(err)
	}
	if own["sessionId"] != session || own["conversationId"] != full().ConversationID || own["lastProcessedIndex"] != float64(full().LastProcessedIndex) {
		t.Errorf("%v", own)
	}
}

// TestPoint3NothingOfOursIsInTheFile: the plugin's SessionStart keeps four keys
// only; ours lie in the state directory.
func TestPoint3NothingOfOursIsInTheFile(t *testing.T) {
	dir := t.TempDir()
	writeState(t, dir, full())
	var own map[string]any
	if err := json.Unmarshal([]byte(content(t, path(dir, "session-"+session+".json"))), &own); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"sessionId", "conversationId", "lastProcessedIndex", "lastSeenMessageId", "startedAt"} {
		delete(own, key)
	}
	if len(own) > 0 {
		t.Errorf("keys that the plugin does not know: %v", own)
	}
}

// TestPoint4BlocksOnlyWhereTheyWereShown: without lastBlockValues the plugin
// takes the next prompt for the first.
func TestPoint4BlocksOnlyWhereTheyWereShown(t *testing.T) {
	dir := t.TempDir()
	writeState(t, dir, full())
	if blocks, err := statefile.Blocks(dir, session); err != nil || len(blocks) > 0 {
		t.Errorf("%v, %v", blocks, err)
	}
	for _, blocks := range []map[string]string{{"brief": "one", "pitfalls": "two"}, {"brief": "three"}} {
		if err := statefile.WriteBlocks(dir, session, blocks); err != nil {
			t.Fatal(err)
		}
	}
	writeState(t, dir, full())
	got, err := statefile.Blocks(dir, session)
	if diff := cmp.Diff(map[string]string{"brief": "three", "pitfalls": "two"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestPoint5TheSameBase: LETTA_HOME, with the user's folder expanded, else the
// nearest folder that has the session, else the working directory.
func TestPoint5TheSameBase(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	cwd := filepath.Join(home, "a", "b")
	if err := os.MkdirAll(cwd, 0o700); err != nil {
		t.Fatal(err)
	}
	for letta, want := range map[string]string{
		"": cwd, "~/letta": filepath.Join(home, "letta"), "$HOME/x": filepath.Join(home, "x"), "${HOME}": home,
	} {
		if got, err := statefile.Dir(cwd, letta, session); err != nil || got != want {
			t.Errorf("LETTA_HOME=%q: %s, %v; want %s", letta, got, err, want)
		}
	}
	writeState(t, filepath.Join(home, "a"), full())
	if got, err := statefile.Dir(cwd, "", session); err != nil || got != filepath.Join(home, "a") {
		t.Errorf("the nearest above: %s, %v", got, err)
	}
	for _, hostile := range []string{"../..", ".letta", "$OTHER/x", "~ada/x"} {
		if got, err := statefile.Dir(cwd, hostile, session); !errors.Is(err, statefile.ErrBase) {
			t.Errorf("LETTA_HOME=%q: %s, %v", hostile, got, err)
		}
	}
}

// TestPoint6NoOtherKeys: each key of conversations.json is taken for a session.
func TestPoint6NoOtherKeys(t *testing.T) {
	dir := t.TempDir()
	writeState(t, dir, full())
	if all := entries(t, dir); len(all) != 1 || all[session] == nil {
		t.Errorf("%v", all)
	}
}

// TestPoint7AnIndexThatWentBack is put right; one that the plugin brought further
// stays, and one that we wrote may fall with a new transcript.
func TestPoint7AnIndexThatWentBack(t *testing.T) {
	dir := t.TempDir()
	s := full()
	writeState(t, dir, s)
	ours := s.LastProcessedIndex
	s.Wrote = &ours
	plugin := func(index string) {
		write(t, path(dir, "session-"+session+".json"), `{"sessionId":"`+session+`","lastProcessedIndex":`+index+`}`)
	}
	plugin("-1") // what its SessionStart leaves
	writeState(t, dir, s)
	if got := index(t, dir); got != ours {
		t.Errorf("after a start of the plugin: %d", got)
	}
	plugin("60") // what its worker leaves
	writeState(t, dir, s)
	if got := index(t, dir); got != 60 {
		t.Errorf("the plugin was further: %d, and would send lines again", got)
	}
	plugin("41")
	s.LastProcessedIndex = 3 // another transcript took the place
	writeState(t, dir, s)
	if got := index(t, dir); got != 3 {
		t.Errorf("a new transcript: %d, and the plugin would stay silent", got)
	}
}

// TestPoint8TheSession goes to the plugin and back, and nothing is lost on the
// way: what each does not know, it keeps.
func TestPoint8TheSession(t *testing.T) {
	dir := t.TempDir()
	write(t, path(dir, "session-"+session+".json"),
		`{"sessionId":"`+session+`","conversationId":"conv-p","lastProcessedIndex":39,"startedAt":"2026-02-28T08:00:00.000Z","lastBlockValues":{"guidance":"g"},"future":[1]}`)
	s := full()
	writeState(t, dir, s)
	if got := index(t, dir); got != s.LastProcessedIndex {
		t.Errorf("index %d", got)
	}
	var own map[string]any
	if err := json.Unmarshal([]byte(content(t, path(dir, "session-"+session+".json"))), &own); err != nil {
		t.Fatal(err)
	}
	if own["startedAt"] != "2026-02-28T08:00:00.000Z" || own["future"] == nil || own["lastBlockValues"] == nil {
		t.Errorf("%v", own)
	}
}
