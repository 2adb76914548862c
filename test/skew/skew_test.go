//go:build envtest

// Package skew tests that versions work with each other: a workstation with a
// controller that is one version older or newer, CRDs that are, and what an
// earlier version has written. docs/install.md has the rule.
//
// There are three kinds of proof. Programs of a real earlier version, built from
// this repository's history, play the thread with those of this one: that needs
// the history, so PREVIOUS names a commit or a tag, and without it the test is
// skipped. A version to come is played by CRDs with a field more in every
// object, and one that was by CRDs without fields that came later. And testdata
// has what each version wrote, to be read by all later ones.
package skew

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/replay"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// record writes what this version writes into testdata, under the given name,
// which is that of a release.
var record = flag.String("record", "", "write what this version writes into testdata/NAME")

const (
	within = 2 * time.Minute
	remote = "https://git.example.com/lighthouse/lantern.git"
	future = "fromTheFuture"
)

// programs builds our binaries of a checkout into a folder of their own.
func programs(t *testing.T, root string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "./cmd/...")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build in %s: %v\n%s", root, err, out)
	}
	return bin
}

// mixed is a folder with the workstation's programs of one version and the
// controller of another.
func mixed(t *testing.T, agent, controller string) string {
	t.Helper()
	dir := t.TempDir()
	for name, from := range map[string]string{"undersong": agent, "undersong-hook": agent, "undersong-controller": controller} {
		if err := os.Symlink(filepath.Join(from, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// previous is a checkout of the commit or tag that PREVIOUS names.
func previous(t *testing.T) string {
	t.Helper()
	ref := os.Getenv("PREVIOUS")
	if ref == "" {
		t.Skip("PREVIOUS names no earlier version: make e2e-skew PREVIOUS=v0.1.0, in a clone that has it")
	}
	root := t.TempDir()
	archive := exec.CommandContext(t.Context(), "git", "archive", ref)
	archive.Dir = tools.Root()
	data, err := archive.Output()
	if err != nil {
		t.Fatalf("take %s out of git: %v; is it in this clone? git fetch --tags --unshallow", ref, err)
	}
	unpack := exec.CommandContext(t.Context(), "tar", "x", "-C", root)
	unpack.Stdin = bytes.NewReader(data)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v: %s", ref, err, out)
	}
	return root
}

// thread is a team whose developer's words go the whole way and come back to a
// colleague.
type thread struct {
	t        *testing.T
	parts    *stack.Stack
	team     *stack.Team
	said     []string
	sessions []*replay.Session
}

func (r *thread) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// begin starts all parts, with CRDs changed before anything of ours runs.
func begin(t *testing.T, bin string, crds string, change func(*unstructured.Unstructured)) *thread {
	t.Helper()
	r := &thread{t: t}
	dir := t.TempDir()
	var err error
	r.parts, err = stack.Start(t.Context(), stack.Options{Dir: dir, Bin: bin})
	r.must(err)
	t.Cleanup(r.parts.Stop)
	if change != nil || crds != "" {
		r.replaceCRDs(crds, change)
	}
	r.team, err = r.parts.Team(t.Context(), stack.TeamOptions{
		Namespace: "alpha", Members: []string{"ada", "bob"}, Leads: []string{"lena"}, Include: []string{"git.example.com/lighthouse/**"},
	})
	r.must(err)
	_, err = r.parts.StartController(t.Context())
	r.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range []string{"controller.log"} {
				if data, err := os.ReadFile(filepath.Join(dir, "logs", name)); err == nil {
					t.Logf("%s:\n%s", name, data[max(0, len(data)-3000):])
				}
			}
		}
	})
	return r
}

// replaceCRDs puts others in the place of this version's.
func (r *thread) replaceCRDs(folder string, change func(*unstructured.Unstructured)) {
	r.t.Helper()
	ctx := r.t.Context()
	if folder == "" {
		folder = filepath.Join(tools.Root(), "config", "crd")
	}
	crds, err := kube.Manifests(folder)
	r.must(err)
	for _, crd := range crds {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(crd.GroupVersionKind())
		r.must(r.parts.Admin.Get(ctx, client.ObjectKeyFromObject(crd), live))
		crd.SetResourceVersion(live.GetResourceVersion())
		if change != nil {
			change(crd)
		}
		// A mark that shows in the published schema when it is in force.
		mark(crd)
		r.must(r.parts.Admin.Update(ctx, crd))
	}
	web, err := rest.HTTPClientFor(r.parts.Cluster.Admin())
	r.must(err)
	r.must(stack.Eventually(ctx, within, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.parts.Cluster.Admin().Host+"/openapi/v3/apis/undersong.dev/v1alpha1", nil)
		if err != nil {
			return err
		}
		answer, err := web.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }() // only read
		text, err := io.ReadAll(answer.Body)
		if n := strings.Count(string(text), "skew-in-force"); err == nil && n < len(crds) {
			err = fmt.Errorf("%d of %d kinds have the other schema", n, len(crds))
		}
		return err
	}))
}

// edit changes the schema of a CRD.
func edit(crd *unstructured.Unstructured, f func(schema map[string]any)) {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	f(versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any))
	crd.Object["spec"].(map[string]any)["versions"] = versions
}

func mark(crd *unstructured.Unstructured) {
	edit(crd, func(schema map[string]any) { schema["description"] = "skew-in-force" })
}

// newer gives every object of a kind a field that this version does not know.
func newer(crd *unstructured.Unstructured) {
	var walk func(any)
	walk = func(at any) {
		schema, ok := at.(map[string]any)
		if !ok {
			return
		}
		if properties, ok := schema["properties"].(map[string]any); ok {
			for _, p := range properties {
				walk(p)
			}
			properties[future] = map[string]any{"type": "string", "maxLength": int64(64)}
		}
		walk(schema["items"])
	}
	edit(crd, func(schema map[string]any) {
		properties := schema["properties"].(map[string]any)
		walk(properties["spec"])
		walk(properties["status"])
	})
}

// came are fields without which the thread must go on: a cluster's CRDs may be
// of a version that did not have them. Nothing that tells a line's way is here.
var came = map[string][]string{
	"sessions.undersong.dev":     {"status.title", "status.tag", "status.pullRequest", "status.usage", "status.lag", "status.answered"},
	"workstations.undersong.dev": {"spec.report"},
	"memoryblocks.undersong.dev": {"status.history"},
}

// older takes those fields away.
func older(crd *unstructured.Unstructured) {
	edit(crd, func(schema map[string]any) {
		for _, path := range came[crd.GetName()] {
			half, name, _ := strings.Cut(path, ".")
			properties := schema["properties"].(map[string]any)[half].(map[string]any)["properties"].(map[string]any)
			if _, there := properties[name]; !there {
				panic(crd.GetName() + " has no " + path)
			}
			delete(properties, name)
		}
	})
}

// desk is a workstation that has joined.
func (r *thread) desk(user string) (*stack.Workstation, *replay.Session) {
	r.t.Helper()
	ws, err := r.parts.Workstation(r.team, user, user)
	r.must(err)
	r.must(ws.Init(r.t.Context()))
	r.t.Cleanup(ws.StopDaemon)
	cwd, err := ws.Project("lantern", remote)
	r.must(err)
	s := replay.New(ws, ws.ClaudeDir(), cwd, uuid.NewString())
	r.sessions = append(r.sessions, s)
	_, err = s.Start(r.t.Context(), "startup")
	r.must(err)
	return ws, s
}

func (r *thread) turn(s *replay.Session, prompt, answer string) replay.Output {
	r.t.Helper()
	out, err := s.Prompt(r.t.Context(), prompt)
	r.must(err)
	r.must(s.Answer(r.t.Context(), answer))
	r.must(s.Stop(r.t.Context(), answer))
	r.said = append(r.said, prompt, answer)
	return out
}

// settled waits until everything that was said is processed.
func (r *thread) settled() []v1alpha1.Session {
	r.t.Helper()
	var last []v1alpha1.Session
	r.must(stack.Eventually(r.t.Context(), within, func() error {
		var err error
		if last, err = r.team.Sessions(r.t.Context()); err != nil {
			return err
		}
		var lines, want int64
		for _, s := range r.sessions {
			want += s.Lines()
		}
		for i := range last {
			if lines += last[i].Spec.Lines; !stack.CaughtUp(&last[i]) {
				return fmt.Errorf("%s is not caught up: %v", last[i].Name, last[i].Status.Conditions)
			}
		}
		if lines != want {
			return fmt.Errorf("%d of %d lines are uploaded", lines, want)
		}
		return nil
	}))
	return last
}

// play is the thread: ada says what is worth remembering, between happens,
// ada goes on, and bob is whispered to. Then everything is there once.
func (r *thread) play(between func()) {
	r.t.Helper()
	ctx := r.t.Context()
	ada, s := r.desk("ada")
	r.turn(s, "Remember: release tags always start with the letter v.", "Noted, the letter v.")
	r.settled()
	if between != nil {
		between()
	}
	r.turn(s, "Said after everything else.", "Heard after everything else.")

	bob, other := r.desk("bob")
	r.turn(other, "With which letter do release tags start?", "I shall look it up.")
	r.must(stack.Eventually(ctx, within, func() error {
		out, err := bob.Run(ctx, "status", "--json")
		if err == nil && !strings.Contains(out, `"whispersWaiting": 1`) {
			err = errors.New("no whisper has reached bob")
		}
		return err
	}))
	if out := r.turn(other, "Go on.", "Then I go on."); !strings.Contains(out.Context, "letter v") {
		r.t.Errorf("bob was shown %q; want the whisper", out.Context)
	}
	r.settled()
	if out, err := ada.Run(ctx, "verify", s.ID); err != nil {
		r.t.Errorf("undersong verify: %v\n%s", err, out)
	}
	r.once()
}

// once: Letta has every word once, and the archive every line.
func (r *thread) once() {
	r.t.Helper()
	bucket, err := r.team.Open()
	r.must(err)
	var written int64
	for _, s := range r.sessions {
		written += s.Lines()
	}
	told := stack.Told(r.parts.Letta.Conversations(), "")
	if err := stack.CheckOnce(r.t.Context(), bucket, told, r.said, map[string]int64{segment.ArchiveOf("alpha"): written}); err != nil {
		r.t.Error(err)
	}
}

// TestThePreviousVersion plays the thread with one half of an earlier version,
// and the CRDs of the newer half, as in an upgrade in the written order.
func TestThePreviousVersion(t *testing.T) {
	root := previous(t)
	old, now := programs(t, root), programs(t, tools.Root())
	t.Run("older workstations", func(t *testing.T) {
		begin(t, mixed(t, old, now), "", nil).play(nil)
	})
	t.Run("an older controller", func(t *testing.T) {
		// Rolled back: the CRDs stay.
		begin(t, mixed(t, now, old), "", nil).play(nil)
	})
	t.Run("older CRDs", func(t *testing.T) {
		// Workstations that were upgraded before the cluster.
		begin(t, mixed(t, now, old), filepath.Join(root, "config", "crd"), nil).play(nil)
	})
}

// TestCRDsOfAnotherVersion plays it with CRDs that know more, and with some
// that know less.
func TestCRDsOfAnotherVersion(t *testing.T) {
	bin := programs(t, tools.Root())
	t.Run("newer", func(t *testing.T) {
		r := begin(t, bin, "", newer)
		var unknown map[client.Object]string
		r.play(func() { unknown = r.write() })
		r.kept(unknown)
	})
	t.Run("older", func(t *testing.T) {
		r := begin(t, bin, "", older)
		r.play(nil)
		for _, s := range r.settled() {
			if s.Status.Title != "" || s.Status.Usage.Turns != 0 {
				t.Errorf("the CRDs were not older: %v", s.Status)
			}
		}
	})
}

// write lets a newer version write what this one does not know.
func (r *thread) write() map[client.Object]string {
	r.t.Helper()
	ctx := r.t.Context()
	cfg, err := r.parts.Cluster.Controller(ctx)
	r.must(err)
	controller, err := r.parts.Cluster.Client(cfg)
	r.must(err)
	written := map[client.Object]string{}
	for _, kind := range []string{"Session", "Workstation", "TeamMemory"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "undersong.dev", Version: "v1alpha1", Kind: kind + "List"})
		r.must(r.parts.Admin.List(ctx, list, client.InNamespace("alpha")))
		if len(list.Items) == 0 {
			r.t.Fatalf("there is no %s", kind)
		}
		object := &list.Items[0]
		patch := `{"status":{"` + future + `":"kept"}}`
		if kind == "Session" {
			patch = `{"status":{"` + future + `":"kept","syncState":{"` + future + `":"kept"}}}`
		}
		r.must(controller.Status().Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch))))
		written[object] = kind
	}
	return written
}

// kept looks whether it is still there after this version's own writes.
func (r *thread) kept(written map[client.Object]string) {
	r.t.Helper()
	if len(written) == 0 {
		r.t.Fatal("nothing was written by a newer version")
	}
	for object, kind := range written {
		before := object.GetResourceVersion()
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
		r.must(r.parts.Admin.Get(r.t.Context(), client.ObjectKeyFromObject(object), now))
		if got, _, _ := unstructured.NestedString(now.Object, "status", future); got != "kept" {
			r.t.Errorf("%s: what a newer version wrote into status is gone", kind)
		}
		if kind != "Session" {
			continue
		}
		if now.GetResourceVersion() == before {
			r.t.Error("nothing was written after the newer version: this proves nothing")
		}
		if got, _, _ := unstructured.NestedString(now.Object, "status", "syncState", future); got != "kept" {
			r.t.Error("what a newer version wrote into status.syncState is gone")
		}
	}
}

// kinds are those whose objects are recorded.
var kinds = []string{"TeamMemory", "Workstation", "MemoryBlock", "Session"}

// TestRecord writes testdata of this version, when it is asked to.
func TestRecord(t *testing.T) {
	if *record == "" {
		t.Skip("-record names no version")
	}
	dir := filepath.Join("testdata", *record)
	r := begin(t, programs(t, tools.Root()), "", nil)
	r.play(nil)
	r.must(os.RemoveAll(dir))
	r.must(os.MkdirAll(dir, 0o755))
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "undersong.dev", Version: "v1alpha1", Kind: kind + "List"})
		r.must(r.parts.Admin.List(t.Context(), list, client.InNamespace("alpha")))
		var text bytes.Buffer
		for i := range list.Items {
			object := list.Items[i].Object
			metadata := map[string]any{"name": list.Items[i].GetName(), "namespace": "alpha"}
			object["metadata"] = metadata
			data, err := yaml.Marshal(object)
			r.must(err)
			text.WriteString("---\n")
			text.Write(data)
		}
		r.must(os.WriteFile(filepath.Join(dir, kind+".yaml"), text.Bytes(), 0o600))
	}
	bucket, err := r.team.Open()
	r.must(err)
	n := 0
	for info, err := range bucket.List(t.Context(), segment.ArchiveOf("alpha")) {
		r.must(err)
		if !strings.HasSuffix(info.Key, ".jsonl.zst") {
			continue
		}
		data, err := bucket.Get(t.Context(), info.Key, segment.MaxPacked)
		r.must(err)
		n++
		r.must(os.WriteFile(filepath.Join(dir, fmt.Sprintf("segment-%d.jsonl.zst", n)), data, 0o600))
	}
}

// TestWhatWasWrittenIsRead: the API server of this version takes every object
// that an earlier one had, and drops nothing; and this version reads its
// segments.
func TestWhatWasWrittenIsRead(t *testing.T) {
	versions, err := filepath.Glob(filepath.Join("testdata", "*"))
	if err != nil || len(versions) == 0 {
		t.Fatalf("no recorded version: %v", err)
	}
	// Without policies: an administrator restores what others own.
	cluster, err := kube.Start(t.Context(), kube.Options{Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	api, err := cluster.Client(cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	crds, err := kube.Manifests(filepath.Join(tools.Root(), "config", "crd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		if err := api.Create(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}
	for i, version := range versions {
		t.Run(filepath.Base(version), func(t *testing.T) {
			space := fmt.Sprintf("recorded-%d", i)
			objects(t.Context(), t, api, version, space)
			segments(t, version)
		})
	}
}

func objects(ctx context.Context, t *testing.T, api client.Client, version, space string) {
	t.Helper()
	recorded, err := kube.Manifests(version)
	if err != nil {
		t.Fatal(err)
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": space}}}
	if err := api.Create(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, want := range recorded {
		seen = append(seen, want.GetKind())
		got := want.DeepCopy()
		got.SetNamespace(space)
		err := stack.Eventually(ctx, within, func() error { return api.Create(ctx, got.DeepCopy()) }) // a CRD is served a moment later
		if err != nil {
			t.Errorf("%s %s is refused now: %v", want.GetKind(), want.GetName(), err)
			continue
		}
		live := got.DeepCopy()
		if err := api.Get(ctx, client.ObjectKeyFromObject(got), live); err != nil {
			t.Fatal(err)
		}
		live.Object["status"] = got.Object["status"]
		if err := api.Status().Update(ctx, live); err != nil {
			t.Errorf("the status of %s %s is refused now: %v", want.GetKind(), want.GetName(), err)
			continue
		}
		if diff := cmp.Diff(text(t, want.Object["spec"]), text(t, live.Object["spec"])) + cmp.Diff(text(t, want.Object["status"]), text(t, live.Object["status"])); diff != "" {
			t.Errorf("%s %s is not what it was (-recorded +now):\n%s", want.GetKind(), want.GetName(), diff)
		}
	}
	for _, kind := range kinds {
		if !slices.Contains(seen, kind) {
			t.Errorf("no %s is recorded", kind)
		}
	}
}

// text makes numbers of both sides alike.
func text(t *testing.T, object any) string {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func segments(t *testing.T, version string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(version, "segment-*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no segment is recorded: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := segment.Unpack(data)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if _, lines, err := segment.Decode(raw); err != nil || len(lines) == 0 {
			t.Errorf("%s: %d lines, %v", file, len(lines), err)
		}
	}
}
