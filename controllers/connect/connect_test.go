package connect

import (
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/appserver"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/store"
)

func memory(url string) *v1alpha1.TeamMemory {
	return &v1alpha1.TeamMemory{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "team", UID: "uid", Generation: 1},
		Spec: v1alpha1.TeamMemorySpec{
			Letta: v1alpha1.Letta{Backend: v1alpha1.BackendAPI, BaseURL: url, CredentialsSecretRef: &v1alpha1.LocalRef{Name: "letta"}},
			Agent: v1alpha1.AgentSource{Template: &v1alpha1.AgentTemplate{Name: "Team", Model: "m"}},
		},
	}
}

func opener(t *testing.T, objects ...client.Object) (*Opener, *clocktesting.FakeClock) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := clocktesting.NewFakeClock(time.Now())
	return New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), nil, c), c
}

func secret(hosts, key string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "letta", Annotations: map[string]string{HostsAnnotation: hosts}},
		Data:       map[string][]byte{"apiKey": []byte(key)},
	}
}

func TestASecretGoesOnlyWhereItSays(t *testing.T) {
	for name, c := range map[string]struct {
		reason, hosts, key, url string
		want                    string // reason of the condition, empty for success
	}{
		"named":           {"the host it names", "letta.example.com", "k", "https://letta.example.com", ""},
		"one of several":  {"blanks and case do not matter", "a.example.com, Letta.example.com", "k", "https://letta.example.com", ""},
		"with port":       {"a port belongs to the host", "letta.example.com:8283", "k", "https://letta.example.com:8283", ""},
		"without port":    {"another port is another host", "letta.example.com", "k", "https://letta.example.com:8283", v1alpha1.InvalidSpecReason},
		"another host":    {"a TeamMemory cannot redirect it", "letta.example.com", "k", "https://evil.example.com", v1alpha1.InvalidSpecReason},
		"suffix":          {"no part of a name counts", "example.com", "k", "https://letta.example.com", v1alpha1.InvalidSpecReason},
		"no annotation":   {"silence is no permission", "", "k", "https://letta.example.com", v1alpha1.InvalidSpecReason},
		"key is missing":  {"an empty key is named", "letta.example.com", "", "https://letta.example.com", v1alpha1.DependencyNotReadyReason},
		"user in the URL": {"a user part does not hide the host", "letta.example.com", "k", "https://letta.example.com@evil.example.com", v1alpha1.InvalidSpecReason},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := opener(t, secret(c.hosts, c.key))
			_, err := o.Letta(t.Context(), memory(c.url))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%s: %v", c.reason, err)
			case c.want != "" && (err == nil || outcome.Of(err).Reason != c.want):
				t.Errorf("%s: error is %v, want reason %s", c.reason, err, c.want)
			}
		})
	}
}

func TestAnAppServerHasAToken(t *testing.T) {
	s := secret("letta.example.com:4500", "only an API key")
	o, _ := opener(t, s)
	m := memory("wss://letta.example.com:4500")
	m.Spec.Letta.Backend = v1alpha1.BackendAppServer
	_, err := o.Letta(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "give the Secret ns/letta a value for the key token") {
		t.Errorf("without a token: %v", err)
	}
	s = s.DeepCopy()
	s.Data["token"] = []byte("t")
	if err := o.Secrets.(client.Client).Update(t.Context(), s); err != nil { //nolint:forcetypeassert // made above
		t.Fatal(err)
	}
	c, err := o.Letta(t.Context(), m)
	if g, ok := c.(gated); err != nil || !ok {
		t.Errorf("with a token: %T, %v, want a client behind a gate", c, err)
	} else if _, ok := g.Client.(*appserver.Client); !ok {
		t.Errorf("with a token: %T, want a client of the App Server", g.Client)
	}
	m.Generation, m.Spec.Letta.BaseURL = 2, "wss://evil.example.com"
	if _, err := o.Letta(t.Context(), m); err == nil || outcome.Of(err).Reason != v1alpha1.InvalidSpecReason {
		t.Errorf("at another host: %v, want that the token is not sent there", err)
	}
}

func TestAMissingSecretSaysWhatToMake(t *testing.T) {
	o, _ := opener(t)
	_, err := o.Letta(t.Context(), memory("https://letta.example.com"))
	if err == nil || !strings.Contains(err.Error(), "create the Secret ns/letta with the keys apiKey") {
		t.Errorf("error is %v", err)
	}
}

func TestAChangedSecretIsUsedSoon(t *testing.T) {
	s := secret("letta.example.com", "old")
	o, clock := opener(t, s)
	first, err := o.Letta(t.Context(), memory("https://letta.example.com"))
	if err != nil {
		t.Fatal(err)
	}
	s = s.DeepCopy()
	s.Data["apiKey"] = []byte("new")
	if err := o.Secrets.(client.Client).Update(t.Context(), s); err != nil { //nolint:forcetypeassert // made above
		t.Fatal(err)
	}
	if again, err := o.Letta(t.Context(), memory("https://letta.example.com")); err != nil || again != first {
		t.Errorf("within %s the Secret was read again: %v", fresh, err)
	}
	clock.Step(fresh)
	if again, err := o.Letta(t.Context(), memory("https://letta.example.com")); err != nil || again == first {
		t.Errorf("after %s the old key is still used: %v", fresh, err)
	}
	o.Forget("uid")
	if _, err := o.Letta(t.Context(), memory("https://letta.example.com")); err != nil {
		t.Error(err)
	}
}

func TestAClientOutlivesWhatDoesNotConcernIt(t *testing.T) {
	o, _ := opener(t, secret("letta.example.com", "key"))
	m := memory("https://letta.example.com")
	first, err := o.Letta(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	_ = o.StoreError(m, store.ErrAccessDenied) // the store's trouble
	m.Generation, m.Spec.Delivery.MaxBatchBytes = 2, ptr.To[int32](4096)
	if again, err := o.Letta(t.Context(), m); err != nil || again != first {
		t.Errorf("another client is dialled though nothing of Letta changed: %v", err)
	}
	m.Generation, m.Spec.Letta.BaseURL = 3, "https://letta.example.com/v2"
	if again, err := o.Letta(t.Context(), m); err != nil || again == first {
		t.Errorf("the old client serves another address: %v", err)
	}
	last, err := o.Letta(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	_ = o.LettaError(m, letta.ErrUnauthorized) // its own
	if again, err := o.Letta(t.Context(), m); err != nil || again == last {
		t.Errorf("the client whose key was refused is used again: %v", err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	o, _ := opener(t)
	m := memory("https://letta.example.com")
	for name, c := range map[string]struct {
		err  error
		want string
		says string
	}{
		"key":     {letta.ErrUnauthorized, v1alpha1.LettaRejectedReason, "credentialsSecretRef"},
		"down":    {letta.ErrUnavailable, v1alpha1.LettaUnavailableReason, "does not answer"},
		"unknown": {letta.ErrOutcomeUnknown, v1alpha1.LettaUnavailableReason, "does not answer"},
		"limit":   {&letta.RetryError{After: time.Minute, Limited: true}, v1alpha1.LettaUnavailableReason, "asks to wait"},
		"busy":    {&letta.BusyError{}, v1alpha1.ProgressingReason, "another turn"},
		"quota":   {letta.ErrQuota, v1alpha1.LettaRejectedReason, "quota"},
	} {
		t.Run(name, func(t *testing.T) {
			got := outcome.Of(o.LettaError(m, c.err))
			if got.Reason != c.want || !strings.Contains(got.Error(), c.says) {
				t.Errorf("reason %s: %s", got.Reason, got)
			}
		})
	}
}

// stand is a stand-in with a client.
func stand(t *testing.T) (letta.Client, *lettatest.Server) {
	t.Helper()
	s, err := lettatest.New(lettatest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	url, err := s.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	c, err := api.New(api.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestOneAgentForOneProject(t *testing.T) {
	c, _ := stand(t)
	m := memory("https://letta.example.com")
	agents := &Agents{}
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			id, err := agents.Ensure(t.Context(), c, m, "git.example.com/a")
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("agents %v for one project", ids)
		}
	}
	// A new process finds it by its tags, another project gets its own.
	again, err := (&Agents{}).Ensure(t.Context(), c, m, "git.example.com/a")
	if err != nil || again != ids[0] {
		t.Errorf("a new process got %s, %v; want %s", again, err, ids[0])
	}
	if other, err := agents.Ensure(t.Context(), c, m, "git.example.com/b"); err != nil || other == ids[0] {
		t.Errorf("another project got %s, %v", other, err)
	}
}

func TestAnAgentWithMoreToolsIsNotUsed(t *testing.T) {
	err := safe(letta.Agent{ID: "agent-1", Tools: []string{"memory", "web_search"}})
	if err == nil || outcome.Of(err).Reason != v1alpha1.AgentUnsafeReason {
		t.Errorf("error is %v", err)
	}
	if err := safe(letta.Agent{Tools: []string{"memory", "core_memory_append"}}); err != nil {
		t.Error(err)
	}
}
