// Command letta serves the Letta stand-in in a cluster: rules, not a model. Its
// conversations are kept in a file, so that it may be restarted.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/undersong-dev/undersong/internal/letta/lettatest"
)

func main() {
	address := flag.String("address", ":8283", "where to listen")
	state := flag.String("state", "", "the file that keeps the conversations")
	delay := flag.Duration("delay", time.Second, "how long a turn takes")
	flag.Parse()
	if err := run(*address, *state, *delay); err != nil {
		fmt.Fprintln(os.Stderr, "letta:", err)
		os.Exit(1)
	}
}

// run serves until it is asked to stop. The key comes by the environment.
func run(address, state string, delay time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := lettatest.New(lettatest.Options{Key: os.Getenv("LETTA_KEY"), StateFile: state, Delay: delay})
	if err != nil {
		return err
	}
	if _, err := s.Start(ctx, address); err != nil {
		return err
	}
	<-ctx.Done()
	return s.Close()
}
