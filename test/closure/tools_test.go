package closure

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/undersong-dev/undersong/test/tools"
)

// TestTheNodeIsOfTheTestsVersion: two modules build Kubernetes, because all of
// it is more than most tests need. What the one shows must hold for the other.
func TestTheNodeIsOfTheTestsVersion(t *testing.T) {
	required := regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)`)
	found := map[string]string{}
	for _, name := range []string{"kube", "node"} {
		data, err := os.ReadFile(filepath.Join(tools.Root(), "hack", "tools", name, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		match := required.FindSubmatch(data)
		if match == nil {
			t.Fatalf("hack/tools/%s requires no k8s.io/kubernetes", name)
		}
		found[name] = string(match[1])
	}
	if found["kube"] != found["node"] {
		t.Errorf("the tests' API server is %s, the node's %s: give both go.mod files the same", found["kube"], found["node"])
	}
}
