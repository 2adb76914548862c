//go:build envtest

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/test/kube"
	"github.com/undersong-dev/undersong/test/stack"
)

// ready waits until the one Session's Ready has a reason, and returns its
// message.
func (w *world) reason(want string) string {
	w.t.Helper()
	var message string
	w.must(stack.Eventually(w.t.Context(), within, func() error {
		sessions, err := w.team.Sessions(w.t.Context())
		if err != nil || len(sessions) != 1 {
			return fmt.Errorf("%d sessions: %w", len(sessions), err)
		}
		for _, c := range sessions[0].Status.Conditions {
			if c.Type == v1alpha1.ReadyCondition && c.Reason == want {
				message = c.Message
				return nil
			}
		}
		return fmt.Errorf("no Ready with reason %s: %+v", want, sessions[0].Status.Conditions)
	}))
	return message
}

// status waits until undersong status says something.
func (w *world) status(ws *stack.Workstation, want string) {
	w.t.Helper()
	w.must(stack.Eventually(w.t.Context(), within, func() error {
		out, err := ws.Run(w.t.Context(), "status")
		if err != nil {
			return err
		}
		if !strings.Contains(out, want) {
			return fmt.Errorf("undersong status does not say %q:\n%s", want, out)
		}
		return nil
	}))
}

func TestAWrongLettaKeyIsSaidAndNothingIsLost(t *testing.T) {
	w := newWorld(t, nil)
	key := types.NamespacedName{Namespace: w.team.Namespace, Name: kube.LettaSecret}
	secret := &corev1.Secret{}
	w.must(parts.Admin.Get(t.Context(), key, secret))
	right := secret.Data["apiKey"]
	secret.Data["apiKey"] = []byte("wrong")
	w.must(parts.Admin.Update(t.Context(), secret))
	w.startController()
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "Said with a wrong key.", "It waits in the archive.")
	if m := w.reason(v1alpha1.LettaRejectedReason); !strings.Contains(m, "credentialsSecretRef") || strings.Contains(m, "wrong") {
		t.Errorf("Ready says: %s", m)
	}
	w.must(parts.Admin.Get(t.Context(), key, secret))
	secret.Data["apiKey"] = right
	w.must(parts.Admin.Update(t.Context(), secret))
	w.check()
}

func TestAMemoryThatIsMissing(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	mem := &v1alpha1.TeamMemory{}
	w.must(parts.Admin.Get(t.Context(), types.NamespacedName{Namespace: w.team.Namespace, Name: w.team.Memory}, mem))
	w.must(parts.Admin.Delete(t.Context(), mem))
	// A newcomer is told so at once.
	if _, err := w.desk.Run(t.Context(), "init", "--kubeconfig", w.desk.Kubeconfig(), "--namespace", w.team.Namespace, "--memory", w.team.Memory, "--yes"); err == nil || !strings.Contains(err.Error(), "TeamMemory") {
		t.Errorf("undersong init says: %v", err)
	}
	// Who was there before sees it in the status, and loses nothing.
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "Said without a memory.", "It waits on the desk.")
	w.status(w.desk, "TeamMemory")
	fresh := &v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Namespace: mem.Namespace, Name: mem.Name}, Spec: mem.Spec}
	w.must(parts.Admin.Create(t.Context(), fresh))
	w.check()
}

func TestASessionNameThatSomebodyElseHas(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	id := uuid.NewString()
	bob, err := parts.Cluster.Client(parts.Cluster.User("bob"))
	w.must(err)
	squat := &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.team.Namespace, Name: v1alpha1.SessionName(id, "ada")},
		Spec: v1alpha1.SessionSpec{
			Owner: "bob", SessionID: id, Agent: v1alpha1.AgentClaudeCode, MemoryRef: v1alpha1.LocalRef{Name: w.team.Memory},
			Project: v1alpha1.Project{Name: "lantern", Remote: "git.example.com/lighthouse/lantern"},
		},
	}
	w.must(bob.Create(t.Context(), squat))
	if m := w.reason(v1alpha1.InvalidSpecReason); !strings.Contains(m, v1alpha1.SessionName(id, "bob")) {
		t.Errorf("Ready says: %s", m)
	}
	s := w.session(w.desk, w.cwd, id)
	w.turn(s, "Said under a taken name.", "It waits on the desk.")
	w.status(w.desk, "another owner")
	w.must(bob.Delete(t.Context(), squat))
	w.check()
}

func TestADeletedSessionStaysDeleted(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "Said before it was deleted.", "Noted.")
	sessions := w.processed()
	ada, err := parts.Cluster.Client(parts.Cluster.User("ada"))
	w.must(err)
	w.must(ada.Delete(t.Context(), &sessions[0]))
	w.turn(s, "Said after it was deleted.", "Nobody hears it.")
	w.status(w.desk, "Deleted")
	list := &v1alpha1.SessionList{}
	w.must(parts.Admin.List(t.Context(), list, client.InNamespace(w.team.Namespace)))
	if len(list.Items) != 0 {
		t.Error("the Session came back")
	}
	if strings.Contains(w.conversations(), "Said after it was deleted.") {
		t.Error("words after the deletion reached Letta")
	}
}

func TestWhatTheHookIsGiven(t *testing.T) {
	w := newWorld(t, nil)
	for name, stdin := range map[string]string{
		"empty": "", "not JSON": "hello", "half": `{"session_id":"`, "array": "[1]", "no session": `{"hook_event_name":"Stop"}`,
		"climbing session": `{"hook_event_name":"Stop","session_id":"../../x","transcript_path":"/etc/passwd","cwd":"/"}`,
		"no such file":     fmt.Sprintf(`{"hook_event_name":"Stop","session_id":%q,"transcript_path":"/no/such/file.jsonl","cwd":"/no/such/folder"}`, uuid.NewString()),
		"unknown event":    `{"hook_event_name":"Tomorrow","session_id":"5e550001-0000-4000-8000-000000000001"}`,
	} {
		t.Run(name, func(t *testing.T) {
			out, err := w.desk.HookRaw(t.Context(), w.cwd, stdin)
			if err != nil || out != "" {
				t.Errorf("the hook printed %q, %v; want nothing and exit 0", out, err)
			}
		})
	}
}

func TestAStrangerToTheTeamIsToldSo(t *testing.T) {
	w := newWorld(t, nil)
	ws, err := parts.Workstation(w.team, "mallory", "elsewhere")
	w.must(err)
	err = ws.Init(t.Context())
	if err == nil || !strings.Contains(err.Error(), "undersong-workstation") {
		t.Errorf("undersong init of a person without rights says: %v", err)
	}
}

func TestNoKubeconfig(t *testing.T) {
	w := newWorld(t, nil)
	_, err := w.desk.Run(t.Context(), "init", "--kubeconfig", filepath.Join(t.TempDir(), "none"), "--namespace", "x", "--memory", "y", "--yes")
	if err == nil || !strings.Contains(err.Error(), "kubeconfig") {
		t.Errorf("undersong init without a kubeconfig says: %v", err)
	}
}

func TestOutsideTheGlobsNothingIsHeard(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	private, err := w.desk.Project("diary", "https://git.example.com/ada/diary.git")
	w.must(err)
	s := w.session(w.desk, private, uuid.NewString())
	w.sessions = nil // it must not be recorded
	w.turn(s, "A secret thought.", "I keep it.")
	heard := w.session(w.desk, w.cwd, uuid.NewString())
	w.said = nil
	w.turn(heard, "A public thought.", "I tell it.")
	w.check()
	if strings.Contains(w.conversations(), "secret thought") {
		t.Error("words outside the globs reached Letta")
	}
	bucket, err := w.team.Open()
	w.must(err)
	w.must(stack.SearchBucket(t.Context(), bucket, []string{"A secret thought."}))
	if _, err := os.Stat(filepath.Join(private, ".letta")); err == nil {
		t.Error("state files were written into a project that is not heard")
	}
}

func TestALettaThatHangsAndFails(t *testing.T) {
	w := newWorld(t, func(m *v1alpha1.TeamMemory) {
		seconds := int32(5)
		m.Spec.Delivery.TurnTimeoutSeconds = &seconds
	})
	w.startController()
	parts.Letta.FailTurn(lettatest.TurnFault{})
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "The model fails at this.", "It is tried again.")
	w.processed()
	parts.Letta.Inject(lettatest.Fault{Route: "POST /v1/conversations/{id}/messages", Hang: true})
	w.turn(s, "Letta hangs at this.", "It is looked up and sent again.")
	w.processed()
	parts.Letta.Inject(lettatest.Fault{Route: "POST /v1/conversations/{id}/messages", Status: http.StatusTooManyRequests})
	w.turn(s, "Letta has too much to do.", "It is asked later.")
	w.check()
	if n := parts.Letta.Faults(); n != 0 {
		t.Errorf("%d ordered faults did not strike", n)
	}
}

func TestKubectlTellsTheStory(t *testing.T) {
	w := newWorld(t, nil)
	w.startController()
	s := w.session(w.desk, w.cwd, uuid.NewString())
	w.turn(s, "Hello.", "Hello to you.")
	w.must(s.Title("A greeting"))
	w.must(s.End(t.Context()))
	w.processed()
	w.must(stack.Eventually(t.Context(), within, func() error {
		out, err := exec.CommandContext(t.Context(), kubectl(t), "--kubeconfig", w.desk.Kubeconfig(), "get", "ses,wks,tmem,mblk").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for _, want := range []string{"OWNER", "PROJECT", "TITLE", "STATE", "UPLOADED", "PROCESSED", "READY", "A greeting", "Ended", "lantern", "ada"} {
			if !strings.Contains(string(out), want) {
				return fmt.Errorf("kubectl get does not show %q:\n%s", want, out)
			}
		}
		return nil
	}))
}
