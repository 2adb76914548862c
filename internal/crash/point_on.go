//go:build crashpoints

package crash

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var hits atomic.Int64

// Point kills the process if UNDERSONG_CRASH names this point. The value may
// end in :n, then the n-th time counts.
func Point(name string) {
	want, nth, counted := strings.Cut(os.Getenv("UNDERSONG_CRASH"), ":")
	if want != name {
		return
	}
	n := int64(1)
	if counted {
		n, _ = strconv.ParseInt(nth, 10, 64) // a wrong number never matches
	}
	if hits.Add(1) != n {
		return
	}
	if mark := os.Getenv("UNDERSONG_CRASH_MARK"); mark != "" {
		if err := os.WriteFile(mark, []byte(name), 0o600); err != nil {
			return // without the mark the test could not tell; it will fail
		}
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // cannot fail for our own process
	select {}
}
