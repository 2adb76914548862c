//go:build envtest

package workstation

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/seal"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/parts"
	"github.com/undersong-dev/undersong/test/versity"
)

var (
	cluster *kube.Cluster
	s3      *versity.Server
)

func TestMain(m *testing.M) { os.Exit(parts.Run(os.Stderr, m, &cluster, &s3)) }

// world is a team with a workstation of ada's.
type world struct {
	t         *testing.T
	namespace string
	admin     client.Client
	ada       client.Client
	bucket    *store.Bucket
	identity  seal.Identity
	clock     *clocktesting.FakeClock
	r         *Reconciler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t, namespace: fmt.Sprintf("t%d", time.Now().UnixNano()), clock: clocktesting.NewFakeClock(time.Now())}
	w.must(cluster.Team(ctx, w.namespace, []string{"ada", "bob"}, nil))
	var err error
	w.admin, err = cluster.Client(cluster.Admin())
	w.must(err)
	w.ada, err = cluster.Client(cluster.User("ada"))
	w.must(err)
	w.must(s3.MakeBucket(ctx, w.namespace))
	w.bucket, err = store.Open(store.Options{Endpoint: s3.Endpoint, Bucket: w.namespace, AccessKeyID: s3.AccessKeyID, SecretAccessKey: s3.SecretAccessKey})
	w.must(err)
	w.identity, err = seal.NewIdentity()
	w.must(err)
	_, host, _ := strings.Cut(s3.Endpoint, "://")
	w.must(w.admin.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: kube.StoreSecret, Annotations: map[string]string{connect.HostsAnnotation: host}},
		StringData: map[string]string{"accessKeyID": s3.AccessKeyID, "secretAccessKey": s3.SecretAccessKey},
	}))
	w.must(w.admin.Create(ctx, &v1alpha1.TeamMemory{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "team"},
		Spec: v1alpha1.TeamMemorySpec{
			Letta:   v1alpha1.Letta{Backend: v1alpha1.BackendAPI, BaseURL: "https://letta.example.com"},
			Agent:   v1alpha1.AgentSource{ID: "agent-1"},
			Store:   v1alpha1.Store{Endpoint: s3.Endpoint, Insecure: v1alpha1.InsecureAllow, Bucket: w.namespace, CredentialsSecretRef: v1alpha1.LocalRef{Name: kube.StoreSecret}},
			Capture: v1alpha1.Capture{Projects: v1alpha1.CaptureProjects{Include: []string{"**"}}},
		},
	}))
	w.must(w.ada.Create(ctx, &v1alpha1.Workstation{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "desk"},
		Spec:       v1alpha1.WorkstationSpec{Owner: "ada", MemoryRef: v1alpha1.LocalRef{Name: "team"}, PublicKey: w.identity.Recipient()},
	}))
	cfg, err := cluster.Controller(ctx)
	w.must(err)
	c, err := cluster.Client(cfg)
	w.must(err)
	w.r = &Reconciler{Client: c, Live: c, Connect: connect.New(c, nil, w.clock), Recorder: events.NewFakeRecorder(16), Clock: w.clock}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get() *v1alpha1.Workstation {
	w.t.Helper()
	ws := &v1alpha1.Workstation{}
	w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "desk"}, ws))
	return ws
}

// ask counts spec.grantRequest up, as the daemon does.
func (w *world) ask() {
	w.t.Helper()
	ws := w.get()
	ws.Spec.GrantRequest++
	w.must(w.ada.Update(w.t.Context(), ws))
}

func (w *world) reconcile() (ctrl.Result, error) {
	return w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: w.namespace, Name: "desk"}})
}

// granted asks, reconciles and opens the grant.
func (w *world) granted() seal.Grant {
	w.t.Helper()
	w.ask()
	if _, err := w.reconcile(); err != nil {
		w.t.Fatal(err)
	}
	ws := w.get()
	if ws.Status.Grant == nil || ws.Status.Grant.Request != ws.Spec.GrantRequest {
		w.t.Fatalf("no grant: %+v", ws.Status)
	}
	g, err := w.identity.OpenGrant(ws.Status.Grant.Sealed)
	w.must(err)
	return g
}

func (w *world) condition() metav1.Condition {
	for _, c := range w.get().Status.Conditions {
		if c.Type == v1alpha1.GrantedCondition {
			return c
		}
	}
	return metav1.Condition{}
}

// put uses a slot as a workstation does, and returns the status code.
func put(t *testing.T, slot seal.Slot, body []byte) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, slot.URL, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range slot.Headers {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

func TestAGrantTakesOneObjectInEachSlot(t *testing.T) {
	w := newWorld(t)
	g := w.granted()
	if len(g.Slots) != slotsPerGrant || g.Slots[0].N != 1 {
		t.Fatalf("%d slots from %d, want %d from 1", len(g.Slots), g.Slots[0].N, slotsPerGrant)
	}
	if code := put(t, g.Slots[0], []byte("first")); code != http.StatusOK {
		t.Fatalf("PUT into a slot: %d", code)
	}
	if code := put(t, g.Slots[0], []byte("second")); code != http.StatusPreconditionFailed {
		t.Errorf("PUT into a slot that is taken: %d, want 412", code)
	}
	data, err := w.bucket.Get(t.Context(), segment.InboxKey(string(w.get().UID), 1), 100)
	w.must(err)
	if string(data) != "first" {
		t.Errorf("the slot holds %q", data)
	}
}

func TestAnotherPersonCannotOpenAGrant(t *testing.T) {
	w := newWorld(t)
	w.granted()
	bob, err := cluster.Client(cluster.User("bob"))
	w.must(err)
	ws := &v1alpha1.Workstation{}
	// Bob may read the object: the fleet view is the team's.
	w.must(bob.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "desk"}, ws))
	other, err := seal.NewIdentity()
	w.must(err)
	if _, err := other.OpenGrant(ws.Status.Grant.Sealed); err == nil {
		t.Error("another key opened the grant")
	}
	if strings.Contains(ws.Status.Grant.Sealed, "X-Amz") {
		t.Error("the grant is not sealed")
	}
}

func TestOneRequestOneGrant(t *testing.T) {
	w := newWorld(t)
	w.granted()
	before := w.get()
	for range 5 {
		if _, err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before.ResourceVersion, w.get().ResourceVersion); diff != "" {
		t.Errorf("a settled Workstation was written: %s", diff)
	}
	w.clock.Step(3 * time.Second)
	g := w.granted()
	if g.Slots[0].N != slotsPerGrant+1 {
		t.Errorf("the second grant begins at slot %d, want %d", g.Slots[0].N, slotsPerGrant+1)
	}
}

func TestAFloodOfRequestsIsSlowedDown(t *testing.T) {
	w := newWorld(t)
	w.granted()
	w.ask()
	res, err := w.reconcile()
	if err != nil || res.RequeueAfter <= 0 || res.RequeueAfter > grantInterval {
		t.Errorf("right after a grant: %v, %v; want to wait up to %s", res, err, grantInterval)
	}
	if got := w.get().Status.Grant.Request; got != 1 {
		t.Errorf("request %d was answered at once", got)
	}
	w.clock.Step(grantInterval)
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if got := w.get().Status.Grant.Request; got != 2 {
		t.Errorf("request %d is answered after the interval, want 2", got)
	}
}

func TestAFullInboxGetsNoGrant(t *testing.T) {
	w := newWorld(t)
	uid := string(w.get().UID)
	for n := range int64(maxInboxObjects + 1) {
		w.must(w.bucket.Put(t.Context(), segment.InboxKey(uid, n+1), []byte("x")))
	}
	w.ask()
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	c := w.condition()
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.InboxFullReason {
		t.Errorf("Granted is %s %s: %s, want False InboxFull", c.Status, c.Reason, c.Message)
	}
	w.must(w.bucket.Delete(t.Context(), segment.InboxKey(uid, 1)))
	if _, err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if c := w.condition(); c.Status != metav1.ConditionTrue {
		t.Errorf("Granted is %s %s: %s after the inbox was worked off", c.Status, c.Reason, c.Message)
	}
	// Slots that hold objects are not granted again, whatever status forgot.
	if got := w.get().Status.Grant.FromSlot; got != maxInboxObjects+2 {
		t.Errorf("the grant begins at slot %d, objects lie up to %d", got, maxInboxObjects+1)
	}
}

func TestTroubleWithTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		spoil  func(*world)
		want   string
		says   string
	}{
		"no secret": {
			"a Secret that is missing is named",
			func(w *world) {
				w.must(w.admin.Delete(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: kube.StoreSecret}}))
			},
			v1alpha1.DependencyNotReadyReason, "create the Secret",
		},
		"host not named": {
			"a Secret goes only where it says",
			func(w *world) {
				s := &corev1.Secret{}
				w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: kube.StoreSecret}, s))
				s.Annotations[connect.HostsAnnotation] = "elsewhere.example.com"
				w.must(w.admin.Update(w.t.Context(), s))
			},
			v1alpha1.InvalidSpecReason, connect.HostsAnnotation,
		},
		"wrong key": {
			"a refused key is told apart from a store that is down",
			func(w *world) {
				s := &corev1.Secret{}
				w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: kube.StoreSecret}, s))
				s.Data["secretAccessKey"] = []byte("wrong")
				w.must(w.admin.Update(w.t.Context(), s))
			},
			v1alpha1.StoreAccessDeniedReason, "refuses the keys",
		},
		"no bucket": {
			"a bucket that is missing is named",
			func(w *world) {
				m := &v1alpha1.TeamMemory{}
				w.must(w.admin.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "team"}, m))
				m.Spec.Store.Bucket = "no-such-bucket"
				w.must(w.admin.Update(w.t.Context(), m))
			},
			v1alpha1.BucketNotFoundReason, "no-such-bucket",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.spoil(w)
			w.ask()
			_, _ = w.reconcile() // says what is wrong
			got := w.condition()
			if got.Status != metav1.ConditionFalse || got.Reason != c.want || !strings.Contains(got.Message, c.says) {
				t.Errorf("%s: Granted is %s %s: %s", c.reason, got.Status, got.Reason, got.Message)
			}
			for _, secret := range []string{s3.SecretAccessKey, "X-Amz"} {
				if strings.Contains(got.Message, secret) {
					t.Errorf("%s: the message holds a credential", c.reason)
				}
			}
			before := w.get().ResourceVersion
			for range 5 {
				_, _ = w.reconcile() // fails alike
			}
			if after := w.get().ResourceVersion; after != before {
				t.Errorf("%s: the same failure was written again", c.reason)
			}
		})
	}
}

// TestNoGrantWithoutPolicies: RBAC knows no owners, so without a policy anybody
// of the team could have a grant sealed to himself.
func TestNoGrantWithoutPolicies(t *testing.T) {
	cases := map[string]struct {
		reason string
		weaken func(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding)
	}{
		"no binding": {"nothing applies the policy", func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.PolicyName = "another"
		}},
		"audit only": {"it is logged and let through", func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
		}},
		"one namespace left out": {"this one may be it", func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}},
		"failures pass": {"a broken expression lets everything through", func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.FailurePolicy = new(admissionv1.Ignore)
		}},
		"a condition": {"it may leave anybody out", func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "no", Expression: "false"}}
		}},
		"some objects": {"an object chooses its own labels", func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ctx := t.Context()
			for _, policyName := range policies {
				key := types.NamespacedName{Name: policyName}
				policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
				w.must(w.admin.Get(ctx, key, policy))
				w.must(w.admin.Get(ctx, key, binding))
				p, b := policy.DeepCopy(), binding.DeepCopy()
				tc.weaken(p, b)
				w.r.Live = policyReader{Reader: w.admin, policy: p, binding: b}
				w.r.guardedAt = time.Time{}
				w.ask()
				_, err := w.reconcile()
				w.must(err)
				ws := w.get()
				if c := apimeta.FindStatusCondition(ws.Status.Conditions, v1alpha1.GrantedCondition); c == nil || c.Reason != v1alpha1.PolicyMissingReason || c.Status != metav1.ConditionFalse {
					t.Errorf("%s, %s: Granted is %v; want False, PolicyMissing", policyName, tc.reason, c)
				}
				if ws.Status.Grant != nil {
					t.Fatalf("%s, %s: a grant was made", policyName, tc.reason)
				}
			}
			w.r.Live = w.admin
			_, err := w.reconcile()
			w.must(err)
			if w.get().Status.Grant == nil {
				t.Error("the policies are whole again, and there is still no grant")
			}
		})
	}
}

// policyReader shows one policy and one binding in place of the live ones.
type policyReader struct {
	client.Reader
	policy  *admissionv1.ValidatingAdmissionPolicy
	binding *admissionv1.ValidatingAdmissionPolicyBinding
}

func (r policyReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	switch o := o.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		if key.Name == r.policy.Name {
			*o = *r.policy.DeepCopy()
			return nil
		}
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		if key.Name == r.policy.Name {
			*o = *r.binding.DeepCopy()
			return nil
		}
	}
	return r.Reader.Get(ctx, key, o, opts...)
}

// TestMissingPolicy: what is not there is not taken for standing, and the
// controller's own rights are enough to look.
func TestMissingPolicy(t *testing.T) {
	w := newWorld(t)
	missing, err := MissingPolicy(t.Context(), w.r.Live)
	w.must(err)
	if missing != "" {
		t.Errorf("the installed policy %s does not count as standing", missing)
	}
	if stands, err := stands(t.Context(), w.admin, "undersong-nothing"); err != nil || stands {
		t.Errorf("a policy that is not there: %v, %v; want false and no error", stands, err)
	}
}
