package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/undersong-dev/undersong/agent/daemon"
)

func TestLogs(t *testing.T) {
	m := newMachine(t)
	if code, _, errs := m.run("logs"); code == 0 || !strings.Contains(errs, "no daemon has run here") {
		t.Errorf("without a log: exit %d, %s", code, errs)
	}
	path := filepath.Join(m.dir, "state", daemon.LogFile)
	old := time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)
	fresh := time.Now().UTC().Format(time.RFC3339)
	put(t, path+".1", `{"time":"`+old+`","level":"INFO","msg":"Starting","version":"1"}`+"\n")
	put(t, path, `{"time":"`+fresh+`","level":"WARN","msg":"Uploading\u001b[31m","segments":2}`+"\n"+"not json\n")
	_, out, _ := m.run("logs")
	for _, want := range []string{"Starting  version=1", "WARN  Uploading[31m  segments=2", "not json"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in:\n%q", want, out)
		}
	}
	if _, out, _ = m.run("logs", "--since", "1h"); strings.Contains(out, "Starting") || !strings.Contains(out, "Uploading") {
		t.Errorf("--since 1h:\n%s", out)
	}
	if _, out, _ = m.run("logs", "-n", "1"); strings.Count(out, "\n") != 1 {
		t.Errorf("-n 1:\n%s", out)
	}
	if _, out, _ = m.run("logs", "--json"); !strings.Contains(out, `"msg":"Starting"`) {
		t.Errorf("--json:\n%s", out)
	}
}

// TestLogsFollow: what is added is shown once, also after the log was moved
// aside, and a line in two pieces is one line.
func TestLogsFollow(t *testing.T) {
	m := newMachine(t)
	path := filepath.Join(m.dir, "state", daemon.LogFile)
	put(t, path, `{"msg":"one"}`+"\n")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.logs(ctx, logsFlags{follow: true, tail: 100}) }()
		add := func(text string) {
			synctest.Wait()
			file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = file.WriteString(text)
			_ = file.Close()
			time.Sleep(2 * followEvery) // of the bubble's clock
			synctest.Wait()
		}
		add(`{"msg":"tw`)
		add(`o"}` + "\n")
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		add(`{"msg":"3"}` + "\n")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for _, want := range []string{"one", "two", "3"} {
		if n := strings.Count(m.out.String(), want); n != 1 {
			t.Errorf("%q is shown %d times, want once:\n%s", want, n, m.out.String())
		}
	}
}
