package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
)

// report is what undersong status knows; --json prints it as it is.
type report struct {
	Version    string `json:"version"`
	Home       string `json:"home"`
	Configured bool   `json:"configured"`
	Off        bool   `json:"off"`

	// Problem says why the configuration, or something beside it, cannot be used.
	// Empty when all can.
	Problem string `json:"problem,omitempty"`

	Owner       string    `json:"owner,omitempty"`
	Namespace   string    `json:"namespace,omitempty"`
	Memory      string    `json:"memory,omitempty"`
	Server      string    `json:"server,omitempty"`
	Kubeconfig  string    `json:"kubeconfig,omitempty"`
	Context     string    `json:"context,omitempty"`
	StoreHost   string    `json:"storeHost,omitempty"`
	Workstation string    `json:"workstation,omitempty"`
	ConsentedAt time.Time `json:"consentedAt,omitzero"`

	// Here says whether a session in this folder is recorded now.
	Here *here `json:"here,omitempty"`

	// Hooks says why Claude Code does not call our hooks, as far as its settings
	// tell. Empty: it does.
	Hooks string `json:"hooks,omitempty"`

	Running bool        `json:"running"`
	Daemon  daemon.Info `json:"daemon,omitzero"`

	// Import is how far the import of older sessions is; nil while none is under
	// way.
	Import *importReport `json:"import,omitempty"`

	// Forget is what is to be forgotten in the cluster, and what became of it
	// while nobody was told.
	Forget []forgetReport `json:"forget,omitempty"`

	// Leftovers are what is found here of the plugin claude-subconscious.
	Leftovers []leftover `json:"leftovers,omitempty"`

	NotesWaiting    int `json:"notesWaiting"`
	NotesBroken     int `json:"notesBroken"`
	WhispersWaiting int `json:"whispersWaiting"`

	// Status is what the daemon last said of itself.
	Status *daemon.Snapshot `json:"status,omitempty"`
}

func (s *System) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say what is recorded, what waits, and what is wrong",
		Long: `Say whether this workstation records, for whom, how far each session is, what
waits, and what is wrong, with what to do about it. It asks neither the cluster
nor the store: it says what the daemon last saw.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			r, err := s.report()
			if err != nil {
				return err
			}
			if asJSON {
				text, err := json.MarshalIndent(r, "", "  ")
				if err != nil {
					return err
				}
				return s.print("%s\n", text)
			}
			return s.print("%s", render(r, s.Clock.Now()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

// report looks at the state directory.
func (s *System) report() (*report, error) {
	home, err := s.home()
	if err != nil {
		return nil, err
	}
	r := &report{Version: s.Version, Home: home}
	config, err := note.LoadConfig(home)
	switch {
	case errors.Is(err, note.ErrNotConfigured):
		return r, nil
	case err != nil:
		r.Problem = err.Error()
		return r, nil //nolint:nilerr // the report says it
	}
	r.Configured, r.Off, r.ConsentedAt = true, config.Off, config.ConsentedAt
	r.Owner, r.Namespace, r.Memory, r.Workstation = config.Owner, config.Namespace, config.Memory, config.Workstation
	r.Server, r.Kubeconfig, r.Context, r.StoreHost = config.Server, config.Kubeconfig, config.Context, config.StoreHost

	r.Problem = takesNoFile(home)
	r.Here = s.here(home, config)
	if v, message := s.hooksCalled(home); v == broken {
		r.Hooks = message
	}
	if r.Daemon, r.Running, err = daemon.Running(home); err != nil {
		r.Problem = err.Error()
	}
	if snapshot, known, err := daemon.ReadSnapshot(home); err != nil {
		r.Problem = err.Error()
	} else if known {
		snapshot.Running = r.Running // a daemon that was killed could not say so
		r.Status = &snapshot
	}
	if p, err := importProgress(home, config); err != nil {
		r.Problem = err.Error()
	} else if p.Archived < p.Sessions {
		p.Paused = s.pausedNow(home)
		r.Import = p
	}
	wishes, err := upload.Wishes(home)
	if err != nil {
		r.Problem = err.Error()
	}
	for _, w := range wishes {
		if w.Told {
			continue
		}
		r.Forget = append(r.Forget, forgetReportOf(w, upload.Addressee(config)))
	}
	r.Leftovers = s.leftovers()
	r.NotesWaiting = countFiles(note.Dir(home))
	if broken, err := note.Broken(home); err == nil {
		r.NotesBroken = len(broken)
	}
	r.WhispersWaiting = whispersWaiting(home)
	return r, nil
}

// countFiles counts the notes of a folder.
func countFiles(dir string) int {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0 // no hook was called yet
	}
	n := 0
	for _, file := range files {
		if file.Type().IsRegular() && !durable.IsTemp(file.Name()) {
			n++
		}
	}
	return n
}

// maxWhisper bounds what is read of a whisper's file.
const maxWhisper = 64 << 10

// whispersWaiting counts the whispers, of all sessions, that wait for a prompt.
// A line for the person alone is none.
func whispersWaiting(home string) int {
	files, err := filepath.Glob(filepath.Join(glob(home), "whispers", "*", "waiting", "*.json"))
	if err != nil {
		return 0
	}
	n := 0
	for _, file := range files {
		data, err := durable.ReadFile(file, maxWhisper)
		var w whisper.Whisper
		if err == nil && json.Unmarshal(data, &w) == nil && w.Text != "" {
			n++
		}
	}
	return n
}

// glob escapes what is special in a pattern.
func glob(path string) string {
	if os.PathSeparator == '\\' {
		return path // there is no escape
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// render is the report for people.
func render(r *report, now time.Time) string {
	var b strings.Builder
	switch {
	case r.Problem != "" && !r.Configured:
		fmt.Fprintf(&b, "undersong cannot use its configuration: %s\nNothing is recorded. Run: undersong init\n", safe(r.Problem))
		return b.String()
	case !r.Configured:
		fmt.Fprintf(&b, "undersong is not configured here; nothing is recorded.\nRun: undersong init\n")
		return b.String()
	case r.Off:
		fmt.Fprintf(&b, "undersong is switched off in %s; nothing is recorded.\n\n", filepath.Join(r.Home, "config.json"))
	}
	var rows [][]string
	row := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	if r.Here != nil {
		row("here", "%s", r.Here.render())
	}
	if r.Hooks != "" && !r.Off {
		row("hooks", "NOT CALLED: %s", safe(r.Hooks))
	}
	row("team", "%s, memory %s", safe(r.Namespace), safe(r.Memory))
	row("you", "%s, workstation %s", safe(r.Owner), safe(r.Workstation))
	row("consent", "%s", recording(r))
	row("cluster", "%s, %s", safe(r.Server), connection(r))
	row("store", "%s", safe(r.StoreHost))
	row("daemon", "%s", running(r, now))
	row("waiting", "%s", waiting(r, now))
	if r.Import != nil {
		text := r.Import.short()
		if r.Import.Paused {
			text += "; it waits for undersong resume"
		}
		row("import", "%s", text)
	}
	renderForget(r, row)
	for _, l := range r.Leftovers {
		row("plugin", "%s %s", l.What, strings.TrimPrefix(l.Says, "that plugin "))
	}
	columns(&b, rows)
	if r.Problem != "" {
		fmt.Fprintf(&b, "\nWhat is wrong: %s\n", safe(r.Problem))
	}
	if r.Status != nil {
		renderTrouble(&b, r.Status, now)
		renderSessions(&b, r.Status)
	}
	return b.String()
}

// forgetReport is how far a wish to forget is.
type forgetReport struct {
	Session string `json:"session"`
	// State is waiting, for the cluster, retry, where only the person can ask
	// again, absent or answered.
	State string `json:"state"`
	Says  string `json:"says,omitempty"`
}

func forgetReportOf(w upload.Wish, addressee string) forgetReport {
	r := forgetReport{Session: w.SessionID, State: "waiting"}
	switch {
	case w.Result != "":
		r.State, r.Says = "answered", w.Result
	case w.Absent:
		r.State, r.Says = "absent", upload.ErrAbsent.Error()
	case !w.Open(addressee):
		r.State = "retry"
	}
	return r
}

// renderForget says what waits in one line, and each of the others in its own.
func renderForget(r *report, row func(name, format string, args ...any)) {
	waiting, retry := 0, 0
	for _, f := range r.Forget {
		switch {
		case f.State == "waiting" && !r.Off && !r.ConsentedAt.IsZero():
			waiting++
		case f.State == "waiting", f.State == "retry":
			retry++
		}
	}
	if waiting > 0 {
		row("forget", "the cluster has not answered %s to forget something; the daemon asks again when it can", many(int64(waiting), "request"))
	}
	if retry > 0 {
		row("forget", "%s to the cluster to forget something waits for you: undersong forget --retry", many(int64(retry), "request"))
	}
	for _, f := range r.Forget {
		if f.Says != "" {
			row("forget", "session %s: %s", safe(f.Session), safe(f.Says))
		}
	}
}

func recording(r *report) string {
	if r.ConsentedAt.IsZero() {
		return "nothing: you have not agreed to be heard; run undersong init"
	}
	since := "since " + r.ConsentedAt.UTC().Format("2006-01-02 15:04 MST")
	if r.Status == nil || !r.Status.Memory.Known {
		return since + ", as far as the team allows; what that is, is not known yet"
	}
	var globs []string
	for _, glob := range r.Status.Memory.Include {
		globs = append(globs, safe(glob))
	}
	text := since + ", projects " + strings.Join(globs, ", ")
	if !r.Status.Memory.Recall {
		text += "; the memory says nothing at present"
	}
	return text
}

func connection(r *report) string {
	switch s := r.Status; {
	case s == nil, !r.Running:
		return "not connected while no daemon runs"
	case s.Revoked:
		return "revoked"
	case s.LoginNeeded:
		return "login needed"
	case s.Online && !slices.ContainsFunc(s.Trouble, func(t daemon.Trouble) bool { return t.Part == "api" }):
		return "connected"
	}
	return "not connected"
}

func running(r *report, now time.Time) string {
	if !r.Running {
		return "not running; the next hook starts it"
	}
	return fmt.Sprintf("running, process %d, version %s, for %s", r.Daemon.PID, safe(r.Daemon.Version), ago(now, r.Daemon.StartedAt))
}

func waiting(r *report, now time.Time) string {
	var parts []string
	if s := r.Status; s != nil && s.Waiting.Segments > 0 {
		text := fmt.Sprintf("%s to be archived (%s)", many(s.Waiting.Segments, "segment"), size(s.Waiting.Bytes))
		if s.Waiting.Oldest != nil {
			text += ", the oldest for " + ago(now, *s.Waiting.Oldest)
		}
		parts = append(parts, text)
	}
	if r.NotesWaiting > 0 {
		parts = append(parts, many(int64(r.NotesWaiting), "hook call")+" to be looked at")
	}
	if r.NotesBroken > 0 {
		parts = append(parts, many(int64(r.NotesBroken), "hook call")+" set aside in notes/bad")
	}
	if r.WhispersWaiting > 0 {
		parts = append(parts, many(int64(r.WhispersWaiting), "whisper")+" for your next prompt")
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}

func renderTrouble(b *strings.Builder, s *daemon.Snapshot, now time.Time) {
	if len(s.Trouble) == 0 {
		return
	}
	if s.Running {
		b.WriteString("\nWhat is wrong:\n")
	} else {
		b.WriteString("\nWhat was wrong when the daemon last ran:\n")
	}
	for _, t := range s.Trouble {
		fmt.Fprintf(b, "  %s (for %s): %s\n", safe(t.Part), ago(now, t.Since), safe(t.Message))
	}
	if s.Waiting.Segments > 0 {
		b.WriteString("What is recorded meanwhile is kept here, and sent when it can be.\n")
	}
}

func renderSessions(b *strings.Builder, s *daemon.Snapshot) {
	if len(s.Session) == 0 {
		return
	}
	b.WriteString("\nSessions, in lines:\n")
	rows := [][]string{{"  SESSION", "PROJECT", "STATE", "READ", "UPLOADED", "ARCHIVED"}}
	for _, session := range s.Session {
		project := safe(session.Project)
		if project == "" {
			project = "(not recorded)"
		}
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		rows = append(rows, []string{
			"  " + safe(session.ID), project, safe(session.State), number(session.Read), number(session.Uploaded), number(session.Verified),
		})
	}
	columns(b, rows)
}

// columns writes rows with the columns below each other.
func columns(b *strings.Builder, rows [][]string) {
	table := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		_, _ = io.WriteString(table, strings.Join(row, "\t")+"\n") // a strings.Builder never fails
	}
	_ = table.Flush() // a strings.Builder never fails
}

func many(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func size(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
