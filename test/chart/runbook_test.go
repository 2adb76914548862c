//go:build envtest

package chart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/runbook"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// asAWS has the test's binary stand in for the program that copies buckets.
const asAWS = "UNDERSONG_TEST_AS_AWS"

func TestMain(m *testing.M) {
	if os.Getenv(asAWS) == "" {
		os.Exit(m.Run())
	}
	if err := syncBuckets(context.Background(), os.Args[1:]); err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error()) // nobody left to tell
		os.Exit(1)
	}
}

// syncBuckets is aws s3 sync SOURCE TARGET [--exclude FOLDER/*], as far as the
// pages need it.
func syncBuckets(ctx context.Context, args []string) error {
	if len(args) < 4 || args[0] != "s3" || args[1] != "sync" {
		return fmt.Errorf("aws %q: not a call that the test knows", args)
	}
	exclude := ""
	if rest := args[4:]; len(rest) == 2 && rest[0] == "--exclude" && strings.HasSuffix(rest[1], "/*") {
		exclude = strings.TrimSuffix(rest[1], "*")
	} else if len(rest) > 0 {
		return fmt.Errorf("aws %q: not flags that the test knows", rest)
	}
	var pair [2]*store.Bucket
	for n, url := range args[2:4] {
		bucket, err := store.Open(store.Options{
			Endpoint: os.Getenv("AWS_ENDPOINT_URL"), Bucket: strings.TrimPrefix(url, "s3://"),
			AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
		})
		if err != nil {
			return err
		}
		pair[n] = bucket
	}
	for info, err := range pair[0].List(ctx, "") {
		if err != nil {
			return err
		}
		if exclude != "" && strings.HasPrefix(info.Key, exclude) {
			continue
		}
		data, err := pair[0].Get(ctx, info.Key, segment.MaxPacked)
		if err == nil {
			err = pair[1].Put(ctx, info.Key, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// followed is a page that is followed by whoever installed, with one thread that
// goes on meanwhile.
type followed struct {
	*installed
	made *stack.Team
	env  []string
	fill map[string]string
	ctl  *stack.Process
	s    *replay.Session
	said []string
	// gone are the lines that were delivered, and are in no copy of the archive.
	gone int64
}

// run runs the lines under a heading of docs/install.md, and f before each.
func (f *followed) run(heading string, before func(line string)) {
	f.t.Helper()
	lines, err := runbook.Commands("install.md", heading)
	f.must(err)
	for _, line := range lines {
		line = runbook.Fill(line, f.fill)
		if before != nil {
			before(line)
		}
		cmd := exec.CommandContext(f.t.Context(), "bash", "-euo", "pipefail", "-c", line)
		cmd.Env, cmd.Dir = f.env, filepath.Dir(f.values)
		out, err := cmd.CombinedOutput()
		f.t.Logf("$ %s\n%s", line, out)
		if err != nil {
			f.t.Fatalf("%s: %v", line, err)
		}
	}
}

// controller starts the controller anew, as its Deployment does.
func (f *followed) controller(flags ...string) {
	f.t.Helper()
	if f.ctl != nil {
		f.must(f.ctl.Stop())
	}
	f.parts.ControllerFlags = flags
	var err error
	f.ctl, err = f.parts.StartController(f.t.Context())
	f.must(err)
}

// speak is one turn of the thread, which nobody waits for.
func (f *followed) speak(words string) {
	f.t.Helper()
	f.said = append(f.said, words, "Heard: "+words)
	f.turn(f.s, words, "Heard: "+words)
}

// wholeAndOnce waits until all is processed, and checks that nothing is lost and
// nothing was told twice.
func (f *followed) wholeAndOnce(after string) {
	f.t.Helper()
	for _, ses := range f.settled(f.made, f.s.Lines()) {
		if ses.Status.LostLines != 0 || ses.Status.Lines != f.s.Lines() {
			f.t.Errorf("%s: %d of %d lines are processed, %d lost", after, ses.Status.Lines, f.s.Lines(), ses.Status.LostLines)
		}
	}
	bucket, err := f.made.Open()
	f.must(err)
	kept, err := stack.ArchiveLines(f.t.Context(), bucket, segment.ArchiveOf(team))
	f.must(err)
	if want := f.s.Lines() - f.gone; kept != want {
		f.t.Errorf("%s: the archive has %d lines, want %d", after, kept, want)
	}
	told := stack.Told(f.parts.Letta.Conversations(), team)
	for n, words := range f.said {
		want := 1
		if n%2 == 0 {
			want = 2 // the answer repeats them
		}
		if got := strings.Count(told, words); got != want {
			f.t.Errorf("%s: Letta has %d times, want %d: %s", after, got, want, words)
		}
	}
}

// cluster stops the API server, does something to its data, and starts it again.
func (f *followed) cluster(between func(dir string)) {
	f.t.Helper()
	f.parts.Cluster.Stop()
	dir := filepath.Join(f.parts.Dir, "kube")
	between(dir)
	var err error
	f.parts.Cluster, err = kube.Start(context.WithoutCancel(f.t.Context()), kube.Options{Dir: dir, Bare: true})
	f.must(err)
	f.parts.Admin, err = f.parts.Cluster.Client(f.parts.Cluster.Admin())
	f.must(err)
}

// TestRunbooksOfInstall follows docs/install.md, word by word, through an upgrade
// and a rollback, a backup, and three losses. One session goes on all the time.
func TestRunbooksOfInstall(t *testing.T) {
	ctx := t.Context()
	i := start(t, "main")
	i.must(i.parts.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}))
	made, err := i.parts.Furnish(ctx, team, "main", i.parts.LettaServer())
	i.must(err)
	const backup = team + "-backup"
	i.must(i.parts.S3.MakeBucket(ctx, backup))
	work := filepath.Dir(i.values)
	i.must(os.Symlink(filepath.Join(tools.Root(), "charts"), filepath.Join(work, "charts")))
	shims := filepath.Join(work, "shims")
	i.must(os.Mkdir(shims, 0o700))
	self, err := os.Executable()
	i.must(err)
	i.must(os.WriteFile(filepath.Join(shims, "aws"), []byte("#!/bin/sh\n"+asAWS+"=1 exec '"+self+"' \"$@\"\n"), 0o700))
	home := filepath.Join(work, "home")
	i.must(os.Mkdir(home, 0o700))
	f := &followed{installed: i, made: made, fill: map[string]string{"bucket": made.Bucket, "backup": backup}, env: []string{
		"PATH=" + shims + ":" + i.bin + ":" + filepath.Join(tools.Root(), ".tools", "bin") + ":/usr/bin:/bin", "HOME=" + home, "KUBECONFIG=" + i.kubeconfig,
		"AWS_ENDPOINT_URL=" + i.parts.S3.Endpoint, "AWS_ACCESS_KEY_ID=" + i.parts.S3.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + i.parts.S3.SecretAccessKey,
	}}
	i.must(i.helm("install", release, chart(), "--values", i.values, "--create-namespace"))
	i.must(i.parts.Cluster.Enforced(ctx))
	f.controller()
	i.must(i.parts.Admin.Create(ctx, &v1alpha1.MemoryBlock{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: v1alpha1.MemoryBlockName("main", "", "brief")},
		Spec:       v1alpha1.MemoryBlockSpec{MemoryRef: v1alpha1.LocalRef{Name: "main"}, Label: "brief", Mode: v1alpha1.BlockPinned, Value: "The lantern must be lit before dusk."},
	}))
	_, f.s = i.join(made, "ada")
	_, err = f.s.Start(ctx, "startup")
	i.must(err)
	f.speak("The harbour is deep.")
	f.wholeAndOnce("at first")

	// The version before had other CRDs.
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	i.must(i.parts.Admin.Get(ctx, types.NamespacedName{Name: "sessions.undersong.dev"}, crd))
	i.must(i.parts.Admin.Patch(ctx, crd, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"undersong.dev/schema":"old"}}}`))))
	if err := i.helm("upgrade", release, chart(), "--values", i.values); err == nil {
		t.Error("the upgrade goes without the line before it")
	}
	before := i.settled(made, f.s.Lines())
	f.run("## Upgrade, roll back", func(line string) {
		if strings.HasPrefix(line, "helm rollback") {
			f.controller()
			i.same(before, made)
			f.speak("The tide comes at noon.")
			f.wholeAndOnce("after the upgrade")
			before = i.settled(made, f.s.Lines())
		}
	})
	f.controller()
	i.same(before, made)
	f.speak("The gulls are loud.")
	f.wholeAndOnce("after the rollback")

	f.run("### Back up", nil)
	kept := f.s.Lines()
	old := filepath.Join(t.TempDir(), "kube")
	f.cluster(func(dir string) { i.must(os.CopyFS(old, os.DirFS(dir))) })
	f.controller()
	f.speak("The fog lifts late.")
	f.wholeAndOnce("after the backup")

	// etcd of before what was said last.
	f.must(f.ctl.Stop())
	f.ctl = nil
	late := f.s.Lines()
	f.cluster(func(dir string) {
		i.must(os.RemoveAll(dir))
		i.must(os.Rename(old, dir))
	})
	if fell := i.sessions(made); len(fell) != 1 || fell[0].Spec.Lines >= late {
		t.Fatalf("etcd is not that of before: %+v", fell)
	}
	f.run("### etcd was restored", nil)
	f.controller(i.flags()...)
	f.speak("The boats are in.")
	f.wholeAndOnce("after etcd was restored")

	// The bucket is gone, and the backup has what was there before the last two,
	// which the memory knows.
	f.gone = f.s.Lines() - kept
	bucket, err := made.Open()
	i.must(err)
	f.run("### The bucket was restored", func(line string) {
		switch {
		case strings.Contains(line, `"All"`):
			for info, err := range bucket.List(ctx, "") {
				i.must(err)
				i.must(bucket.Delete(ctx, info.Key))
			}
		case strings.Contains(line, `"None"`):
			f.controller()
		}
	})
	f.speak("The rope is wet.")
	f.wholeAndOnce("after the bucket was restored")
	i.must(stack.Eventually(ctx, within, func() error {
		var events corev1.EventList
		err := i.parts.Admin.List(ctx, &events, client.InNamespace(team))
		if err == nil && !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == "ArchiveBehind" }) {
			err = errors.New("no event says that the bucket is an older one")
		}
		return err
	}))

	// Everything that people made is deleted, and the Sessions with it.
	for _, kind := range []client.Object{&v1alpha1.Session{}, &v1alpha1.TeamMemory{}, &v1alpha1.MemoryBlock{}} {
		i.must(i.parts.Admin.DeleteAllOf(ctx, kind, client.InNamespace(team)))
	}
	f.run("### The objects are gone", nil)
	f.speak("The lamp is lit.")
	f.wholeAndOnce("after the objects were gone")
	pinned := &v1alpha1.MemoryBlock{}
	i.must(i.parts.Admin.Get(ctx, types.NamespacedName{Namespace: team, Name: v1alpha1.MemoryBlockName("main", "", "brief")}, pinned))
	if pinned.Spec.Value == "" {
		t.Error("what was pinned is gone")
	}
}

// sessions are the team's Sessions as they are.
func (i *installed) sessions(made *stack.Team) []v1alpha1.Session {
	i.t.Helper()
	all, err := made.Sessions(i.t.Context())
	i.must(err)
	return all
}

// flags are those that the chart gives the controller beyond what the stack does.
func (i *installed) flags() []string {
	i.t.Helper()
	out, err := helm(i.t, i.kubeconfig, "get", "values", release, "--namespace", space, "--output", "yaml")
	i.must(err)
	var flags []string
	for line := range strings.Lines(out) {
		if flag := strings.TrimPrefix(strings.TrimSpace(line), "- "); strings.HasPrefix(flag, "--") {
			flags = append(flags, flag)
		}
	}
	if len(flags) == 0 {
		i.t.Errorf("the release has no further flags:\n%s", out)
	}
	return flags
}
