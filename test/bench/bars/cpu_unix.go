//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// cpu returns the time that this process has computed for so far, on all cores.
// Other programs take none of it, as they do of the time of day.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0 // it knows its own process
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peak returns the largest resident set that a process had, in bytes.
func peak(state *os.ProcessState) int64 {
	u, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(u.Maxrss) //nolint:unconvert // it is of other types elsewhere
	}
	return int64(u.Maxrss) << 10 //nolint:unconvert // it is of other types elsewhere
}
