package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// verdict is what doctor found of one thing.
type verdict string

const (
	fine    verdict = "ok"
	odd     verdict = "note" // worth knowing; nothing fails of it
	broken  verdict = "FAIL"
	skipped verdict = "skip" // could not be looked at because of another one
)

const (
	// skewAllowed is how far this clock may be off. Grants live an hour.
	skewAllowed = 2 * time.Minute
	// spoolWarn is the part of the spool's limit from which on it is said.
	spoolWarn = 0.8
	// backlogOld is how old a segment may be that is not archived.
	backlogOld = 24 * time.Hour
)

// finding is one line of doctor's report.
type finding struct {
	What    string  `json:"what"`
	Verdict verdict `json:"verdict"`
	// Message says what is so, and for a FAIL what to do.
	Message string `json:"message,omitempty"`
}

// errDoctor is returned, after the report, when something fails.
var errDoctor = errors.New("not all is right; each FAIL above says what to do")

func (s *System) doctorCommand() *cobra.Command {
	var asJSON, offline bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for everything that can be wrong, and say what to do",
		Long: `Look at the configuration, Claude Code's hooks, the daemon, the spool, the
cluster, your rights there, the memory, this workstation's grant and the object
store, and say of each what is so and what to do. It changes nothing.

Exit status: 0 when nothing fails, 1 when something does.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d := &doctor{System: s, offline: offline}
			if err := d.examine(c.Context()); err != nil {
				return err
			}
			if asJSON {
				if err := s.printJSON(d.found); err != nil {
					return err
				}
			} else if err := s.print("%s", d.render()); err != nil {
				return err
			}
			if slices.ContainsFunc(d.found, func(f finding) bool { return f.Verdict == broken }) {
				return errDoctor
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	cmd.Flags().BoolVar(&offline, "offline", false, "ask neither the cluster nor the store")
	return cmd
}

// doctor collects findings.
type doctor struct {
	*System

	offline bool
	home    string
	config  note.Config
	found   []finding
}

func (d *doctor) say(what string, v verdict, format string, args ...any) {
	d.found = append(d.found, finding{what, v, safe(fmt.Sprintf(format, args...))})
}

func (d *doctor) render() string {
	var b strings.Builder
	for _, f := range d.found {
		fmt.Fprintf(&b, "%-5s %s", f.Verdict, f.What)
		if f.Message != "" {
			b.WriteString(": " + f.Message)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (d *doctor) examine(ctx context.Context) error {
	var err error
	if d.home, err = d.System.home(); err != nil {
		return err
	}
	d.config, err = note.LoadConfig(d.home)
	if err != nil {
		message := err.Error()
		if !errors.Is(err, note.ErrNotConfigured) { // which says it itself
			message += "; run undersong init"
		}
		d.say("configuration", broken, "%s", message)
		d.settings()
		return nil // the report says it
	}
	if d.config.Off {
		d.say("configuration", odd, `"off" is set in %s: nothing is recorded and nothing shown`, filepath.Join(d.home, "config.json"))
	} else {
		d.say("configuration", fine, "team %s, memory %s, as %s", d.config.Namespace, d.config.Memory, d.config.Owner)
	}
	d.folder()
	d.settings()
	d.environment()
	d.daemon()
	d.spool()
	if d.offline {
		d.say("cluster and store", skipped, "--offline")
		return nil
	}
	d.cluster(ctx)
	d.store(ctx)
	return nil
}

// folder looks at the state directory: others must not read it, and it must
// take a file.
func (d *doctor) folder() {
	const what = "state directory"
	info, err := os.Stat(d.home)
	if err != nil {
		d.say(what, broken, "%s cannot be read: %v", d.home, errors.Unwrap(err))
		return
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		d.say(what, broken, "others on this computer can read %s (mode %#o): chmod 700 it", d.home, mode)
		return
	}
	if message := takesNoFile(d.home); message != "" {
		d.say(what, broken, "%s", message)
		return
	}
	d.say(what, fine, "%s", d.home)
}

// takesNoFile says so of a state directory, and what it means; empty: it takes one.
// The daemon cannot say it: where it would, it has no place either.
func takesNoFile(home string) string {
	probe := filepath.Join(home, "doctor.probe")
	if err := durable.WriteFile(probe, []byte("undersong doctor")); err != nil {
		return home + " takes no file, so nothing is read now: is the disk full, or mounted read-only, or not yours? Transcripts are kept, and reading goes on when there is room"
	}
	_ = durable.Remove(probe) // the next look removes it
	return ""
}

// settings looks at Claude Code's settings.
func (d *doctor) settings() {
	v, message := d.hooksCalled(d.home)
	d.say("hooks", v, "%s", message)
	for _, l := range d.leftovers() {
		if plugins[l.What] == "" { // the variables are said by environment
			d.say(l.What, odd, "%s", l.Says)
		}
	}
}

// pluginEnabled is what to do about claude-subconscious.
const pluginEnabled = "that plugin is enabled, too: both record each session. Disable it (/plugin in Claude Code); undersong migrate takes over what it knew"

// plugins are variables of claude-subconscious that have no meaning here, and
// where that is set now.
var plugins = map[string]string{
	"LETTA_DEBUG":    "undersong logs shows what hooks and daemon do",
	"LETTA_API_KEY":  "the key is in the cluster, and needed on no workstation; unset it",
	"LETTA_BASE_URL": "TeamMemory.spec.letta.baseURL says it",
	"LETTA_AGENT_ID": "TeamMemory.spec.agent says it",
	"LETTA_MODEL":    "TeamMemory.spec.agent.template.model says it",
}

// leftover is something of claude-subconscious that is found here.
type leftover struct {
	What string `json:"what"`
	Says string `json:"says"`
}

// leftovers are the variables of the plugin that are set, and the plugin itself
// where the user's settings enable it. Settings that cannot be read enable none.
func (s *System) leftovers() []leftover {
	var found []leftover
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		if s.Getenv(name) != "" {
			found = append(found, leftover{name, "is set, and not needed here: " + plugins[name]})
		}
	}
	if path, err := s.settingsPath(); err == nil {
		if names, err := enabledPlugins(path); err == nil && len(names) > 0 {
			found = append(found, leftover{"claude-subconscious", pluginEnabled})
		}
	}
	return found
}

func (d *doctor) environment() {
	for _, l := range d.leftovers() {
		if plugins[l.What] != "" { // the plugin itself is said beside the hooks
			d.say(l.What, odd, "%s", l.Says)
		}
	}
	switch mode := d.Getenv("LETTA_MODE"); {
	case strings.EqualFold(mode, "off"):
		d.say("LETTA_MODE", odd, "is off: sessions started from here are not recorded")
	case mode != "":
		d.say("LETTA_MODE", odd, "is %s; it can narrow what is shown, never widen it", mode)
	}
}

func (d *doctor) daemon() {
	const what = "daemon"
	info, running, err := daemon.Running(d.home)
	switch {
	case err != nil:
		d.say(what, broken, "%v", err)
		return
	case !running:
		d.say(what, fine, "not running; the next hook starts it")
	case info.Version != d.Version:
		d.say(what, odd, "version %s runs, this is %s; undersong daemon stop lets the next hook start the new one", info.Version, d.Version)
	default:
		d.say(what, fine, "running, process %d", info.PID)
	}
	if _, err := os.Stat(d.config.Daemon); err != nil {
		d.say(what, broken, "the hook starts %s, which is not there; run undersong init again", d.config.Daemon)
	}
	snapshot, known, err := daemon.ReadSnapshot(d.home)
	if err != nil || !known {
		return
	}
	for _, trouble := range snapshot.Trouble {
		d.say(trouble.Part, broken, "%s (for %s)", trouble.Message, ago(d.Clock.Now(), trouble.Since))
	}
	if w := snapshot.Waiting; w.Oldest != nil && d.Clock.Since(*w.Oldest) > backlogOld {
		d.say("backlog", broken, "%s wait to be archived, the oldest for %s; what is wrong above or below stops them", many(w.Segments, "segment"), ago(d.Clock.Now(), *w.Oldest))
	}
}

func (d *doctor) spool() {
	const what = "spool"
	var bytes int64
	dir := filepath.Join(d.home, daemon.SessionsDir)
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil && strings.HasSuffix(e.Name(), ".seg") {
			bytes += info.Size()
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		d.say(what, broken, "%s cannot be read", dir)
	case bytes >= spool.DefaultLimit:
		d.say(what, broken, "it is full (%s): nothing more is read until the cluster has verified some of it; transcripts keep the rest", size(bytes))
	case float64(bytes) > spoolWarn*spool.DefaultLimit:
		d.say(what, odd, "%s of %s are used", size(bytes), size(spool.DefaultLimit))
	default:
		d.say(what, fine, "%s of %s", size(bytes), size(spool.DefaultLimit))
	}
	if bad, err := note.Broken(d.home); err == nil && len(bad) > 0 {
		d.say("notes", odd, "%s could not be read and are set aside in notes/bad; what they spoke of is found by the next hook of that session", many(int64(len(bad)), "hook call"))
	}
}

// cluster looks at everything that the API server tells.
func (d *doctor) cluster(ctx context.Context) {
	rest, err := daemon.LoadREST(d.config.Kubeconfig, d.config.Context)
	if err != nil {
		d.say("kubeconfig", broken, "%v", err)
		return
	}
	if rest.Host != d.config.Server {
		d.say("kubeconfig", broken, "%v", daemon.ErrOtherServer)
		return
	}
	dates := &dateReader{}
	rest.Wrap(func(next http.RoundTripper) http.RoundTripper { dates.next = next; return dates })
	c, err := kube.New(rest)
	if err != nil {
		d.say("kubeconfig", broken, "%v", err)
		return
	}
	d.say("kubeconfig", fine, "%s", d.config.Kubeconfig)
	ctx, cancel := asking(ctx)
	defer cancel()
	who, err := daemon.WhoAmI(ctx, c)
	switch {
	case upload.LoginNeeded(err):
		d.say("login", broken, "it has expired: run undersong login, or log in as you do for kubectl")
		return
	case err != nil:
		d.say("API server", broken, "%s; what is recorded waits; does kubectl reach it from here, with %s?", upload.Explain(err), d.config.Kubeconfig)
		return
	case who != d.config.Owner:
		d.say("login", broken, "the cluster knows you as %s, and this workstation is %s's; log in as that user, or run undersong init", who, d.config.Owner)
		return
	}
	d.say("login", fine, "%s at %s", who, d.config.Server)
	d.clock(dates.last())
	lacks, err := rights(ctx, c, d.config.Namespace)
	switch {
	case err != nil:
		d.say("rights", broken, "%s", upload.Explain(err))
	case len(lacks) > 0:
		d.say("rights", broken, "%s", askForRights(who, d.config.Namespace, lacks))
	default:
		d.say("rights", fine, "all that a workstation needs in %s", d.config.Namespace)
	}
	d.memory(ctx, c)
	d.workstation(ctx, c)
}

// clock compares this clock with the API server's.
func (d *doctor) clock(server time.Time) {
	if server.IsZero() {
		return
	}
	off := d.Clock.Now().Sub(server)
	if off.Abs() > skewAllowed {
		d.say("clock", broken, "this clock is %s away from the API server's: set it; until then logins and certificates may be refused", off.Abs().Round(time.Second))
		return
	}
	d.say("clock", fine, "")
}

func (d *doctor) memory(ctx context.Context, c *kube.Client) {
	const what = "memory"
	m := &v1alpha1.TeamMemory{}
	err := c.Get(ctx, kube.Key{Namespace: d.config.Namespace, Name: d.config.Memory}, m)
	switch {
	case apierrors.IsNotFound(err):
		d.say(what, broken, "there is no TeamMemory %s in %s any more; ask the team's lead", d.config.Memory, d.config.Namespace)
		return
	case err != nil:
		d.say(what, broken, "%s", upload.Explain(err))
		return
	}
	if host, err := storeHost(m); err != nil || host != d.config.StoreHost {
		d.say(what, broken, "its object store is now %s, and this workstation sends to %s only; if the move is meant, run undersong init again", host, d.config.StoreHost)
	}
	ready := apimeta.FindStatusCondition(m.Status.Conditions, v1alpha1.ReadyCondition)
	switch {
	case ready == nil:
		d.say(what, broken, "no controller has looked at it; ask whoever runs undersong in the cluster")
	case ready.Status != metav1.ConditionTrue:
		d.say(what, broken, "not ready, %s: %s", ready.Reason, ready.Message)
	case m.Spec.Suspend != "" && m.Spec.Suspend != v1alpha1.SuspendNone:
		d.say(what, odd, "the team has suspended it: %s", m.Spec.Suspend)
	default:
		d.say(what, fine, "%s is ready", m.Name)
	}
}

func (d *doctor) workstation(ctx context.Context, c *kube.Client) {
	const what = "workstation"
	registry, err := upload.OpenRegistry(d.home)
	if err != nil {
		d.say(what, broken, "%v", err)
		return
	}
	w := &v1alpha1.Workstation{}
	err = c.Get(ctx, kube.Key{Namespace: d.config.Namespace, Name: registry.Name()}, w)
	switch {
	case apierrors.IsNotFound(err), err == nil && string(w.UID) != registry.UID():
		d.say(what, broken, "%s was revoked in the cluster; if you may, run undersong init again", registry.Name())
		return
	case err != nil:
		d.say(what, broken, "%s", upload.Explain(err))
		return
	}
	granted := apimeta.FindStatusCondition(w.Status.Conditions, v1alpha1.GrantedCondition)
	switch {
	case granted != nil && granted.Status == metav1.ConditionFalse:
		d.say(what, broken, "%s has no grant, %s: %s", w.Name, granted.Reason, granted.Message)
	case w.Status.Grant == nil:
		d.say(what, broken, "%s asked for a grant and nobody answered: is the controller running? kubectl describe workstation %s -n %s", w.Name, w.Name, w.Namespace)
	default:
		d.say(what, fine, "%s, slots up to %d", w.Name, w.Status.Grant.ToSlot)
	}
}

// store sees whether the object store answers at all. What it takes, the next
// segment shows: a look would cost a slot.
func (d *doctor) store(ctx context.Context) {
	const what = "object store"
	ctx, cancel := asking(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, d.config.StoreHost, nil)
	if err != nil {
		d.say(what, broken, "none is pinned; run undersong init again")
		return
	}
	resp, err := upload.NewHTTPClient(http.DefaultTransport).Do(req)
	if err != nil {
		d.say(what, broken, "%s cannot be reached from here: network, proxy or name; what is recorded waits", d.config.StoreHost)
		return
	}
	_ = resp.Body.Close() // that there is an answer is all that counts
	d.say(what, fine, "%s answers", d.config.StoreHost)
}

// dateReader keeps the date of the newest answer.
type dateReader struct {
	next http.RoundTripper

	mu   sync.Mutex
	date time.Time
}

// RoundTrip passes on.
func (r *dateReader) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err == nil {
		if at, perr := http.ParseTime(resp.Header.Get("Date")); perr == nil {
			r.mu.Lock()
			r.date = at
			r.mu.Unlock()
		}
	}
	return resp, err
}

func (r *dateReader) last() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.date
}
