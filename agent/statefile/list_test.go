package statefile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/undersong-dev/undersong/agent/statefile"
)

func TestList(t *testing.T) {
	dir := t.TempDir()
	for _, empty := range []string{dir, filepath.Join(dir, "nowhere")} {
		if got, err := statefile.List(empty); err != nil || len(got) > 0 {
			t.Errorf("%s: %v, %v", empty, got, err)
		}
	}
	write(t, path(dir, "conversations.json"), `{"a":"conv-a","../b":"conv-b","c":{"conversationId":"conv-c","agentId":"agent-c"}}`)
	write(t, path(dir, "session-c.json"), `{"sessionId":"c","lastProcessedIndex":7}`)
	write(t, path(dir, "session-d.json"), `{"sessionId":"d","lastProcessedIndex":1}`)
	write(t, path(dir, "session-e.json"), `{`)
	write(t, path(dir, "session-e.json.broken"), `{}`)
	if err := os.Symlink("session-d.json", path(dir, "session-f.json")); err != nil {
		t.Skip("no symbolic links here")
	}
	want := []statefile.State{
		{SessionID: "a", ConversationID: "conv-a", LastProcessedIndex: -1},
		{SessionID: "c", ConversationID: "conv-c", AgentID: "agent-c", LastProcessedIndex: 7},
		{SessionID: "d", LastProcessedIndex: 1},
	}
	got, err := statefile.List(dir)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestBackup: a copy that is there is from before, and stays.
func TestBackup(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	if n, err := statefile.Backup(dir, to); n != 0 || err != nil {
		t.Errorf("of nothing: %d, %v", n, err)
	}
	write(t, path(dir, "conversations.json"), `{}`)
	write(t, path(dir, "session-c.json"), `{"lastProcessedIndex":7}`)
	write(t, path(dir, "other.json"), `{}`)
	if err := os.Symlink("other.json", path(dir, "session-f.json")); err != nil {
		t.Skip("no symbolic links here")
	}
	if n, err := statefile.Backup(dir, to); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	write(t, path(dir, "session-c.json"), `{"lastProcessedIndex":-1}`)
	write(t, path(dir, "session-d.json"), `{"lastProcessedIndex":2}`)
	if n, err := statefile.Backup(dir, to); n != 1 || err != nil {
		t.Errorf("again: %d, %v", n, err)
	}
	if got := content(t, filepath.Join(to, "session-c.json")); got != `{"lastProcessedIndex":7}` {
		t.Errorf("kept %s", got)
	}
	info, err := os.Stat(filepath.Join(to, "session-d.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}
