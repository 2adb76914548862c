// Command demo shows undersong at work on loopback: no account, no cluster.
//
// It starts a real kube-apiserver under the real policies, a real S3 server
// and a stand-in for Letta, or with -letta=appserver a real App Server, lets two developers work on two projects through
// the real hooks, shows what came of it, checks each stage, and ends with
// "demo: ok" or the stage that failed.
//
// With -dev it leaves the same stack running, with its state kept, and prints
// how to point kubectl and Claude Code at it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

func main() {
	dev := flag.Bool("dev", false, "leave the stack running, with its state kept over restarts, until Ctrl-C")
	dir := flag.String("dir", "", "folder of the stack: kept after the demo when given; with -dev .dev in the repository when empty")
	letta := flag.String("letta", "rules", "what keeps the memory: rules, a stand-in, or appserver, the real App Server that make letta-appserver fetches")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Stdout, *dev, *dir, *letta)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: failed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, dev bool, dir, letta string) (err error) {
	d := &demo{out: out}
	switch letta {
	case "rules":
	case "appserver":
		d.appServer = filepath.Join(tools.Root(), ".tools", "letta")
	default:
		return fmt.Errorf("-letta is %q, want rules or appserver", letta)
	}
	if dev {
		return d.keep(ctx, dir)
	}
	if dir == "" {
		temp, err := os.MkdirTemp("", "undersong-demo-")
		if err != nil {
			return err
		}
		dir = temp
		defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	}
	if err := d.play(ctx, dir); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted; everything was stopped")
		}
		d.logs(dir)
		return err
	}
	d.line("\ndemo: ok")
	return nil
}

// play runs the whole demo. Each stage has a name, which is what a failure is
// reported under.
func (d *demo) play(ctx context.Context, dir string) (err error) {
	d.head("Starting the parts (%s)", dir)
	d.stack, err = stack.Start(ctx, stack.Options{Dir: dir, Progress: d.out, AppServer: d.appServer})
	if err != nil {
		return stage("start", err)
	}
	defer d.stack.Stop() //nolint:contextcheck // stopping must outlive the context
	for _, s := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"team", d.makeTeam},
		{"controller", d.startController},
		{"init", d.initWorkstations},
		{"first session", d.firstSession},
		{"processed", d.processed},
		{"second session", d.secondSession},
		{"another project", d.otherProject},
		{"recorded sessions", d.recordedSessions},
		{"processed", d.processed},
		{"whisper", d.whisper},
		{"processed", d.processed},
		{"show", d.show},
		{"check store", d.checkStore},
		{"check conversations", d.checkConversations},
		{"check state files", d.checkStateFiles},
		{"check secrets", d.checkSecrets},
	} {
		if err := s.run(ctx); err != nil {
			return stage(s.name, err)
		}
	}
	return nil
}

func stage(name string, err error) error { return fmt.Errorf("stage %q: %w", name, err) }

// keep keeps a stack running for people.
func (d *demo) keep(ctx context.Context, dir string) error {
	if dir == "" {
		dir = filepath.Join(tools.Root(), ".dev")
		if d.appServer != "" {
			dir += "-appserver" // the memories of the two have nothing in common
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d.head("Starting the parts; their state is kept in %s", dir)
	var err error
	d.stack, err = stack.Start(ctx, stack.Options{Dir: dir, Keep: true, Progress: d.out, AppServer: d.appServer})
	if err != nil {
		return stage("start", err)
	}
	defer d.stack.Stop() //nolint:contextcheck // stopping must outlive the context
	if err := errors.Join(d.makeTeam(ctx), d.startController(ctx), d.initWorkstations(ctx)); err != nil {
		return err
	}
	d.explain(ctx)
	<-ctx.Done()
	d.line("\nStopping; the state stays in %s. make dev goes on where it was.", dir)
	return nil
}

// processedWithin bounds the wait for the controller; a second or two is
// usual.
const processedWithin = 90 * time.Second
