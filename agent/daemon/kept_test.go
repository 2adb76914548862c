package daemon

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/undersong-dev/undersong/agent/spool"
)

// TestWhatWasWithheldStaysSo: a rule kept the morning here, and is gone in the
// afternoon. However the session is read again, the morning stays.
func TestWhatWasWithheldStaysSo(t *testing.T) {
	for name, again := range map[string]func(e *evening, path string){
		"reset": func(e *evening, _ string) {
			e.must(spool.Reset(spool.Options{Dir: filepath.Join(e.home, SessionsDir), Owner: e.config.Owner, Workstation: e.config.Workstation}, e.talks[0].id, "", nil))
		},
		"the transcript is written anew": func(e *evening, path string) {
			text, err := os.ReadFile(path)
			e.must(err)
			e.must(os.WriteFile(path, text[slices.Index(text, '\n')+1:], 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvening(t, rand.New(rand.NewPCG(1, 1)))
			e.begin()
			path, optOut := e.talks[0].streams[0].path, filepath.Join(e.cwd, ".undersong.yaml")
			e.must(os.MkdirAll(filepath.Dir(path), 0o700))
			say := func(ids ...string) {
				t.Helper()
				file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
				e.must(err)
				for _, id := range ids {
					e.clock.Step(time.Minute)
					_, err = fmt.Fprintf(file, "{\"type\":\"user\",\"uuid\":%q,\"sessionId\":%q,\"cwd\":%q,\"timestamp\":%q,\"message\":{\"content\":\"words of x\"}}\n",
						id, e.talks[0].id, e.cwd, e.clock.Now().Format(time.RFC3339))
					e.must(err)
				}
				e.must(file.Close())
				e.hook(e.talks[0], eventStop)
				e.read()
			}
			say("first", "second")
			e.must(os.WriteFile(optOut, []byte("capture: off\n"), 0o600))
			say("morning")
			e.must(os.Remove(optOut))
			say("noon")
			e.must(os.WriteFile(optOut, []byte("capture: off\n"), 0o600))
			say("siesta") // it waits for the next that leaves
			e.must(os.Remove(optOut))
			again(e, path)
			e.restart()
			say("afternoon")
			if e.got["afternoon"] != 1 || e.got["noon"] < 1 || e.got["second"] != 2 {
				t.Errorf("heard is %v", e.got)
			}
			if e.got["morning"]+e.got["siesta"] > 0 {
				t.Errorf("what was withheld was heard: %v", e.got)
			}
		})
	}
}
