// Package closure tests what each binary really links. The linter sees direct
// imports only; what comes in through a shared package it misses.
package closure

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/test/tools"
)

const module = "github.com/undersong-dev/undersong"

// systems are what the workstation's binaries are built for.
var systems = []string{"linux", "darwin", "windows"}

// linked returns the packages that a binary links on a system, without the
// standard library, and all of them.
func linked(t *testing.T, system, binary string) (ours, all []string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{.Standard}}", "./cmd/"+binary)
	list.Dir = tools.Root()
	list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	var stderr strings.Builder
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list what cmd/%s links: %v\n%s", binary, err, stderr.String())
	}
	for line := range strings.Lines(string(out)) {
		var path string
		var standard bool
		if _, err := fmt.Sscan(line, &path, &standard); err != nil {
			t.Fatalf("read %q: %v", line, err)
		}
		all = append(all, path)
		if !standard {
			ours = append(ours, path)
		}
	}
	return ours, all
}

// under says whether a package is one of the folders or below one.
func under(path string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// TestTheHookLinksTheStandardLibrary: Claude Code starts the hook at every tool
// call, and each package costs time at every start. It has no network either,
// so that nothing can make it wait.
func TestTheHookLinksTheStandardLibrary(t *testing.T) {
	allowed := []string{
		module + "/cmd/undersong-hook",
		module + "/agent/hook",
		module + "/agent/note",
		module + "/agent/whisper",
		module + "/agent/internal/durable",
		module + "/agent/internal/object",
		module + "/internal/crash",
	}
	for _, system := range systems {
		ours, all := linked(t, system, "undersong-hook")
		for _, path := range ours {
			if !slices.Contains(allowed, path) {
				t.Errorf("%s: undersong-hook links %s", system, path)
			}
		}
		for _, path := range all {
			if under(path, "net", "crypto", "testing") {
				t.Errorf("%s: undersong-hook links %s", system, path)
			}
		}
	}
}

// TestTheWorkstationLinksNoOperator: no key of Letta's or the object store's is
// of any use on a workstation, because nothing there could speak with it.
func TestTheWorkstationLinksNoOperator(t *testing.T) {
	for _, system := range systems {
		ours, _ := linked(t, system, "undersong")
		for _, path := range ours {
			if under(path, module+"/controllers", module+"/internal/letta", module+"/internal/store", module+"/test", "github.com/minio/minio-go/v7") {
				t.Errorf("%s: undersong links %s", system, path)
			}
		}
	}
}

// TestTheWorkstationLinksItsOwnKinds: of Kubernetes only what agent/internal/kube
// needs. A client for every kind was more than half of the binary, and of the
// idle daemon's memory.
func TestTheWorkstationLinksItsOwnKinds(t *testing.T) {
	allowed := []string{"k8s.io/api/authentication/v1", "k8s.io/api/authorization/v1"}
	for _, system := range systems {
		ours, _ := linked(t, system, "undersong")
		for _, path := range ours {
			every := under(path, "sigs.k8s.io/controller-runtime", "k8s.io/client-go/kubernetes", "k8s.io/client-go/applyconfigurations",
				"k8s.io/client-go/informers", "k8s.io/client-go/listers", "k8s.io/client-go/discovery", "k8s.io/client-go/dynamic",
				"github.com/google/gnostic-models", "github.com/prometheus", "google.golang.org/protobuf")
			if every || under(path, "k8s.io/api") && !slices.Contains(allowed, path) {
				t.Errorf("%s: undersong links %s", system, path)
			}
		}
	}
}

// TestTheWorkstationLosesWhatItDoesNotCall: where a method is looked up by its
// name, as a template does, the linker keeps every method of every type that is
// used. The daemon's memory is mostly its own file.
func TestTheWorkstationLosesWhatItDoesNotCall(t *testing.T) {
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-dumpdep", "-o", os.DevNull, "./cmd/undersong")
	build.Dir = tools.Root()
	build.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "main.main -> ") {
		t.Fatalf("ask the linker what leads to what: %v\n%.300s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if from, to, _ := strings.Cut(strings.TrimSpace(line), " -> "); strings.HasSuffix(to, "<ReflectMethod>") {
			t.Errorf("%s calls %s", from, to)
		}
	}
}

// TestTheOperatorLinksNoWorkstation: and nothing of the tests.
func TestTheOperatorLinksNoWorkstation(t *testing.T) {
	ours, _ := linked(t, "linux", "undersong-controller")
	for _, path := range ours {
		if under(path, module+"/agent", module+"/test") {
			t.Errorf("undersong-controller links %s", path)
		}
	}
}
