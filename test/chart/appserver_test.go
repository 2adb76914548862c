//go:build envtest

package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/appserver"
	"github.com/undersong-dev/undersong/internal/letta/appserver/appservertest"
	"github.com/undersong-dev/undersong/test/stack"
	"github.com/undersong-dev/undersong/test/tools"
)

// TestTheAppServerStarts runs the real App Server as the chart's StatefulSet has
// it run: the same arguments, environment and paths, below a folder of the test.
func TestTheAppServerStarts(t *testing.T) {
	install := filepath.Join(tools.Root(), ".tools", "letta")
	if err := appservertest.Installed(install); err != nil {
		t.Skipf("SKIPPED, nothing was tested: %v", err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String()) // it is the listener's own
	_ = l.Close()                                      // the server takes it
	set := statefulSet(t, mustHelm(t, "", "template", release, chart(), "--values", filepath.Join(chart(), "ci", "app-server.yaml"), "--set", "appServer.port="+port))
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]

	root := t.TempDir()
	var places []string
	for _, m := range c.VolumeMounts {
		dir := filepath.Join(root, m.MountPath)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		places = append(places, m.MountPath, dir)
		for _, v := range pod.Volumes {
			if v.Name != m.Name || v.Secret == nil {
				continue
			}
			for _, item := range v.Secret.Items {
				if err := os.WriteFile(filepath.Join(dir, item.Path), []byte("the-token"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	here := strings.NewReplacer(places...)
	bin := filepath.Join(install, "node_modules", ".bin")
	args := []string{filepath.Join(install, "package", "letta.js")}
	for _, a := range c.Args {
		if flag, path, ok := strings.Cut(a, "="); ok && strings.HasPrefix(path, "/") {
			a = flag + "=" + here.Replace(path)
		}
		args = append(args, a)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "node"), args...)
	cmd.Dir, cmd.Env = root, []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + here.Replace("/tmp")}
	for _, e := range c.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+here.Replace(e.Value))
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // it is killed with the test's context

	for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
		err := stack.Eventually(t.Context(), within, func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+probe.HTTPGet.Path, http.NoBody)
			if err != nil {
				return err
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s, %w", probe.HTTPGet.Path, res.Status, err)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("the probe: %v", err)
		}
	}
	for token, want := range map[string]error{"the-token": nil, "another": letta.ErrUnauthorized} {
		api, err := appserver.New(appserver.Options{BaseURL: "ws://127.0.0.1:" + port, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		_, err = api.CreateAgent(t.Context(), letta.AgentSpec{Name: "alpha", Model: "openai-compatible/stub-1"})
		if !errors.Is(err, want) {
			t.Errorf("with the token %q: %v, want %v", token, err, want)
		}
		_ = api.Close() // it has no state
	}
	if _, err := os.Stat(here.Replace("/data/state")); err != nil {
		t.Errorf("what it keeps is not on the volume: %v", err)
	}
}

// statefulSet is the one of a rendered chart.
func statefulSet(t *testing.T, manifests string) *appsv1.StatefulSet {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 1<<16)
	for {
		set := &appsv1.StatefulSet{}
		err := decoder.Decode(set)
		if errors.Is(err, io.EOF) {
			t.Fatal("the chart has no StatefulSet")
		}
		if err == nil && set.Kind == "StatefulSet" {
			return set
		}
	}
}

// TestTheAppServersImage: the Containerfile has the versions that are tested.
func TestTheAppServersImage(t *testing.T) {
	dir := filepath.Join(tools.Root(), "hack", "tools", "letta-appserver")
	versions := map[string]map[string]string{}
	for name, pattern := range map[string]string{"install": `(?m)^(node|ws|letta|sha256)=(\S+)$`, "Containerfile": `(?m)^(?:ARG |FROM docker\.io/library/)(node|ws|letta|sha256)[=:]([0-9a-f.]+)`} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		versions[name] = map[string]string{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			versions[name][m[1]] = m[2]
		}
	}
	for _, part := range []string{"node", "ws", "letta", "sha256"} {
		if a, b := versions["install"][part], versions["Containerfile"][part]; a == "" || a != b {
			t.Errorf("%s: install has %q, the Containerfile %q", part, a, b)
		}
	}
}
