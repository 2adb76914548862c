//go:build envtest

package kube

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/seal"
	"github.com/undersong-dev/undersong/test/kube"
)

var cluster *kube.Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if cluster, err = kube.Start(context.Background(), kube.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer cluster.Stop()
	return m.Run()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// team makes a namespace with ada and a lead in it, and returns their clients.
func team(t *testing.T, ns string) (ada, lead *Client) {
	t.Helper()
	must(t, cluster.Team(t.Context(), ns, []string{"ada"}, []string{"lead"}))
	return clientOf(t, cluster.User("ada")), clientOf(t, cluster.User("lead"))
}

func clientOf(t *testing.T, config *rest.Config) *Client {
	t.Helper()
	config.QPS = -1
	c, err := New(config)
	must(t, err)
	return c
}

func workstation(t *testing.T, ns, name string) *v1alpha1.Workstation {
	t.Helper()
	identity, err := seal.NewIdentity()
	must(t, err)
	return &v1alpha1.Workstation{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: v1alpha1.WorkstationSpec{
			Owner: "ada", MemoryRef: v1alpha1.LocalRef{Name: "main"}, PublicKey: identity.Recipient(),
			Version: "1", OS: "linux/amd64", GrantRequest: 1,
		},
	}
}

func session(ns, id string) *v1alpha1.Session {
	return &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.SessionName(id, "ada")},
		Spec: v1alpha1.SessionSpec{
			Owner: "ada", SessionID: id, Agent: v1alpha1.AgentClaudeCode, MemoryRef: v1alpha1.LocalRef{Name: "main"},
			Project: v1alpha1.Project{Name: "tide", Remote: "git.example.com/alpha/tide"},
		},
	}
}

func memory(ns string) *v1alpha1.TeamMemory {
	return &v1alpha1.TeamMemory{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "main"},
		Spec: v1alpha1.TeamMemorySpec{
			Letta:   v1alpha1.Letta{Backend: v1alpha1.BackendAPI, BaseURL: "https://letta.example.com"},
			Agent:   v1alpha1.AgentSource{Template: &v1alpha1.AgentTemplate{Name: "memory", Model: "x/y"}},
			Store:   v1alpha1.Store{Endpoint: "https://store.example.com", Bucket: "b-1", CredentialsSecretRef: v1alpha1.LocalRef{Name: "store"}},
			Capture: v1alpha1.Capture{Projects: v1alpha1.CaptureProjects{Include: []string{"git.example.com/alpha/*"}}},
		},
	}
}

func keyOf(o Object) Key { return Key{Namespace: o.GetNamespace(), Name: o.GetName()} }

// applied is what ada's workstation applies: its version, and nothing else.
func applied(w *v1alpha1.Workstation, version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Workstation",
		"metadata": map[string]any{"namespace": w.Namespace, "name": w.Name, "uid": string(w.UID)},
		"spec": map[string]any{
			"owner": w.Spec.Owner, "memoryRef": map[string]any{"name": "main"}, "publicKey": w.Spec.PublicKey, "version": version, "os": "linux/amd64", "grantRequest": int64(1),
		},
	}}
}

// managers returns who owns fields, as the server has it.
func managers(o metav1.Object) map[string]metav1.ManagedFieldsOperationType {
	found := map[string]metav1.ManagedFieldsOperationType{}
	for _, m := range o.GetManagedFields() {
		found[m.Manager] = m.Operation
	}
	return found
}

func TestEachVerb(t *testing.T) {
	ctx := t.Context()
	ada, lead := team(t, "verbs")

	t.Run("reviews", func(t *testing.T) {
		who := &authenticationv1.SelfSubjectReview{}
		must(t, ada.Create(ctx, who, ""))
		if got := who.Status.UserInfo.Username; got != "ada" {
			t.Errorf("the server knows ada as %q", got)
		}
		for verb, want := range map[string]bool{"create": true, "deletecollection": false} {
			may := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "verbs", Group: "undersong.dev", Resource: "sessions", Verb: verb},
			}}
			must(t, ada.Create(ctx, may, ""))
			if may.Status.Allowed != want {
				t.Errorf("%s of sessions: allowed %v, want %v", verb, may.Status.Allowed, want)
			}
		}
	})

	w := workstation(t, "verbs", "ada-one")
	t.Run("create", func(t *testing.T) {
		must(t, ada.Create(ctx, w, "undersong-create"))
		if w.UID == "" || w.ResourceVersion == "" {
			t.Errorf("what became of it is not read: %+v", w.ObjectMeta)
		}
		if err := ada.Create(ctx, workstation(t, "verbs", "ada-one"), "undersong-create"); !apierrors.IsAlreadyExists(err) {
			t.Errorf("a second time: %v", err)
		}
		other := workstation(t, "verbs", "bob-one")
		other.Spec.Owner = "bob"
		if err := ada.Create(ctx, other, "undersong-create"); !apierrors.IsForbidden(err) {
			t.Errorf("for another owner: %v", err)
		}
		wrong := workstation(t, "verbs", "ada-two")
		wrong.Spec.PublicKey = "none"
		if err := ada.Create(ctx, wrong, "undersong-create"); !apierrors.IsInvalid(err) {
			t.Errorf("against a rule: %v", err)
		}
	})

	t.Run("get", func(t *testing.T) {
		got := session("verbs", "left") // of which nothing may be left
		got.Labels = map[string]string{"left": "over"}
		if err := ada.Get(ctx, Key{Namespace: "verbs", Name: "none"}, got); !apierrors.IsNotFound(err) {
			t.Errorf("of nothing: %v", err)
		}
		if err := ada.Get(ctx, Key{Namespace: "elsewhere", Name: "none"}, got); !apierrors.IsForbidden(err) {
			t.Errorf("elsewhere: %v", err)
		}
		live := &v1alpha1.Workstation{ObjectMeta: metav1.ObjectMeta{Labels: got.Labels}}
		must(t, ada.Get(ctx, keyOf(w), live))
		if diff := cmp.Diff(w, live); diff != "" {
			t.Errorf("it is not what was created (-want +got):\n%s", diff)
		}
	})

	t.Run("apply", func(t *testing.T) {
		must(t, ada.Apply(ctx, applied(w, "2"), "undersong-ada-one"))
		live := &v1alpha1.Workstation{}
		must(t, ada.Get(ctx, keyOf(w), live))
		want := map[string]metav1.ManagedFieldsOperationType{
			"undersong-create": metav1.ManagedFieldsOperationUpdate, "undersong-ada-one": metav1.ManagedFieldsOperationApply,
		}
		if diff := cmp.Diff(want, managers(live)); live.Spec.Version != "2" || diff != "" {
			t.Errorf("version %q; managers (-want +got):\n%s", live.Spec.Version, diff)
		}
		// Nothing else may be made, or written to, in its place.
		gone := applied(w, "3")
		gone.SetUID("11111111-2222-4333-8444-555555555555")
		if err := ada.Apply(ctx, gone, "undersong-ada-one"); !apierrors.IsInvalid(err) {
			t.Errorf("to another UID: %v", err)
		}
		old := applied(w, "3")
		old.SetResourceVersion(w.ResourceVersion)
		if err := ada.Apply(ctx, old, "undersong-ada-one"); !apierrors.IsConflict(err) {
			t.Errorf("to an older version: %v", err)
		}
		must(t, ada.Get(ctx, keyOf(w), live))
		if live.Spec.Version != "2" {
			t.Errorf("version %q", live.Spec.Version)
		}
	})

	t.Run("list", func(t *testing.T) {
		must(t, ada.Create(ctx, session("verbs", "one"), "undersong-create"))
		must(t, ada.Create(ctx, session("verbs", "two"), "undersong-create"))
		for name, tc := range map[string]struct {
			which Fields
			want  int
		}{
			"all":          {nil, 2},
			"by owner":     {Fields{"spec.owner": "ada"}, 2},
			"of another":   {Fields{"spec.owner": "bob"}, 0},
			"by two":       {Fields{"spec.owner": "ada", "spec.project.remote": "git.example.com/alpha/tide"}, 2},
			"of one name":  {Fields{"metadata.name": session("verbs", "one").Name}, 1},
			"no such, two": {Fields{"spec.owner": "ada", "metadata.name": "none"}, 0},
		} {
			list := &v1alpha1.SessionList{}
			if err := ada.List(ctx, list, "verbs", tc.which); err != nil || len(list.Items) != tc.want || list.ResourceVersion == "" {
				t.Errorf("%s: %d of %d, version %q, %v", name, len(list.Items), tc.want, list.ResourceVersion, err)
			}
		}
		if err := ada.List(ctx, &v1alpha1.SessionList{}, "verbs", Fields{"spec.agent": "x"}); !apierrors.IsBadRequest(err) {
			t.Errorf("by a field that selects nothing: %v", err)
		}
	})

	t.Run("merge", func(t *testing.T) {
		must(t, clientOf(t, cluster.Admin()).Create(ctx, memory("verbs"), ""))
		m := &v1alpha1.TeamMemory{}
		must(t, lead.Get(ctx, Key{Namespace: "verbs", Name: "main"}, m))
		old := m.DeepCopy()
		scrubs := []v1alpha1.Scrub{{ID: "s-1", Mode: v1alpha1.ScrubLook, Length: 8, Digest: strings.Repeat("0a", 36), SealedKey: "k"}}
		must(t, lead.Merge(ctx, m, map[string]any{"spec": map[string]any{"scrubs": scrubs}}, "undersong-scrub"))
		if diff := cmp.Diff(scrubs, m.Spec.Scrubs); diff != "" || managers(m)["undersong-scrub"] == "" {
			t.Errorf("managers %v; what became of it (-want +got):\n%s", managers(m), diff)
		}
		if err := lead.Merge(ctx, old, map[string]any{"spec": map[string]any{"scrubs": nil}}, "undersong-scrub"); !apierrors.IsConflict(err) {
			t.Errorf("of an older version: %v", err)
		}
		must(t, lead.Merge(ctx, m, map[string]any{"spec": map[string]any{"scrubs": nil}}, "undersong-scrub"))
		if len(m.Spec.Scrubs) > 0 || m.Spec.Agent.Template == nil {
			t.Errorf("taken away: %+v", m.Spec)
		}
	})

	t.Run("delete", func(t *testing.T) {
		other := w.DeepCopy()
		other.UID = "11111111-2222-4333-8444-555555555555"
		if err := ada.Delete(ctx, other); !apierrors.IsConflict(err) {
			t.Errorf("of another UID: %v", err)
		}
		other.UID = ""
		if err := ada.Delete(ctx, other); !apierrors.IsConflict(err) {
			t.Errorf("of no UID: %v", err)
		}
		must(t, ada.Delete(ctx, w))
		if err := ada.Delete(ctx, w); !apierrors.IsNotFound(err) {
			t.Errorf("a second time: %v", err)
		}
		if err := ada.Get(ctx, keyOf(w), &v1alpha1.Workstation{}); !apierrors.IsNotFound(err) {
			t.Errorf("it is there: %v", err)
		}
		if err := ada.Apply(ctx, applied(w, "3"), "undersong-ada-one"); !apierrors.IsConflict(err) {
			t.Errorf("it is made again by an apply: %v", err)
		}
	})
}

func next(ctx context.Context, t *testing.T, w watch.Interface) (watch.Event, bool) {
	t.Helper()
	select {
	case event, open := <-w.ResultChan():
		return event, open
	case <-ctx.Done():
		t.Fatal("no event comes")
		return watch.Event{}, false
	}
}

func TestWatch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // on a busy machine
	defer cancel()
	ada, _ := team(t, "watched")
	list := &v1alpha1.SessionList{}
	must(t, ada.List(ctx, list, "watched", nil))
	which := Fields{"spec.owner": "ada"}

	t.Run("changes, a bookmark and the end", func(t *testing.T) {
		w, err := ada.Watch(ctx, &v1alpha1.SessionList{}, "watched", which, Since{Version: list.ResourceVersion, For: 4 * time.Second})
		must(t, err)
		defer w.Stop()
		s := session("watched", "one")
		must(t, ada.Create(ctx, s, "undersong-create"))
		event, _ := next(ctx, t, w)
		if got, is := event.Object.(*v1alpha1.Session); event.Type != watch.Added || !is || got.UID != s.UID {
			t.Fatalf("event %s %#v", event.Type, event.Object)
		}
		for version := ""; ; {
			event, open := next(ctx, t, w)
			if !open {
				if version == "" || ctx.Err() != nil {
					t.Errorf("the server did not end it, or after no bookmark: version %q, %v", version, ctx.Err())
				}
				return
			}
			got, is := event.Object.(*v1alpha1.Session)
			if event.Type != watch.Bookmark || !is || got.ResourceVersion == "" {
				t.Fatalf("event %s %#v", event.Type, event.Object)
			}
			version = got.ResourceVersion
		}
	})

	t.Run("a version that is too old", func(t *testing.T) {
		w, err := ada.Watch(ctx, &v1alpha1.SessionList{}, "watched", which, Since{Version: "1", For: time.Minute})
		if err == nil {
			defer w.Stop()
			event, _ := next(ctx, t, w)
			if event.Type != watch.Error {
				t.Fatalf("event %s %#v", event.Type, event.Object)
			}
			err = apierrors.FromObject(event.Object)
		}
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			t.Errorf("%v", err)
		}
	})

	t.Run("a connection that breaks", func(t *testing.T) {
		lines := &lines{}
		config := cluster.User("ada")
		config.Dial = lines.dial
		c := clientOf(t, config)
		w, err := c.Watch(ctx, &v1alpha1.SessionList{}, "watched", which, Since{Version: list.ResourceVersion, For: time.Hour})
		must(t, err)
		defer w.Stop()
		if event, _ := next(ctx, t, w); event.Type != watch.Added {
			t.Fatalf("event %s", event.Type)
		}
		lines.cut()
		for {
			event, open := next(ctx, t, w)
			if !open {
				break
			}
			if event.Type != watch.Error {
				t.Fatalf("event %s", event.Type)
			}
		}
		// The next call makes a connection.
		must(t, c.List(ctx, list, "watched", which))
	})

	t.Run("stopped", func(t *testing.T) {
		w, err := ada.Watch(ctx, &v1alpha1.SessionList{}, "watched", which, Since{Version: list.ResourceVersion, For: time.Hour})
		must(t, err)
		w.Stop()
		if event, open := next(ctx, t, w); open && event.Type != watch.Error {
			t.Errorf("event %s", event.Type)
		}
	})

	t.Run("of what one may not see", func(t *testing.T) {
		if _, err := ada.Watch(ctx, &v1alpha1.SessionList{}, "elsewhere", which, Since{For: time.Minute}); !apierrors.IsForbidden(err) {
			t.Errorf("%v", err)
		}
	})
}

// lines are the connections of a client.
type lines struct {
	mu   sync.Mutex
	open []net.Conn
}

func (l *lines) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = append(l.open, conn)
	}
	return conn, err
}

func (l *lines) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.open {
		_ = conn.Close() // it is cut
	}
	l.open = nil
}

// TestWithoutOurKinds: where undersong is not installed its kinds are not found,
// and the reviews work.
func TestWithoutOurKinds(t *testing.T) {
	bare, err := kube.Start(t.Context(), kube.Options{Bare: true})
	must(t, err)
	defer bare.Stop()
	c := clientOf(t, bare.Admin())
	must(t, c.Create(t.Context(), &authenticationv1.SelfSubjectReview{}, ""))
	if err := c.Get(t.Context(), Key{Namespace: "default", Name: "x"}, &v1alpha1.Session{}); !apierrors.IsNotFound(err) {
		t.Errorf("get: %v", err)
	}
	if err := c.Create(t.Context(), session("default", "x"), "m"); !apierrors.IsNotFound(err) {
		t.Errorf("create: %v", err)
	}
	if _, err := c.Watch(t.Context(), &v1alpha1.SessionList{}, "default", nil, Since{For: time.Minute}); !apierrors.IsNotFound(err) {
		t.Errorf("watch: %v", err)
	}
}
