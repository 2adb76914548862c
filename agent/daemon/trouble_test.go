//go:build envtest

package daemon

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

// Each of these plays a turn while something is wrong, sees what undersong
// status says, takes the cause away, and sees that what waited goes through.

func TestWithoutKubeconfig(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	hidden := m.kubeconfig() + ".hidden"
	k := m.talk()
	must(t, os.Rename(m.kubeconfig(), hidden))
	m.start()
	k.turn("q", "a")
	m.troubled("kubeconfig", "there is no file")
	must(t, os.Rename(hidden, m.kubeconfig()))
	k.settled(2)
	m.troubled("kubeconfig", "")
}

func TestAKubeconfigThatLeadsElsewhere(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	k := m.talk()
	good, err := os.ReadFile(m.kubeconfig())
	must(t, err)
	other := strings.Replace(string(good), cluster.Admin().Host, "https://evil.example.com", 1)
	must(t, os.WriteFile(m.kubeconfig(), []byte(other), 0o600))
	m.start()
	k.turn("q", "a")
	m.troubled("kubeconfig", "another API server")
	must(t, os.WriteFile(m.kubeconfig(), good, 0o600))
	k.settled(2)
}

func TestAnotherUsersKubeconfig(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	k := m.talk()
	good, err := os.ReadFile(m.kubeconfig())
	must(t, err)
	bobs, err := cluster.Kubeconfig(cluster.User("bob"), m.ns)
	must(t, err)
	must(t, os.WriteFile(m.kubeconfig(), bobs, 0o600))
	m.start()
	k.turn("q", "a")
	m.troubled("kubeconfig", "another user")
	must(t, os.WriteFile(m.kubeconfig(), append(good, '\n'), 0o600))
	k.settled(2)
}

func TestAnExpiredLogin(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	k := m.talk()
	good, err := os.ReadFile(m.kubeconfig())
	must(t, err)
	expired := cluster.User("ada")
	expired.CertData, expired.KeyData, expired.BearerToken = nil, nil, "expired"
	bad, err := cluster.Kubeconfig(expired, m.ns)
	must(t, err)
	must(t, os.WriteFile(m.kubeconfig(), bad, 0o600))
	m.start()
	k.turn("q", "a")
	m.troubled("login", "log in again")
	if s, _, err := ReadSnapshot(m.home); err != nil || !s.LoginNeeded {
		t.Errorf("status does not say that a login is needed: %+v, %v", s, err)
	}
	must(t, os.WriteFile(m.kubeconfig(), good, 0o600))
	k.settled(2)
	m.troubled("login", "")
}

func TestWithoutRole(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	k := m.talk()
	must(t, cluster.Team(t.Context(), s.ns, []string{"bob"}, nil))
	m.start()
	k.turn("q", "a")
	m.troubled("api/sessions", "role undersong-workstation")
	must(t, cluster.Team(t.Context(), s.ns, []string{"ada"}, nil))
	k.settled(2)
	m.troubled("api/sessions", "")
}

func TestTheAPIServerIsDown(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	api := &faulty{}
	m.options.WrapAPI = api.wrap
	m.start()
	k := m.talk()
	k.turn("q", "a")
	k.settled(2)
	api.down.Store(true)
	k.turn("q2", "a2")
	m.troubled("api", "cannot be reached")
	api.down.Store(false)
	k.settled(4)
	m.troubled("api", "")
}

func TestTheStoreIsDown(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	put := &faulty{}
	put.down.Store(true)
	m.options.Transport = put.wrap(http.DefaultTransport)
	m.start()
	k := m.talk()
	k.turn("q", "a")
	m.troubled("store", "cannot be reached from this workstation")
	if k.live() != nil {
		t.Error("there is a Session without a segment in the store")
	}
	put.down.Store(false)
	k.settled(2)
	m.troubled("store", "")
}

func TestWithoutMemory(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	admin := adminClient(t)
	must(t, admin.Delete(t.Context(), &v1alpha1.TeamMemory{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: memory}}))
	m.start()
	k := m.talk()
	k.turn("q", "a")
	m.troubled("memory", "there is no TeamMemory main")
	makeMemory(t, s.ns)
	k.settled(2)
	m.troubled("memory", "")
}

func TestTheControllerIsDown(t *testing.T) {
	s := newTeam(t)
	s.set(func() { s.paused = true })
	m := newMachine(t, s, "ada")
	m.start()
	k := m.talk()
	k.turn("q", "a")
	m.troubled("grant", "has not granted upload slots")
	s.set(func() { s.paused = false })
	k.settled(2)
	m.troubled("grant", "")
}

// TestARuleOfTheTeamThatCannotBeUsed: nothing is read meanwhile, the person is
// told, and nothing is lost.
func TestARuleOfTheTeamThatCannotBeUsed(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	rule := func(pattern string) {
		t.Helper()
		mem := &v1alpha1.TeamMemory{}
		must(t, adminClient(t).Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: memory}, mem))
		mem.Spec.Capture.Redact = []v1alpha1.RedactionRule{{Name: "r", Pattern: pattern}}
		must(t, adminClient(t).Update(t.Context(), mem))
	}
	rule("(")
	m.start()
	k := m.talk()
	k.turn("q", "a moonbeam")
	m.troubled("read/"+k.id, "redaction rule")
	rule("moonbeam")
	k.settled(2)
	m.troubled("read/"+k.id, "")
	lines := strings.Join(s.lines(k.name(), segment.MainStream), "\n")
	if strings.Contains(lines, "moonbeam") || !strings.Contains(lines, "team-r") {
		t.Errorf("the team's rule was not applied:\n%s", lines)
	}
}

func TestAGrantForAnotherStore(t *testing.T) {
	s := newTeam(t)
	s.set(func() { s.host = "http://evil.example.com" })
	m := newMachine(t, s, "ada")
	m.start()
	k := m.talk()
	k.turn("q", "a")
	m.troubled("grant", "another store host")
	s.set(func() { s.host = "" })
	k.settled(2)
	m.troubled("grant", "")
}

func TestGrantsThatExpire(t *testing.T) {
	s := newTeam(t)
	s.set(func() { s.life = time.Second })
	m := newMachine(t, s, "ada")
	m.start()
	k := m.talk()
	k.turn("q", "a")
	k.settled(2)
	// The clock of the store decides: its second has gone by when it says so.
	<-time.NewTimer(2 * time.Second).C
	s.set(func() { s.life = time.Hour })
	k.turn("q2", "a2")
	k.settled(4)
	m.troubled("store", "")
}

func TestAClockThatIsADayOff(t *testing.T) {
	for name, by := range map[string]time.Duration{"ahead": 24 * time.Hour, "behind": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := newTeam(t)
			s.set(func() { s.say = "the moon decides" })
			m := newMachine(t, s, "ada")
			m.options.Clock = shifted{by: by}
			m.start()
			k := m.talk()
			k.turn("q", "a")
			m.troubled("clock", "differ by more than five minutes")
			k.settled(2)
			// The hook's clock is as wrong as ours.
			eventually(t, "the whisper can be claimed", func() error {
				text, _, _, err := whisper.Claim(m.home, k.id, time.Now().Add(by), whisper.Limit{})
				if err == nil && !strings.Contains(text, "the moon decides") {
					err = errFault
				}
				return err
			})
		})
	}
}

func TestASessionNameThatIsTaken(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	k := m.talk()
	squat := &v1alpha1.Session{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: k.name()},
		Spec: v1alpha1.SessionSpec{
			Owner: "bob", SessionID: k.id, Agent: v1alpha1.AgentClaudeCode, MemoryRef: v1alpha1.LocalRef{Name: memory},
			Project: v1alpha1.Project{Name: "tide", Remote: remote},
		},
	}
	lead, err := cluster.Client(cluster.User("lead"))
	must(t, err)
	must(t, lead.Create(t.Context(), squat))
	m.start()
	k.turn("q", "a")
	m.troubled("session/"+k.id, "taken by another owner")
	must(t, lead.Delete(t.Context(), squat))
	k.settled(2)
	m.troubled("session/"+k.id, "")
}

func TestADeletedSessionStaysDeleted(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	stop := m.start()
	k := m.talk()
	k.turn("q", "a")
	k.settled(2)
	must(t, m.client().Delete(t.Context(), k.live()))
	eventually(t, "the workstation knows", func() error {
		if !k.local().Withdrawn {
			return errFault
		}
		return nil
	})
	k.turn("q2", "a2")
	other := m.talk() // whatever is done is done before this one is
	other.turn("q", "a")
	other.settled(2)
	stop()
	m.start()
	other.turn("q2", "a2")
	other.settled(4)
	if k.live() != nil {
		t.Error("the Session was made again")
	}
}

// TestASessionDeletedWhileTheDaemonIsAway is the same without the event.
func TestASessionDeletedWhileTheDaemonIsAway(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	stop := m.start()
	k := m.talk()
	k.turn("q", "a")
	k.settled(2)
	stop()
	must(t, m.client().Delete(t.Context(), k.live()))
	k.turn("q2", "a2")
	m.start()
	eventually(t, "the workstation knows", func() error {
		if s := k.local(); !s.Withdrawn || len(s.Segments) > 0 {
			return errFault
		}
		return nil
	})
	if k.live() != nil {
		t.Error("the Session was made again")
	}
}

// TestASessionGoesOnAfterItsTimeWasOver: what is said later, and what could not
// be sent meanwhile, is recorded in the next Session of that name.
func TestASessionGoesOnAfterItsTimeWasOver(t *testing.T) {
	for name, away := range map[string]bool{"at work": false, "away": true} {
		t.Run(name, func(t *testing.T) {
			s := newTeam(t)
			long := time.Now().AddDate(0, 0, -31)
			s.set(func() { s.active = &long })
			m := newMachine(t, s, "ada")
			stop := m.start()
			k := m.talk()
			want := k.turn("q", "a")
			k.settled(2)
			eventually(t, "the workstation knows how old it is", func() error {
				if !k.local().Active.Equal(long.Truncate(time.Second)) {
					return errFault
				}
				return nil
			})
			old := k.live()
			if away {
				stop()
			}
			must(t, m.client().Delete(t.Context(), old))
			if !away {
				eventually(t, "the workstation knows", func() error {
					if !k.local().Expired {
						return errFault
					}
					return nil
				})
				if k.live() != nil {
					t.Error("a Session was made again with nothing new to say")
				}
			}
			want = append(want, k.turn("q2", "a2")...)
			if away {
				m.start()
			}
			k.settled(4)
			if live := k.live(); live == nil || live.UID == old.UID || live.Spec.Lines != 4 || k.local().Withdrawn || k.local().Expired {
				t.Errorf("Session %+v, state %+v", live, k.local())
			}
			if diff := cmp.Diff(want, s.lines(k.name(), segment.MainStream)); diff != "" {
				t.Errorf("archive (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAWithdrawnSessionSaysWhatIsGone: an erasure does not wait for what was
// dropped.
func TestAWithdrawnSessionSaysWhatIsGone(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	k := m.talk()
	stop := m.start()
	k.turn("q", "a")
	k.settled(2)
	stop()
	queue, err := spool.Open(spool.Options{Dir: filepath.Join(m.home, SessionsDir), Owner: m.config.Owner, Workstation: m.config.Workstation})
	must(t, err)
	session, _ := queue.Session(k.id)
	must(t, session.Withdraw())
	live := k.live()
	before := live.DeepCopy()
	live.Status.SyncState.Writers[0].Wanted = []int64{1}
	must(t, s.client.Status().Patch(t.Context(), live, client.MergeFrom(before)))
	m.start()
	eventually(t, "the workstation says that the segment is gone", func() error {
		if w := k.live().Spec.Writers[0]; len(w.Gone) != 1 || w.Gone[0] != 1 {
			return errFault
		}
		return nil
	})
	if state := k.local(); !state.Withdrawn {
		t.Errorf("state %+v", state)
	}
}

// TestASessionThatComesBackWithABacklog: Sessions were deleted by mistake, or with
// the cluster's memory, and a lead made them again from the archive. What waited
// was dropped; it is read again.
func TestASessionThatComesBackWithABacklog(t *testing.T) {
	s := newTeam(t)
	put := &faulty{}
	m := newMachine(t, s, "ada")
	m.options.Transport = put.wrap(http.DefaultTransport)
	stop := m.start()
	k := m.talk()
	first := k.turn("q", "a")
	k.settled(2)
	archived := k.live()
	put.down.Store(true)
	second := k.turn("q2", "a2")
	waits := func(want bool) {
		t.Helper()
		eventually(t, "the session is withdrawn, or is not", func() error {
			if state := k.local(); state.Withdrawn != want || len(state.Segments) > 0 && want {
				return errFault
			}
			return nil
		})
	}
	eventually(t, "the lines wait", func() error {
		if k.local().Head.Lines != 4 {
			return errFault
		}
		return nil
	})
	must(t, adminClient(t).Delete(t.Context(), archived.DeepCopy()))
	waits(true)
	again := &v1alpha1.Session{ObjectMeta: metav1.ObjectMeta{Namespace: archived.Namespace, Name: archived.Name}, Spec: archived.Spec}
	for i := range again.Spec.Writers {
		again.Spec.Writers[i].Slots = nil
	}
	must(t, adminClient(t).Create(t.Context(), again))
	waits(false)
	put.down.Store(false)
	stop()
	m.start() // at every start what was not read is
	k.settled(6)
	if diff := cmp.Diff(append(slices.Clone(first), append(first, second...)...), s.lines(k.name(), segment.MainStream)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

func TestARevokedWorkstation(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	stop := m.start()
	k := m.talk()
	k.turn("q", "a")
	k.settled(2)
	must(t, adminClient(t).Delete(t.Context(), &v1alpha1.Workstation{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: m.config.Workstation}}))
	m.troubled("workstation", "revoked")
	second := k.turn("q2", "a2")
	eventually(t, "the lines wait", func() error {
		if k.local().Head.Lines != 4 {
			return errFault
		}
		return nil
	})
	if got := k.live().Spec.Lines; got != 2 {
		t.Errorf("%d lines in the cluster, want 2", got)
	}

	// Registered anew, what waits goes on although nobody speaks in the session any
	// more, and nothing that is archived is sent again.
	stop()
	must(t, os.Remove(k.path))
	old := m.config.Workstation
	registry, err := upload.NewRegistry(m.home)
	must(t, err)
	must(t, spool.Renew(spool.Options{Dir: filepath.Join(m.home, SessionsDir), Owner: "ada", Workstation: old}, registry.Name()))
	identity, err := NewIdentity(m.home)
	must(t, err)
	desk := upload.Desk{Client: m.client(), Registry: registry, Namespace: s.ns, Owner: "ada", Memory: memory, PublicKey: identity.Recipient(), Version: "test"}
	must(t, desk.Register(t.Context()))
	m.config.Workstation = registry.Name()
	m.save()
	m.start()
	k.settled(2)
	if diff := cmp.Diff(second, s.lines(k.name(), segment.MainStream)); diff != "" { // the stand-in keeps one segment of a number
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

func TestASegmentIsSentAgain(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	k := m.talk()
	s.set(func() { s.wanted[k.name()] = 1 })
	m.start()
	want := k.turn("q", "a")
	k.settled(2)
	if diff := cmp.Diff(want, s.lines(k.name(), segment.MainStream)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
	if s.wanted[k.name()] != 0 {
		t.Error("nothing was asked for again")
	}
}

func TestASegmentWhoseFileIsLost(t *testing.T) {
	s := newTeam(t)
	put := &faulty{}
	put.down.Store(true)
	m := newMachine(t, s, "ada")
	m.options.Transport = put.wrap(http.DefaultTransport)
	stop := m.start()
	k := m.talk()
	k.turn("q", "a")
	m.troubled("store", "cannot be reached")
	stop()
	must(t, os.Remove(filepath.Join(m.home, SessionsDir, k.id, "1.seg")))
	put.down.Store(false)
	m.start()
	k.turn("q2", "a2")
	eventually(t, "the cluster is told that it is gone", func() error {
		live := k.live()
		if live == nil || len(live.Spec.Writers) != 1 || !cmp.Equal(live.Spec.Writers[0].Gone, []int64{1}) || live.Spec.Writers[0].Segments < 2 {
			return errFault
		}
		return nil
	})
}

func TestTwoWorkstationsOnOneSession(t *testing.T) {
	s := newTeam(t)
	one, two := newMachine(t, s, "ada"), newMachine(t, s, "ada")
	one.start()
	two.start()
	a, b := one.talk(), two.talk()
	b.id, b.path = a.id, strings.ReplaceAll(b.path, b.id, a.id)
	for range 3 {
		a.turn("q", "a")
		b.turn("q", "a")
	}
	a.settled(6)
	b.settled(6)
	live := a.live()
	if live.Spec.Lines != 12 || len(live.Spec.Writers) != 2 {
		t.Errorf("%d lines of %d writers, want 12 of 2", live.Spec.Lines, len(live.Spec.Writers))
	}
}

func TestATranscriptThatComesLate(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	m.start()
	k := m.talk()
	k.hook("SessionStart")
	k.hook("UserPromptSubmit")
	eventually(t, "the session is known", func() error {
		if k.local().SessionID == "" {
			return errFault
		}
		return nil
	})
	k.turn("q", "a")
	k.settled(2)
}

func TestLinesThatCameWithoutANote(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	stop := m.start()
	k, other := m.talk(), m.talk()
	k.turn("q", "a")
	k.settled(2)
	k.append(k.record("user", "nobody told of this"))
	other.hook("SessionStart")
	k.settled(3)
	stop()
	k.append(k.record("user", "nor of this"))
	m.start()
	k.settled(4)
}

func TestWhatWasWrittenBeforeInitStays(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	k := m.talk()
	k.append(k.record("user", "before init"))
	_, err := WriteBaseline(m.home, m.projects())
	must(t, err)
	m.start()
	want := k.turn("q", "a")
	k.settled(2)
	if diff := cmp.Diff(want, s.lines(k.name(), segment.MainStream)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

// TestWhatAnotherPluginSentStays: a baseline that was raised since init holds,
// and never falls.
func TestWhatAnotherPluginSentStays(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	k := m.talk()
	k.append(k.record("user", "before init"))
	first, err := Measure(m.home, m.projects())
	must(t, err)
	_, err = WriteBaseline(m.home, m.projects())
	must(t, err)
	sent := func(sizes map[string]int64) {
		t.Helper()
		must(t, WithholdSent(m.home, map[string]Sent{k.path: {Behind: sizes[k.path]}}))
	}
	k.append(k.record("user", "the plugin has sent this"))
	sizes, err := Measure(m.home, m.projects())
	must(t, err)
	sent(sizes)
	sent(first) // it never withholds less
	m.start()
	want := k.turn("q", "a")
	k.settled(2)
	if diff := cmp.Diff(want, s.lines(k.name(), segment.MainStream)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
	receipts, err := spool.Receipts(filepath.Join(m.home, SessionsDir), k.id)
	must(t, err)
	if w := receipts[0].Withheld; len(w) != 2 || w[0].Reason != read.ReasonBeforeInit || w[1].Reason != read.ReasonSent {
		t.Errorf("withheld is %+v", w)
	}
}

func TestNothingIsSaidOfASessionThatMayNotBeHeard(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	m.cwd = m.project("private", "https://git.example.com/ada/private.git")
	m.start()
	k := m.talk()
	k.turn("q", "a")
	eventually(t, "the session was read", func() error {
		if len(k.local().Cursors) == 0 {
			return errFault
		}
		return nil
	})
	m.cwd = m.project("tide", "https://"+remote)
	other := m.talk()
	other.turn("q", "a")
	other.settled(2)
	if k.live() != nil {
		t.Error("there is a Session")
	}
	if n := count(filepath.Join(m.home, SessionsDir, k.id, "*.seg")); n > 0 {
		t.Errorf("there are %d segments", n)
	}
}

func TestAWhisperIsDeliveredOnlyWhenItIsRead(t *testing.T) {
	s := newTeam(t)
	s.set(func() { s.say = "the moon decides" })
	m := newMachine(t, s, "ada")
	m.start()
	k := m.talk()
	k.turn("q", "a")
	k.settled(2)
	claim := func() string {
		var id string
		eventually(t, "a whisper can be claimed", func() error {
			_, _, got, err := whisper.Claim(m.home, k.id, time.Now(), whisper.Limit{TextOnly: true})
			if err != nil || len(got) == 0 {
				return errFault
			}
			id = got[0].ID
			return nil
		})
		return id
	}
	s.set(func() { s.say = "" })
	first := claim()
	k.turn("q2", "a2") // without a trace of it
	k.settled(4)
	again := claim()
	if again != first {
		t.Fatalf("claimed %s and then %s", first, again)
	}
	k.append(`{"type":"attachment","uuid":"x","sessionId":"` + k.id + `","cwd":"` + m.cwd + `","attachment":{"type":"hook_additional_context","content":["<team_memory id=\"` + again + `\">"]}}`)
	k.hook("Stop")
	eventually(t, "the whisper is done", func() error {
		if n := count(filepath.Join(m.home, "whispers", k.id, "done", "*"+again+"*")); n != 1 {
			return errFault
		}
		return nil
	})
}

func TestRecallCanBeSuspended(t *testing.T) {
	s := newTeam(t)
	s.set(func() { s.say = "the moon decides" })
	admin := adminClient(t)
	suspend := func(to v1alpha1.Suspend) {
		eventually(t, "the memory is changed", func() error {
			mem := &v1alpha1.TeamMemory{}
			mem.Namespace, mem.Name = s.ns, memory
			if err := admin.Get(t.Context(), keyOf(mem), mem); err != nil {
				return err
			}
			mem.Spec.Suspend = to
			return admin.Update(t.Context(), mem)
		})
	}
	suspend(v1alpha1.SuspendRecall)
	m := newMachine(t, s, "ada")
	m.start()
	k := m.talk()
	k.turn("q", "a")
	k.settled(2)
	pattern := filepath.Join(m.home, "whispers", k.id, "waiting", "*w-*")
	if n := count(pattern); n != 0 {
		t.Errorf("%d whispers wait though recall is suspended", n)
	}
	suspend(v1alpha1.SuspendNone)
	eventually(t, "the whisper that was held back comes", func() error {
		if count(pattern) != 1 {
			return errFault
		}
		return nil
	})
}

func TestTheDaemonLeavesWhenIdle(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	m.config.IdleExitSeconds = 1
	m.save()
	k := m.talk()
	k.turn("q", "a")
	if err := Run(t.Context(), m.options); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if s := k.local(); s.Verified.Lines != 2 || len(s.Segments) > 0 {
		t.Errorf("it left with work to do: %+v", s)
	}
	s, _, err := ReadSnapshot(m.home)
	if err != nil || s.Running {
		t.Errorf("status says it runs: %v", err)
	}
}

// TestTheDaemonAsksToForget: what a command could not ask the cluster for, as the
// network was cut, the daemon asks for when it is back, also one that was started
// meanwhile. It does not leave before.
func TestTheDaemonAsksToForget(t *testing.T) {
	for name, restarted := range map[string]bool{"the daemon runs on": false, "the daemon was killed": true} {
		t.Run(name, func(t *testing.T) {
			s := newTeam(t)
			m := newMachine(t, s, "ada")
			m.config.IdleExitSeconds = 1
			m.save()
			api := &faulty{}
			m.options.WrapAPI = api.wrap
			k := m.talk()
			k.turn("why is the tide late?", "the moon is")
			must(t, Run(t.Context(), m.options))
			k.settled(2)

			run := func(ctx context.Context) chan error {
				ended := make(chan error, 1)
				go func() { ended <- Run(ctx, m.options) }()
				return ended
			}
			from, to := int64(1), int64(2)
			wish := upload.Wish{
				For: upload.Addressee(m.config), SessionID: k.id, Name: k.name(),
				Request: v1alpha1.Request{ID: "forget-1", Kind: v1alpha1.RequestForget, Workstation: m.config.Workstation, FromLine: &from, ToLine: &to},
			}
			must(t, upload.UpdateWishes(t.Context(), m.home, func([]upload.Wish) []upload.Wish { return []upload.Wish{wish} }))
			api.down.Store(true)
			ctx, kill := context.WithCancel(t.Context())
			defer kill()
			ended := run(ctx)
			m.troubled(upload.PartAPI, "cannot be reached")
			if restarted {
				kill()
				must(t, <-ended)
				ended = run(t.Context())
			}
			api.down.Store(false)
			must(t, <-ended)
			list, err := upload.Wishes(m.home)
			if err != nil || len(list) != 1 || list[0].Result != "forgotten in the cluster." {
				t.Errorf("kept is %+v, %v", list, err)
			}
			live := k.live()
			if live == nil || len(live.Spec.Requests) != 1 || *live.Spec.Requests[0].ToLine != 2 {
				t.Errorf("asked for is %+v", live)
			}
		})
	}
}

// TestForgottenWordsDoNotFollow: the store took a segment, and the API server could
// not be told of it or gave no answer. What a person takes back then does not go
// up when the network is there again.
func TestForgottenWordsDoNotFollow(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		fails  string // the method
		after  bool
		unsent int64
		want   string
	}{
		"not told":   {reason: "the words are taken out here", fails: http.MethodGet, unsent: 1, want: "undersong-stub"},
		"lost reply": {reason: "the cluster has the chain; it is asked to erase them", fails: http.MethodPatch, after: true, unsent: 2, want: "the moon is"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTeam(t)
			m := newMachine(t, s, "ada")
			m.config.IdleExitSeconds = 1
			m.save()
			var down, lost atomic.Bool
			down.Store(true)
			m.options.WrapAPI = func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(req *http.Request) (*http.Response, error) {
					if lost.Load() && down.Load() {
						return nil, errFault
					}
					if !down.Load() || req.Method != tc.fails || !strings.Contains(req.URL.Path, "/sessions/") {
						return next.RoundTrip(req)
					}
					lost.Store(tc.after)
					s.set(func() { s.paused = true }) // nothing is verified meanwhile
					if tc.after {
						if resp, err := next.RoundTrip(req); err == nil {
							_ = resp.Body.Close()
						}
					}
					return nil, errFault
				})
			}
			k := m.talk()
			k.turn("why is the tide late?", "the moon is")
			ctx, kill := context.WithCancel(t.Context())
			defer kill()
			ended := make(chan error, 1)
			go func() { ended <- Run(ctx, m.options) }()
			eventually(t, "the store has it, and the API server fails", func() error {
				state := k.local()
				if len(state.Segments) != 1 || state.Segments[0].SlotState != spool.SlotUploaded || m.trouble()[upload.PartSession+k.id] == "" && m.trouble()[upload.PartAPI] == "" {
					return fmt.Errorf("%+v, %v", state.Segments, m.trouble())
				}
				return nil
			})
			kill()
			must(t, <-ended)
			down.Store(false)

			queue, err := spool.Open(spool.Options{Dir: filepath.Join(m.home, SessionsDir), Owner: m.config.Owner, Workstation: m.config.Workstation})
			must(t, err)
			session, _ := queue.Session(k.id)
			if got := session.Unsent(); got != tc.unsent {
				t.Errorf("%s: unsent from segment %d on, want %d", tc.reason, got, tc.unsent)
			}
			must(t, session.Erase(map[int64][]int{1: {0, 1}}, "forgotten"))
			s.set(func() { s.paused = false })
			again, stop := context.WithTimeout(t.Context(), 30*time.Second) // where cluster and spool disagree it would stay
			defer stop()
			must(t, Run(again, m.options))
			k.settled(2)
			s.mu.Lock()
			defer s.mu.Unlock()
			kept := ""
			for _, segments := range s.archive {
				for _, lines := range segments {
					kept += string(bytes.Join(lines, nil))
				}
			}
			if len(s.archive) != 1 || !strings.Contains(kept, tc.want) || tc.unsent == 1 && strings.Contains(kept, "moon") {
				t.Errorf("%s: the archive has %s", tc.reason, kept)
			}
		})
	}
}

func TestOneDaemonPerStateDirectory(t *testing.T) {
	m := newMachine(t, newTeam(t), "ada")
	m.start()
	eventually(t, "it runs", func() error {
		if _, running, err := Running(m.home); err != nil || !running {
			return errFault
		}
		return nil
	})
	if err := Run(t.Context(), m.options); err != ErrRunning { //nolint:errorlint // returned as it is
		t.Errorf("Run: %v", err)
	}
}

func TestARunningDaemonFollowsItsConfiguration(t *testing.T) {
	s := newTeam(t)
	m := newMachine(t, s, "ada")
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- Run(ctx, m.options) }()
	k := m.talk()
	want := k.turn("why is the tide late?", "the moon is")
	k.settled(2)

	m.config.Exclude = []string{remote}
	m.save()
	k.turn("and what did the doctor say?", "rest")
	eventually(t, "the excluded lines are passed over", func() error {
		info, err := os.Stat(k.path)
		if err == nil && k.local().Cursors[read.Main].Offset != info.Size() {
			err = errFault
		}
		return err
	})
	m.config.Exclude = nil
	m.save()
	want = append(want, k.turn("and tomorrow?", "later still")...)
	k.settled(4)
	if diff := cmp.Diff(want, s.lines(k.name(), segment.MainStream)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}

	first, _, err := Running(m.home)
	must(t, err)
	m.config.IdleExitSeconds = 3600
	m.save()
	eventually(t, "it works by another configuration", func() error {
		if now, running, err := Running(m.home); err != nil || !running || now.StartedAt.Equal(first.StartedAt) {
			return errFault
		}
		return nil
	})
	want = append(want, k.turn("and then?", "earlier")...)
	k.settled(6)
	if diff := cmp.Diff(want, s.lines(k.name(), segment.MainStream)); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}

	m.config.Off = true
	m.save()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(30 * time.Second):
		t.Error("it runs though the person switched it off")
	}
}
