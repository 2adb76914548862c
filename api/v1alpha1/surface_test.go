//go:build envtest

package v1alpha1_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// TestSelectableFields: a daemon watches its own objects, not the team's.
func TestSelectableFields(t *testing.T) {
	for kind, selectors := range map[string]map[string]string{
		"Session": {
			"spec.owner": owner, "spec.project.remote": "github.com/example/shop", "spec.memoryRef.name": "m", "status.state": "Active",
		},
		"Workstation": {"spec.owner": owner, "spec.memoryRef.name": "m"},
		"MemoryBlock": {"spec.memoryRef.name": "m", "spec.project": "github.com/example/shop"},
	} {
		known := live(t, full(kind, "selected"))
		status := known.DeepCopy()
		status.Object["status"] = full(kind, "").Object["status"]
		if err := controller.Status().Update(t.Context(), status); err != nil {
			t.Fatal(err)
		}
		for selector, value := range selectors {
			for wanted, names := range map[string][]string{value: {"selected"}, "other": {}} {
				var list unstructured.UnstructuredList
				list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
				err := writerOf[kind].List(t.Context(), &list, client.InNamespace(namespace), client.MatchingFields{selector: wanted})
				if err != nil {
					t.Errorf("%s: select %s: %v", kind, selector, err)
					continue
				}
				got := []string{}
				for _, item := range list.Items {
					got = append(got, item.GetName())
				}
				if diff := cmp.Diff(names, got); diff != "" {
					t.Errorf("%s: %s=%s (-want +got):\n%s", kind, selector, wanted, diff)
				}
			}
		}
	}
}

// TestColumns: what kubectl get shows, and shows more of with -o wide.
func TestColumns(t *testing.T) {
	for kind, want := range map[string][]string{
		"Session": {
			"Owner: ada", "Project: shop", "Title: t", "State: Active", "Uploaded: 30", "Processed: 30", "Ready: True", "Last", "Age",
			"wide Lag: 0", "wide Memory: m", "wide Agent: ClaudeCode", "wide Conversation: c", "wide MemTokens: 1", "wide Branch: main", "wide PR: example/shop#1",
		},
		"Workstation": {
			"Owner: ada", "Version: v1", "OS: linux/amd64", "Granted: True", "Backlog: 1", "Seen", "Error: e", "Age",
			"wide Memory: m", "wide Slots: 32",
		},
		"TeamMemory":  {"Backend: API", "Ready: True", "Scope: Project", "Sessions: 1", "Lagging: 1", "Budget: 1", "Age"},
		"MemoryBlock": {"Memory: m", "Project: github.com/example/shop", "Label: brief", "Mode: Pinned", "Bytes: 1", "Updated", "wide Session: s"},
	} {
		known := live(t, full(kind, "columns"))
		status := known.DeepCopy()
		status.Object["status"] = full(kind, "").Object["status"]
		if kind == "Workstation" {
			set(status, "status.conditions[].type", v1alpha1.GrantedCondition)
		}
		if err := controller.Status().Update(t.Context(), status); err != nil {
			t.Fatal(err)
		}
		var got []string
		table := tableOf(t, kind, "columns")
		for i, column := range table.ColumnDefinitions[1:] { // the first is the name
			cell := column.Name
			if column.Priority > 0 {
				cell = "wide " + cell
			}
			if column.Type != "date" { // shown as an age
				value, err := json.Marshal(table.Rows[0].Cells[i+1])
				if err != nil {
					t.Fatal(err)
				}
				cell += ": " + strings.Trim(string(value), `"`)
			}
			got = append(got, cell)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

// tableOf asks for one object as kubectl get does.
func tableOf(t *testing.T, kind, name string) *metav1.Table {
	t.Helper()
	config := cluster.Admin()
	doer, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	plural, _, _ := unstructured.NestedString(crd(t, kind).Object, "spec", "names", "plural")
	url := config.Host + "/apis/undersong.dev/v1alpha1/namespaces/" + namespace + "/" + plural + "/" + name
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	response, err := doer.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	table := &metav1.Table{}
	if err := json.NewDecoder(response.Body).Decode(table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 1 {
		t.Fatalf("%s: got %d rows", kind, len(table.Rows))
	}
	return table
}

// TestNames: the words people type.
func TestNames(t *testing.T) {
	for kind, short := range map[string]string{"Session": "ses", "Workstation": "wks", "TeamMemory": "tmem", "MemoryBlock": "mblk"} {
		names, _, err := unstructured.NestedMap(crd(t, kind).Object, "spec", "names")
		if err != nil {
			t.Fatal(err)
		}
		shorts, _, _ := unstructured.NestedStringSlice(names, "shortNames")
		categories, _, _ := unstructured.NestedStringSlice(names, "categories")
		if !slices.Equal(shorts, []string{short}) || !slices.Equal(categories, []string{"undersong"}) {
			t.Errorf("%s: got short names %v and categories %v, want %s and undersong", kind, shorts, categories, short)
		}
	}
}
