// Command undersong connects a workstation to its team's memory: init, status
// and the daemon that hooks start. Package agent/cli has the commands.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/undersong-dev/undersong/agent/cli"
)

// version is set by the release build.
var version = ""

func main() {
	// What the Kubernetes client prints by itself is for its developers, and
	// may quote what a server said.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetLogger(logr.Discard())

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, cli.NewSystem(versionOf()), os.Args[1:])
	stop()
	os.Exit(code)
}

// versionOf is the version of this binary: of the release, or of the module.
func versionOf() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
