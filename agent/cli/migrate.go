package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/statefile"
	"github.com/undersong-dev/undersong/internal/transcript"
)

const (
	// thePlugin begins the name by which Claude Code enables it; the marketplace follows.
	thePlugin = "claude-subconscious@"

	// migratedDir holds, in the state directory, the plugin's files as they were.
	migratedDir = "migrated"

	// migrateSuffix is added to the settings file's name for what it was while
	// the plugin was enabled.
	migrateSuffix = ".before-migrate"

	// headOfTranscript bounds what is read to learn where a session began.
	headOfTranscript = 256 << 10
)

type migrateFlags struct {
	projects    []string
	dryRun, yes bool
}

func (s *System) migrateCommand() *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Take over from the plugin claude-subconscious",
		Long: `Look for what the plugin claude-subconscious left in your projects, list the
sessions it knows and how much of each it has sent, by its own count, and take
over: no line that it has sent is sent again, its state files are copied into the
state directory, and the plugin is disabled in Claude Code's settings, of which a
copy stays beside them. It says all that first, and asks.

The plugin's files stay where they are, in its own format, so that a session can
go back to it. Looked at are this folder and those above it, LETTA_HOME, and
every folder in which Claude Code began a session; or the ones that you name.`,
		Example: `  undersong migrate --dry-run
  undersong migrate --project ~/src/tide --project ~/src/moon`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.migrate(c.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.projects, "project", nil, "folder of a project that used the plugin; may be given again")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what there is and what would be done, and change nothing")
	flags.BoolVar(&f.yes, "yes", false, "do it without being asked")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "yes")
	return cmd
}

func (s *System) migrate(ctx context.Context, f migrateFlags) error {
	home, err := s.home()
	if err != nil {
		return err
	}
	m, err := s.lookAtPlugin(home, f.projects)
	if err != nil {
		return err
	}
	if err := s.print("%s", m.render()); err != nil {
		return err
	}
	if f.dryRun || len(m.enabled)+len(m.sessions) == 0 {
		return nil
	}
	if !f.yes {
		if !s.Terminal() {
			return errors.New("there is nobody to ask here: run it in a terminal, or with --yes")
		}
		yes, err := s.agree("Go on? [y/N] ")
		if err != nil {
			return err
		}
		if !yes {
			return errors.New("nothing was changed")
		}
	}
	return s.takeOver(ctx, home, m, f.projects)
}

// takeOver does what was said. Each step can be done again, and a run that was
// cut is finished by the next.
func (s *System) takeOver(ctx context.Context, home string, m *migration, projects []string) error {
	if len(m.enabled) > 0 {
		if err := disablePlugins(m.settings); err != nil {
			return err
		}
		if err := s.print("Disabled in %s. Sessions that run now have the plugin until they are restarted;\nrun undersong migrate again after that.\n", m.settings); err != nil {
			return err
		}
	}
	if len(m.sessions) == 0 {
		return nil
	}
	if _, err := s.stop(ctx, home); err != nil {
		return err
	}
	if err := durable.MkdirAll(home); err != nil {
		return err
	}
	held, err := daemon.Hold(ctx, home)
	if err != nil {
		return err
	}
	defer held()
	// The daemon may have read on, and written the files, since they were listed.
	if m, err = s.lookAtPlugin(home, projects); err != nil {
		return err
	}
	for _, base := range m.bases() {
		to := filepath.Join(home, migratedDir, digest([]byte(base))[:16])
		if _, err := statefile.Backup(base, to); err != nil {
			return err
		}
		if err := s.print("The files of %s are kept in %s.\n", safe(base), to); err != nil {
			return err
		}
	}
	if err := withholdSent(home, m); err != nil {
		return err
	}
	if m.configured {
		return s.print("The next hook starts the daemon; undersong status says what is recorded.\n")
	}
	return s.print("Nothing is recorded until undersong init.\n")
}

// withholdSent sees to it that no line is sent that the plugin has sent.
func withholdSent(home string, m *migration) error {
	sent := map[string]daemon.Sent{}
	cursors := map[string]daemon.Sent{} // by session
	for _, k := range m.sessions {
		if id := strings.ToLower(k.ID); k.Again > 0 && k.sent.Behind > cursors[id].Behind { // the plugin may know it in several folders
			sent[k.transcript], cursors[id] = k.sent, k.sent
		}
	}
	if len(sent) == 0 {
		return nil
	}
	if err := daemon.WithholdSent(home, sent); err != nil {
		return err
	}
	// A session that is being read does not ask the baseline any more.
	open, err := spool.Open(spool.Options{Dir: filepath.Join(home, daemon.SessionsDir), Owner: m.config.Owner, Workstation: m.config.Workstation})
	if err != nil {
		return err
	}
	for id, sent := range cursors {
		session, known := open.Session(id)
		if !known {
			continue
		}
		err := session.Update(func(state *spool.State) {
			if cursor, begun := state.Cursors[read.Main]; begun {
				state.Cursors[read.Main] = read.Remember(cursor, []read.Kept{sent.Kept(cursor.Generation)})
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// migration is what there is of the plugin.
type migration struct {
	config     note.Config
	configured bool

	settings string   // Claude Code's, of the user
	enabled  []string // names by which the plugin is enabled there
	sessions []known
	unread   []string // folders whose state files cannot be read
}

// known is one session that the plugin knows.
type known struct {
	ID, Base string

	// Sent is the number of lines that the plugin says it has sent, Again how
	// many of them undersong would send, too.
	Sent, Again int64

	// Ours says that undersong counted last. Gone: there is no transcript.
	Ours, Gone bool

	transcript string
	sent       daemon.Sent
}

func (m *migration) bases() []string {
	var all []string
	for _, k := range m.sessions {
		all = append(all, k.Base)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lookAtPlugin finds out what there is, and changes nothing.
func (s *System) lookAtPlugin(home string, projects []string) (*migration, error) {
	m := &migration{}
	var err error
	if m.settings, err = s.settingsPath(); err != nil {
		return nil, err
	}
	if m.enabled, err = enabledPlugins(m.settings); err != nil {
		return nil, err
	}
	m.config, err = note.LoadConfig(home)
	if err != nil && !errors.Is(err, note.ErrNotConfigured) {
		return nil, err
	}
	m.configured = err == nil
	withheld := func(string) int64 { return 0 }
	if m.configured {
		if withheld, err = daemon.Baseline(home); err != nil {
			return nil, err
		}
	}
	dir, err := s.claudeDir()
	if err != nil {
		return nil, err
	}
	transcripts, began := sessionFiles(filepath.Join(dir, "projects"))
	bases, err := s.bases(projects, began)
	if err != nil {
		return nil, err
	}
	states := map[string]spool.State{}
	for _, state := range spool.States(filepath.Join(home, daemon.SessionsDir)) {
		states[state.SessionID] = state
	}
	for _, base := range bases {
		list, err := statefile.List(base)
		if err != nil {
			m.unread = append(m.unread, base) // a folder that is no more readable hides no other
			continue
		}
		for _, its := range list {
			k := known{ID: its.SessionID, Base: base, Sent: its.LastProcessedIndex + 1, transcript: transcripts[its.SessionID]}
			state := states[strings.ToLower(k.ID)]
			if now, ok := spool.Read(filepath.Join(home, daemon.SessionsDir), k.ID); ok { // a daemon may be at work
				state = now
			}
			k.Ours = state.Wrote(its.LastProcessedIndex)
			if state.Transcript != "" {
				k.transcript = state.Transcript
			}
			if err := k.measure(m.configured, withheld, state.Cursors[read.Main]); err != nil {
				return nil, err
			}
			m.sessions = append(m.sessions, k)
		}
	}
	return m, nil
}

// measure counts what would be sent twice: what lies before what the plugin has
// sent, and behind the baseline and what was read already.
func (k *known) measure(configured bool, withheld func(string) int64, cursor read.Cursor) error {
	file, err := os.Open(k.transcript)
	if errors.Is(err, fs.ErrNotExist) {
		k.Gone = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the transcript of session %s: %w", k.ID, errors.Unwrap(err))
	}
	defer func() { _ = file.Close() }() // only read
	if !configured || k.Ours || k.Sent == 0 {
		return nil
	}
	var upTo int64
	if k.sent.Behind, upTo, err = read.After(file, k.Sent-1); err != nil {
		return err
	}
	from := max(cursor.Offset, cursor.Baseline, withheld(k.transcript))
	for _, kept := range cursor.Kept {
		if kept.Reason == read.ReasonSent {
			from = max(from, kept.ToOffset)
		}
	}
	if from >= k.sent.Behind {
		return nil
	}
	lines := transcript.NewLines(file, 0)
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for lines.Next() && lines.Line().Offset < k.sent.Behind {
		record, err := transcript.Parse(lines.Line().Raw)
		if err == nil && lines.Line().Offset < from {
			upTo--
		}
		if record.Timestamp.After(k.sent.Until) {
			k.sent.Until = record.Timestamp
		}
	}
	k.Again = upTo
	return lines.Err()
}

// bases lists the folders to look at.
func (s *System) bases(projects, began []string) ([]string, error) {
	var all []string
	for _, dir := range projects {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--project %s: there is no such folder", safe(dir))
		}
		all = append(all, dir)
	}
	if len(projects) == 0 {
		if letta := s.Getenv("LETTA_HOME"); letta != "" {
			base, err := statefile.Expand(letta)
			if err != nil {
				return nil, err
			}
			all = append(all, base)
		}
		if cwd, err := os.Getwd(); err == nil {
			for all = append(all, cwd); cwd != filepath.Dir(cwd); all = append(all, cwd) {
				cwd = filepath.Dir(cwd)
			}
		}
		all = append(all, began...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// sessionFiles returns the transcripts below Claude Code's projects by session,
// and the folders in which they began.
func sessionFiles(projects string) (map[string]string, []string) {
	byID, began := map[string]string{}, map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(projects, "*", "*.jsonl")) // the pattern is good
	for _, path := range files {
		id := strings.TrimSuffix(filepath.Base(path), ".jsonl")
		if !note.ValidSession(id) || strings.HasPrefix(id, "agent-") {
			continue
		}
		byID[id] = path
		if cwd := firstCwd(path); filepath.IsAbs(cwd) {
			began[filepath.Clean(cwd)] = true
		}
	}
	return byID, slices.Sorted(maps.Keys(began))
}

// firstCwd returns the working directory that a transcript names first.
func firstCwd(path string) string {
	file, err := os.Open(path) //nolint:gosec // it lies among the transcripts
	if err != nil {
		return "" // then it is not known
	}
	defer func() { _ = file.Close() }() // only read
	lines := transcript.NewLines(io.LimitReader(file, headOfTranscript), 0)
	for lines.Next() {
		if record, err := transcript.Parse(lines.Line().Raw); err == nil && record.Cwd != "" {
			return record.Cwd
		}
	}
	return ""
}

// render says what there is and what will be done.
func (m *migration) render() string {
	var b strings.Builder
	for _, base := range m.unread {
		fmt.Fprintf(&b, "The plugin's files in %s cannot be read and are left out.\n", safe(base))
	}
	if len(m.enabled)+len(m.sessions) == 0 {
		b.WriteString("Nothing of claude-subconscious was found. A project's folder can be named with --project.\n")
		return b.String()
	}
	var again int64
	if len(m.sessions) > 0 {
		b.WriteString("Sessions that claude-subconscious knows:\n\n")
	}
	for _, base := range m.bases() {
		fmt.Fprintf(&b, "  in %s\n", safe(base))
		for _, k := range m.sessions {
			if k.Base == base {
				fmt.Fprintf(&b, "    %-36s  %s\n", k.ID, k.says(m.configured))
				again += k.Again
			}
		}
	}
	if len(m.sessions) > 0 {
		b.WriteString("\n")
	}
	if m.configured && again > 0 {
		fmt.Fprintf(&b, "- %s that the plugin has sent are not sent again: your team's memory and its\n  archive do not get them.\n", many(again, "line"))
	}
	if !m.configured {
		b.WriteString("- undersong init comes next. What was written before it is not sent then.\n")
	}
	if len(m.sessions) > 0 {
		b.WriteString("- The plugin's state files are copied into the state directory. They stay where they\n  are, and undersong keeps them in the same format.\n")
	}
	if len(m.enabled) > 0 {
		fmt.Fprintf(&b, "- The plugin is enabled as %s and would hear each session, too. It is\n  disabled in %s;\n  a copy of that file is kept beside it.\n", safe(strings.Join(m.enabled, ", ")), m.settings)
	} else {
		b.WriteString("- The plugin is not enabled in your own settings. If a project's settings enable it, disable\n  it there: /plugin in Claude Code.\n")
	}
	b.WriteString("\n")
	return b.String()
}

// says is the state of one session in words.
func (k *known) says(configured bool) string {
	sent := many(k.Sent, "line") + " sent"
	switch {
	case k.Ours:
		return many(k.Sent, "line") + " processed; undersong has it already"
	case k.Gone:
		return sent + "; its transcript is gone"
	case k.Sent == 0:
		return "nothing sent, or the plugin has lost count"
	case k.Again > 0:
		return sent + "; the last " + many(k.Again, "line") + " of them will be withheld here"
	case configured:
		return sent + "; none of them will be sent here any more"
	}
	return sent
}

// enabledPlugins lists the names by which settings enable the plugin.
func enabledPlugins(path string) ([]string, error) {
	data, err := durable.ReadFile(path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Claude Code's settings: %w", err)
	}
	_, names, err := withoutPlugins(data)
	if err != nil {
		return nil, fmt.Errorf("read Claude Code's settings: %s: %w", filepath.Base(path), err)
	}
	return names, nil
}

// withoutPlugins returns settings in which the plugin is disabled, and the names
// by which it was enabled. All else keeps its place and its text.
func withoutPlugins(settings []byte) ([]byte, []string, error) {
	top, err := members(settings)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for i, m := range top {
		if m.key != "enabledPlugins" {
			continue
		}
		plugins, err := members(m.value)
		if err != nil {
			return nil, nil, fmt.Errorf("enabledPlugins: %w", err)
		}
		for j, plugin := range plugins {
			if strings.HasPrefix(plugin.key, thePlugin) && string(plugin.value) == "true" {
				names = append(names, plugin.key)
				plugins[j].value = json.RawMessage("false")
			}
		}
		if top[i].value, err = join(plugins, "  "); err != nil {
			return nil, nil, err
		}
	}
	if len(names) == 0 {
		return settings, nil, nil
	}
	text, err := join(top, "")
	return append(text, '\n'), names, err
}

// disablePlugins disables the plugin in a settings file, and keeps the file as
// it was beside it.
func disablePlugins(path string) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link into somebody's dotfiles stays one
	}
	before, err := durable.ReadFile(path, maxSettings)
	if err != nil {
		return fmt.Errorf("read Claude Code's settings: %w", err)
	}
	after, names, err := withoutPlugins(before)
	if err != nil || len(names) == 0 {
		return err
	}
	if err := durable.WriteFile(path+migrateSuffix, before); err != nil {
		return fmt.Errorf("keep Claude Code's settings: %w", err)
	}
	return rewrite(path, after)
}
