// Command hookbench measures the hooks of Claude Code as whole processes.
//
//	hookbench gen  -size 10MB -out t.jsonl      synthetic Claude Code transcript
//	hookbench stub -addr 127.0.0.1:8283         stub of the Letta v1 REST API
//	hookbench run  -subject a.json [-subject b.json]   run every hook, print a table
//	hookbench bars                              the promises about the hook, in one table
//	hookbench seed                              what undersong-hook finds in its state directory
//	hookbench hold FILE                         hold a lock, as a daemon does
//
// It is tooling of this repository, no part of the product. All traffic stays on
// the loopback.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var errUsage = errors.New("usage: hookbench gen|stub|run|bars|seed|hold [flags]   (each takes -h)")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hookbench:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	switch name, args := args[0], args[1:]; name {
	case "gen":
		return cmdGen(args)
	case "stub":
		return cmdStub(ctx, args)
	case "run":
		return cmdRun(ctx, args)
	case "bars":
		return cmdBars(ctx, args)
	case "seed":
		return cmdSeed()
	case "hold":
		return cmdHold(ctx, args)
	}
	return errUsage
}

// now is the stopwatch of all measurements.
func now() time.Time { return time.Now() } //nolint:forbidigo // wall time is what is measured

// pause waits for other processes, which cannot tell when they are done.
func pause(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // they are polled
