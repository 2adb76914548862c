// Package parts starts the real API server and the real S3 server once for all
// tests of a package.
package parts

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/versity"
)

// Run starts both servers, puts them where cluster and s3 point, runs the tests
// of a TestMain, stops the servers, and returns the process's exit status. What
// keeps them from starting is written to errs.
func Run(errs io.Writer, tests interface{ Run() int }, cluster **kube.Cluster, s3 **versity.Server) int {
	ctx := context.Background()
	fail := func(err error) int {
		_, _ = fmt.Fprintln(errs, err) // there is nowhere else to say it
		return 1
	}
	dir, err := os.MkdirTemp("", "undersong-parts-")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary folder harms nobody
	if *cluster, err = kube.Start(ctx, kube.Options{}); err != nil {
		return fail(err)
	}
	defer (*cluster).Stop()
	if *s3, err = versity.Start(ctx, versity.Options{Dir: dir}); err != nil {
		return fail(err)
	}
	defer (*s3).Stop()
	return tests.Run()
}
