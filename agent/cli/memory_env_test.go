//go:build envtest

package cli

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// TestMemoryAgainstTheCluster: what is exported is accepted again, and pins the
// block.
func TestMemoryAgainstTheCluster(t *testing.T) {
	newTeam(t, "memory", "main", "second")
	m := newMachine(t)
	m.env["PATH"] = "/bin"
	m.login(t, "ada", "memory")
	if code, _, errs := m.run("init", "--yes", "--memory", "main"); code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	const remote = "git.example.com/memory/tide"
	learned := memoryBlock(remote, "pitfalls", v1alpha1.BlockLearned)
	foreign := memoryBlock(remote, "pitfalls", v1alpha1.BlockLearned)
	foreign.Name, foreign.Spec.MemoryRef.Name = v1alpha1.MemoryBlockName("second", remote, "pitfalls"), "second"
	stray := memoryBlock(remote, "pitfalls", v1alpha1.BlockLearned)
	stray.Name = "stray"
	controller, err := cluster.Controller(t.Context())
	must(t, err)
	writer, err := cluster.Client(controller)
	must(t, err)
	for _, b := range []*v1alpha1.MemoryBlock{&learned, &foreign, &stray} {
		b.Namespace = "memory"
		status := b.Status
		must(t, admin(t).Create(t.Context(), b))
		b.Status = status
		must(t, writer.Status().Update(t.Context(), b))
	}

	_, out, errs := m.run("memory", "list", "--json")
	var rows []blockRow
	must(t, json.Unmarshal([]byte(out), &rows))
	if len(rows) != 1 || rows[0].Name != learned.Name || rows[0].Bytes != 40 || rows[0].Value != "" {
		t.Errorf("listed %+v, %q; want the one block of this memory, without its text", rows, errs)
	}
	if _, out, errs = m.run("memory", "show", "pitfalls"); out != "- tide: tables\n\n- \"two\": # boats[2J\n" {
		t.Errorf("shown %q, %q", out, errs)
	}
	if _, out, _ = m.run("memory", "log", "pitfalls"); !strings.Contains(out, "generation-1") {
		t.Errorf("log %q", out)
	}
	if _, out, _ = m.run("memory", "diff", "pitfalls", "--json"); !strings.Contains(out, `"change": "-- one boat\n+- two\u001b[2J boats"`) {
		t.Errorf("diff %q", out)
	}
	if code, _, errs := m.run("memory", "export"); code != 1 || !strings.Contains(errs, "no pinned block") {
		t.Errorf("exit %d, %q", code, errs)
	}
	_, out, errs = m.run("memory", "export", "pitfalls")
	pinned := &v1alpha1.MemoryBlock{}
	if err := yaml.UnmarshalStrict([]byte(out), pinned); err != nil {
		t.Fatalf("%v: %q, %q", err, out, errs)
	}
	live := &v1alpha1.MemoryBlock{ObjectMeta: metav1.ObjectMeta{Namespace: pinned.Namespace, Name: pinned.Name}}
	must(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(live), live))
	live.Spec = pinned.Spec
	must(t, admin(t).Update(t.Context(), live))
	_, again, errs := m.run("memory", "export")
	if again != out {
		t.Errorf("exported again %q, %q; want %q", again, errs, out)
	}
}
