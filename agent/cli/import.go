package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/hook"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/statefile"
	"github.com/undersong-dev/undersong/agent/status"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

const (
	// defaultDailyTokens is TeamMemory.spec.budget.dailyTokens where it is
	// omitted, importPart the part of it that all imports of a team get.
	defaultDailyTokens = 2_000_000
	importPart         = 5

	// tokenBytes is how many bytes of words are taken for a token, turnTokens
	// what a turn costs besides the words: instructions, blocks, the answer.
	tokenBytes = 4
	turnTokens = 2000

	// lookEvery is how often --wait looks.
	lookEvery = 500 * time.Millisecond
)

type importFlags struct {
	since, until       string
	projects, sessions []string
	limit              int
	dryRun, yes        bool
	asJSON, wait       bool
	status, stop       bool
}

func (s *System) importCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import [flags] [DIR]",
		Short: "Bring sessions of before init into the team's memory",
		Long: `Bring what Claude Code wrote before undersong init into the team's memory: the
transcripts below DIR, or all of Claude Code's. It lists the sessions first, with
what would leave this computer, which secrets are taken out, by rule, what stays,
and what the team's budget says, and asks. --dry-run only lists.

The rules are those of recording: projects that the team names, .undersong.yaml,
<private>, what the team hears besides words. Only what was written before init
is imported. What was not to be heard for another reason never is: paused,
private, switched off, forgotten; nor what was sent before, by the plugin
claude-subconscious or by an earlier registration of this computer.

The daemon does the work, a piece at a time and only while nothing else is to be
done. It may be killed at any moment: nothing is sent twice, and nothing is lost.
Run it again at any time; --status says how far it is, --stop gives up the rest.`,
		Example: `  undersong import --dry-run
  undersong import --since 2026-01-01 --project 'git.example.com/alpha/**'
  undersong import --session 8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11 --wait`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := ""
			if len(args) == 1 {
				dir = args[0]
			}
			switch {
			case f.status:
				return s.importStatus(f.asJSON)
			case f.stop:
				return s.importStop()
			}
			return s.importHistory(c.Context(), f, dir)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be sent, and send nothing")
	flags.BoolVar(&f.yes, "yes", false, "do it without being asked")
	flags.StringVar(&f.since, "since", "", "only sessions that went on after this `day`: 2026-01-31, or 90d for 90 days ago")
	flags.StringVar(&f.until, "until", "", "only sessions that began before the end of this `day`")
	flags.StringArrayVar(&f.projects, "project", nil, "only sessions of projects that this `glob` matches, as in git.example.com/alpha/** (may be repeated)")
	flags.StringArrayVar(&f.sessions, "session", nil, "only the session of this `id` (may be repeated)")
	flags.IntVar(&f.limit, "limit", 0, "only the newest `n` sessions")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON, for programs; nothing is asked")
	flags.BoolVar(&f.wait, "wait", false, "wait until all of it is archived, and say how far it is")
	flags.BoolVar(&f.status, "status", false, "say how far the import is")
	flags.BoolVar(&f.stop, "stop", false, "give up what was not read yet")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "yes", "status", "stop")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "wait")
	return cmd
}

// outlook is what an import would do.
type outlook struct {
	Folder   string         `json:"folder"`
	Sessions []*daemon.Past `json:"sessions"`

	// Records, Sent, Words, Findings and Withheld are those of the sessions;
	// Tokens what they cost the memory, about.
	Records  int64            `json:"records"`
	Sent     int64            `json:"sentBytes"`
	Words    int64            `json:"words"`
	Tokens   int64            `json:"tokens"`
	Findings map[string]int64 `json:"findings"`
	Withheld map[string]int64 `json:"withheld"`

	// Others are the sessions of which nothing would be sent, by why; Reasons
	// those among them that are withheld, by the reason of most of their lines.
	Others  map[string]int `json:"others"`
	Reasons map[string]int `json:"reasons"`

	// Filtered are those that the flags leave out.
	Filtered int `json:"filtered"`

	Budget *budget `json:"budget,omitempty"`
	Paused bool    `json:"paused"`
}

// budget is what the team's memory may cost in a day, and has cost today.
type budget struct {
	Daily       int64 `json:"daily"`
	Imports     int64 `json:"imports"`
	Spent       int64 `json:"spent"`
	SpentImport int64 `json:"spentImports"`
	Days        int64 `json:"days"`
}

func (s *System) importHistory(ctx context.Context, f importFlags, dir string) error {
	home, err := s.agreed()
	if err != nil {
		return err
	}
	config, err := note.LoadConfig(home)
	if err != nil {
		return err
	}
	if config.Off || config.ConsentedAt.IsZero() {
		return errors.New("nothing is recorded here at present, so nothing is imported: see undersong status")
	}
	want, err := s.filters(f)
	if err != nil {
		return err
	}
	if dir, err = s.historyFolder(dir); err != nil {
		return err
	}
	memory := s.lookUpMemory(ctx, home, config)
	o, err := s.lookAhead(ctx, home, config, dir, want)
	if err != nil {
		return err
	}
	o.spend(memory, s.Clock.Now())
	if f.asJSON {
		err = s.printJSON(o)
	} else {
		err = s.print("%s", o.render())
	}
	if err != nil || f.dryRun || f.asJSON && !f.yes {
		return err
	}
	if err := s.byPerson("import"); err != nil {
		return err
	}
	if len(o.Sessions) == 0 {
		return s.goOn(ctx, home, config, f)
	}
	if !f.yes {
		if !s.Terminal() {
			return errors.New("there is nobody to ask here: run it in a terminal, or with --yes; --dry-run only lists")
		}
		yes, err := s.agree("Import these sessions? [y/N] ")
		if err != nil {
			return err
		}
		if !yes {
			return errors.New("nothing was imported")
		}
	}
	return s.handOver(ctx, home, config, o, f)
}

// goOn wakes the daemon for what an earlier import left.
func (s *System) goOn(ctx context.Context, home string, config note.Config, f importFlags) error {
	p, err := importProgress(home, config)
	if err != nil || p.Archived == p.Sessions {
		return err
	}
	if err := hook.Wake(home, config, s.Clock.Now()); err != nil {
		return fmt.Errorf("start the daemon: %w; the next hook does", err)
	}
	if f.wait {
		return s.follow(ctx, home, config, f.asJSON)
	}
	if f.asJSON {
		return nil
	}
	return s.print("An import is under way: %s.\n", p.short())
}

// handOver lets the daemon do it. Sessions of an earlier import that is not done
// yet stay.
func (s *System) handOver(ctx context.Context, home string, config note.Config, o *outlook, f importFlags) error {
	h := daemon.History{At: s.Clock.Now().UTC()}
	chosen := map[string]bool{}
	for _, p := range o.Sessions {
		chosen[p.ID] = true
		h.Sessions = append(h.Sessions, p.Plan())
	}
	before, err := daemon.LoadHistory(home, config)
	if err != nil {
		return err
	}
	if p := before.Progress(spool.States(filepath.Join(home, daemon.SessionsDir))); p.Archived < p.Sessions {
		for _, one := range before.Sessions {
			if !chosen[one.ID] {
				h.Sessions = append(h.Sessions, one)
			}
		}
	}
	if err := daemon.SaveHistory(home, config, h); err != nil {
		return err
	}
	if err := hook.Wake(home, config, s.Clock.Now()); err != nil {
		return fmt.Errorf("start the daemon: %w; the next hook does", err)
	}
	if f.asJSON && !f.wait {
		return nil
	}
	if !f.asJSON {
		err := s.print("The daemon has them, and works at it while nothing else is to be done. How far it is:\n  undersong import --status\n")
		if err != nil {
			return err
		}
	}
	if f.wait {
		return s.follow(ctx, home, config, f.asJSON)
	}
	return nil
}

// follow says how far it is until all is archived.
func (s *System) follow(ctx context.Context, home string, config note.Config, quietly bool) error {
	said := ""
	for {
		p, err := importProgress(home, config)
		if err != nil {
			return err
		}
		if text := p.short() + s.troubleOf(home); text != said && !quietly {
			said = text
			if _, err := fmt.Fprintln(s.Err, text); err != nil {
				return err
			}
		}
		if p.Archived == p.Sessions {
			return nil
		}
		timer := s.Clock.NewTimer(lookEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.New("the daemon goes on with it: undersong import --status")
		case <-timer.C():
		}
	}
}

// troubleOf is what keeps the daemon from its work, "" without.
func (s *System) troubleOf(home string) string {
	snapshot, known, err := daemon.ReadSnapshot(home)
	if err != nil || !known || len(snapshot.Trouble) == 0 {
		return ""
	}
	return "; " + safe(snapshot.Trouble[0].Message)
}

type importReport struct {
	daemon.HistoryProgress

	// Running says that a daemon works, Paused that it waits for resume.
	Running bool `json:"running"`
	Paused  bool `json:"paused"`
}

func importProgress(home string, config note.Config) (*importReport, error) {
	h, err := daemon.LoadHistory(home, config)
	if err != nil {
		return nil, err
	}
	r := &importReport{HistoryProgress: h.Progress(spool.States(filepath.Join(home, daemon.SessionsDir)))}
	_, r.Running, _ = daemon.Running(home) // then it is not said
	return r, nil
}

func (s *System) importStatus(asJSON bool) error {
	home, err := s.agreed()
	if err != nil {
		return err
	}
	config, err := note.LoadConfig(home)
	if err != nil {
		return err
	}
	r, err := importProgress(home, config)
	if err != nil {
		return err
	}
	r.Paused = s.pausedNow(home)
	if asJSON {
		return s.printJSON(r)
	}
	return s.print("%s", r.render())
}

func (s *System) importStop() error {
	home, err := s.agreed()
	if err != nil {
		return err
	}
	config, err := note.LoadConfig(home)
	if err != nil {
		return err
	}
	left := -1
	if r, err := importProgress(home, config); err == nil {
		left = r.Sessions - r.Read
	}
	if err := daemon.DropHistory(home); err != nil {
		return err
	}
	if left == 0 {
		return s.print("No import was under way.\n")
	}
	return s.print("Nothing more is read. What was read is sent; to take it back: undersong forget SESSION. undersong import goes on with the rest.\n")
}

// pausedNow says whether all recording is paused.
func (s *System) pausedNow(home string) bool {
	known, err := consent.LoadSilences(home)
	return err == nil && known.Current(consent.ReasonPaused, "", s.Clock.Now()) != nil
}

func (r *importReport) short() string {
	text := fmt.Sprintf("%d of %s read, %d archived", r.Read, many(int64(r.Sessions), "session"), r.Archived)
	if r.Left > 0 {
		text += fmt.Sprintf(", %d given up", r.Left)
	}
	return text
}

func (r *importReport) render() string {
	if r.Sessions == 0 {
		return "Nothing is being imported. undersong import --dry-run says what could be.\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Import of %s: %s.\n", clockTime(r.At), r.short())
	if r.Left > 0 {
		b.WriteString("Those given up are private by now, or their transcripts are gone or others: undersong import --dry-run looks at them again.\n")
	}
	switch {
	case r.Read < r.Sessions && r.Paused:
		b.WriteString("It waits, as recording is paused: undersong resume.\n")
	case r.Archived < r.Sessions && !r.Running:
		b.WriteString("No daemon runs; the next hook starts it, and it goes on. So does: undersong import\n")
	case r.Archived < r.Sessions:
		b.WriteString("The daemon works at it while nothing else is to be done. A session in which somebody works waits.\n")
	case r.Behind > 0:
		fmt.Fprintf(&b, "All is archived. The memory has %s of these sessions to read yet; the team's budget for imports says how fast.\n", many(r.Behind, "line"))
	default:
		b.WriteString("All is archived, and the memory has read it.\n")
	}
	return b.String()
}

// filters says which sessions are wanted.
type filters struct {
	since, until time.Time
	projects     []string
	sessions     map[string]bool
	limit        int
}

func (s *System) filters(f importFlags) (*filters, error) {
	want := &filters{projects: f.projects, sessions: map[string]bool{}, limit: f.limit}
	if f.limit < 0 {
		return nil, errors.New("--limit must be a number of sessions")
	}
	var err error
	if want.since, err = s.day(f.since); err != nil {
		return nil, fmt.Errorf("--since: %w", err)
	}
	if want.until, err = s.day(f.until); err != nil {
		return nil, fmt.Errorf("--until: %w", err)
	}
	if !want.until.IsZero() && !strings.HasSuffix(f.until, "d") {
		want.until = want.until.AddDate(0, 0, 1) // its end
	}
	for _, id := range f.sessions {
		if !note.ValidSession(id) {
			return nil, fmt.Errorf("--session %s is not a session id", safe(id))
		}
		want.sessions[strings.ToLower(id)] = true
	}
	return want, nil
}

// day reads a day of this place, or a number of days ago; the zero time where
// nothing is said.
func (s *System) day(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if err == nil && n >= 0 && n < 100_000 {
			return s.Clock.Now().AddDate(0, 0, -n), nil
		}
	}
	at, err := time.ParseInLocation(time.DateOnly, text, time.Local) //nolint:gosmopolitan // a day as the person has it
	if err != nil {
		return at, errors.New("want a day, such as 2026-01-31, or a number of days ago, such as 90d")
	}
	return at, nil
}

// span says whether a transcript can have anything that is wanted, before it is
// read.
func (w *filters) span(id string, first, last time.Time) bool {
	return (len(w.sessions) == 0 || w.sessions[id]) &&
		(w.since.IsZero() || last.IsZero() || !last.Before(w.since)) &&
		(w.until.IsZero() || first.IsZero() || first.Before(w.until))
}

// past says whether a session is wanted.
func (w *filters) past(p *daemon.Past) bool {
	return w.span(p.ID, p.First, p.Last) && (len(w.projects) == 0 ||
		slices.ContainsFunc(w.projects, func(glob string) bool { return consent.Match(glob, p.Project) }))
}

// historyFolder is the folder to look in.
func (s *System) historyFolder(dir string) (string, error) {
	if dir == "" {
		claude, err := s.claudeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(claude, "projects")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%s: there is no such folder; name the one with your transcripts", safe(dir))
	}
	// As Claude Code names it to the hooks, or the sizes at init say nothing of it.
	return dir, nil
}

// lookAhead finds out what would be imported.
func (s *System) lookAhead(ctx context.Context, home string, config note.Config, dir string, want *filters) (*outlook, error) {
	all, err := daemon.Transcripts(dir, home)
	if err != nil {
		return nil, err
	}
	o := &outlook{
		Folder: dir, Sessions: []*daemon.Past{}, Findings: map[string]int64{}, Withheld: map[string]int64{},
		Others: map[string]int{}, Reasons: map[string]int{}, Paused: s.pausedNow(home),
	}
	sent := s.sentByPlugin(home, all)
	type dated struct {
		daemon.Transcript
		first, last time.Time
	}
	var list []dated
	for _, one := range all {
		one.Sent = sent[one.ID]
		first, last, err := daemon.Span(one.Path, s.Clock.Now())
		if err == nil && !want.span(one.ID, first, last) {
			o.Filtered++
			continue
		}
		list = append(list, dated{one, first, last})
	}
	// In the order in which they were said; of a session and its fork, which begin
	// alike, the one that ended first.
	slices.SortStableFunc(list, func(a, b dated) int { return cmp.Or(a.first.Compare(b.first), a.last.Compare(b.last)) })
	read := make([]daemon.Transcript, len(list))
	for i := range list {
		read[i] = list[i].Transcript
	}
	survey := &daemon.Survey{Home: home, Config: config, Clock: s.Clock, Room: scratch, Progress: s.looking(len(read))}
	past, err := survey.Look(ctx, read)
	s.looked()
	if err != nil {
		return nil, err
	}
	o.choose(past, want)
	return o, nil
}

// choose takes what is wanted of a survey.
func (o *outlook) choose(past []*daemon.Past, want *filters) {
	wanted := want.past
	if want.limit > 0 {
		newest := slices.Clone(past)
		newest = slices.DeleteFunc(newest, func(p *daemon.Past) bool { return p.State != daemon.HistoryReady || !want.past(p) })
		slices.SortStableFunc(newest, func(a, b *daemon.Past) int { return b.Last.Compare(a.Last) })
		newest = newest[:min(len(newest), want.limit)]
		wanted = func(p *daemon.Past) bool { return slices.Contains(newest, p) }
	}
	o.Sessions = append(o.Sessions, daemon.Choose(past, wanted)...)
	for _, p := range past {
		switch p.State {
		case daemon.HistoryReady:
		case daemon.HistoryWithheld:
			o.Reasons[most(p.Withheld)]++
			o.Others[p.State]++
		default:
			o.Others[p.State]++
		}
	}
	chosen := map[*daemon.Past]bool{}
	for _, p := range o.Sessions {
		chosen[p] = true
		o.Records, o.Sent, o.Words = o.Records+p.Records, o.Sent+p.Sent, o.Words+p.Words
		o.Tokens += tokensOf(p)
		for rule, n := range p.Findings {
			o.Findings[rule] += n
		}
		for reason, n := range p.Withheld {
			o.Withheld[reason] += n
		}
	}
	for _, p := range past {
		if p.State == daemon.HistoryReady && !chosen[p] {
			o.Filtered++
		}
	}
}

// most is the name with the highest number.
func most(counts map[string]int64) string {
	names := slices.Sorted(maps.Keys(counts))
	if len(names) == 0 {
		return ""
	}
	return slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(counts[a], counts[b]) })
}

// tokensOf is what a session costs the memory, about.
func tokensOf(p *daemon.Past) int64 { return p.WordBytes/tokenBytes + p.Turns*turnTokens }

// looking tells how far the look at transcripts is, to somebody who waits.
func (s *System) looking(all int) func(int, int64) {
	if !s.Terminal() {
		return nil
	}
	var last time.Time
	return func(n int, bytes int64) {
		if now := s.Clock.Now(); n < all && now.Sub(last) >= 200*time.Millisecond {
			last = now
			_, _ = fmt.Fprintf(s.Err, "\rLooking at transcripts: %d of %d, %s   ", n, all, size(bytes)) // only for people
		}
	}
}

// looked wipes what looking has written.
func (s *System) looked() {
	if s.Terminal() {
		_, _ = fmt.Fprintf(s.Err, "\r%60s\r", "") // only for people
	}
}

// sentByPlugin returns how many lines of sessions the plugin claude-subconscious
// has sent, by its own count, that of its files as migrate kept them, and that
// of its files as undersong met them.
func (s *System) sentByPlugin(home string, all []daemon.Transcript) map[string]int64 {
	sent := map[string]int64{}
	raise := func(id string, index int64) {
		id = strings.ToLower(id)
		sent[id] = max(sent[id], index+1)
	}
	wrote := map[string]map[int64]bool{}                                        // indexes of ours, by session
	dirs, _ := filepath.Glob(filepath.Join(glob(home), daemon.SessionsDir+"*")) // the pattern is good
	for _, dir := range dirs {
		for _, state := range spool.States(dir) {
			if state.PluginIndex != nil {
				raise(state.SessionID, *state.PluginIndex)
			}
			if state.WroteIndex != nil {
				if wrote[state.SessionID] == nil {
					wrote[state.SessionID] = map[int64]bool{}
				}
				wrote[state.SessionID][*state.WroteIndex] = true
			}
		}
	}
	kept, _ := filepath.Glob(filepath.Join(glob(home), migratedDir, "*", "session-*.json")) // the pattern is good
	for _, path := range kept {
		var its struct {
			SessionID string `json:"sessionId"`
			Index     int64  `json:"lastProcessedIndex"`
		}
		data, err := durable.ReadFile(path, maxSettings)
		if err == nil && json.Unmarshal(data, &its) == nil && !wrote[strings.ToLower(its.SessionID)][its.Index] {
			raise(its.SessionID, its.Index)
		}
	}
	began := map[string]bool{}
	for _, one := range all {
		if cwd := firstCwd(one.Path); filepath.IsAbs(cwd) {
			began[filepath.Clean(cwd)] = true
		}
	}
	bases, err := s.bases(nil, slices.Sorted(maps.Keys(began)))
	if err != nil {
		return sent // LETTA_HOME is no folder: the plugin has none there, either
	}
	for _, base := range bases {
		list, err := statefile.List(base)
		if err != nil {
			continue // a folder that cannot be read has no plugin at work
		}
		for _, its := range list {
			// A daemon may have written it since the states were read.
			now, _ := spool.Read(filepath.Join(home, daemon.SessionsDir), its.SessionID)
			if !wrote[strings.ToLower(its.SessionID)][its.LastProcessedIndex] && !now.Wrote(its.LastProcessedIndex) {
				raise(its.SessionID, its.LastProcessedIndex)
			}
		}
	}
	return sent
}

// lookUpMemory reads the TeamMemory, nil when it cannot be asked. What it allows
// is kept if nothing is known of that yet: no daemon may have run since init.
func (s *System) lookUpMemory(ctx context.Context, home string, config note.Config) *v1alpha1.TeamMemory {
	c, err := s.cluster(config)
	if err != nil {
		return nil // the budget is not said
	}
	ctx, cancel := asking(ctx)
	defer cancel()
	memory := &v1alpha1.TeamMemory{}
	if err := c.Get(ctx, kube.Key{Namespace: config.Namespace, Name: config.Memory}, memory); err != nil {
		return nil
	}
	view := status.OpenView(home)
	if _, _, known := view.Capture(); !known {
		_, _, _ = view.See(memory) // else the survey says that it is not known
	}
	return memory
}

// spend says what the team's budget says of it.
func (o *outlook) spend(memory *v1alpha1.TeamMemory, now time.Time) {
	if memory == nil {
		return
	}
	b := &budget{Daily: defaultDailyTokens}
	if n := memory.Spec.Budget.DailyTokens; n != nil {
		b.Daily = *n
	}
	b.Imports = max(b.Daily/importPart, 1)
	if u := memory.Status.Usage; u != nil && u.Day == now.UTC().Format(time.DateOnly) {
		b.Spent, b.SpentImport = u.Tokens, u.ImportTokens
	}
	today := max(min(b.Imports-b.SpentImport, b.Daily-b.Spent), 0)
	b.Days = 1
	if rest := o.Tokens - today; rest > 0 {
		b.Days += int64(math.Ceil(float64(rest) / float64(b.Imports)))
	}
	o.Budget = b
}

// render is the outlook for people.
func (o *outlook) render() string {
	var b strings.Builder
	if len(o.Sessions) > 0 {
		rows := [][]string{{"DATE", "SESSION", "PROJECT", "SIZE", "RECORDS", "WORDS", "TOKENS", "SECRETS", "WITHHELD", "TITLE"}}
		for _, p := range o.Sessions {
			day := "-"
			if !p.Last.IsZero() {
				day = p.Last.Local().Format(time.DateOnly)
			}
			rows = append(rows, []string{
				day, safe(p.ID), safe(p.Project), size(p.Bytes), number(p.Records), number(p.Words), "~" + number(tokensOf(p)),
				number(secrets(p.Findings)), number(sum(p.Withheld)), shortTitle(p.Title),
			})
		}
		columns(&b, rows)
		fmt.Fprintf(&b, "\n%s of before init: %s would leave this computer, %s with %s for the memory.\n",
			many(int64(len(o.Sessions)), "session"), many(o.Records, "record"), size(o.Sent), many(o.Words, "word"))
	} else {
		fmt.Fprintf(&b, "There is nothing to import in %s.\n", safe(o.Folder))
	}
	counted(&b, "Taken out, by rule", o.Findings)
	counted(&b, "Lines that stay here", o.Withheld)
	o.renderOthers(&b)
	if len(o.Sessions) > 0 {
		b.WriteString(o.renderBudget())
		if o.Paused {
			b.WriteString("Recording is paused: nothing is imported until undersong resume.\n")
		}
	}
	return b.String()
}

// renderOthers says what is not listed.
func (o *outlook) renderOthers(b *strings.Builder) {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(o.Others)) {
		n := o.Others[state]
		switch state {
		case daemon.HistoryWithheld:
			for _, reason := range slices.Sorted(maps.Keys(o.Reasons)) {
				parts = append(parts, fmt.Sprintf("%d %s", o.Reasons[reason], reason))
			}
		case daemon.HistoryDone:
			parts = append(parts, fmt.Sprintf("%d imported before", n))
		case daemon.HistorySince:
			parts = append(parts, fmt.Sprintf("%d begun after init", n))
		case daemon.HistoryChanged:
			parts = append(parts, fmt.Sprintf("%d another file than the one that was begun", n))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if o.Filtered > 0 {
		parts = append(parts, fmt.Sprintf("%d not chosen", o.Filtered))
	}
	if len(parts) > 0 {
		fmt.Fprintf(b, "Sessions that are not imported: %s.\n", safe(strings.Join(parts, ", ")))
	}
}

func (o *outlook) renderBudget() string {
	text := fmt.Sprintf("It costs the memory about %s tokens. ", number(o.Tokens))
	if o.Budget == nil {
		return text + "The cluster cannot be asked for the team's budget now; imports get a fifth of it.\n"
	}
	text += fmt.Sprintf("The team's budget for all imports is %s a day, a fifth of %s", number(o.Budget.Imports), number(o.Budget.Daily))
	if o.Budget.SpentImport > 0 {
		text += fmt.Sprintf(", of which %s are spent today", number(o.Budget.SpentImport))
	}
	if o.Budget.Days > 1 {
		return text + fmt.Sprintf(": the memory has read it in about %d days.\n", o.Budget.Days)
	}
	return text + ": that is enough for today.\n"
}

// counted writes what was counted by name.
func counted(b *strings.Builder, what string, counts map[string]int64) {
	if len(counts) == 0 {
		return
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, safe(name)+" "+number(counts[name]))
	}
	fmt.Fprintf(b, "%s: %s.\n", what, strings.Join(parts, ", "))
}

// secrets is the number of findings that are not for what the team does not hear.
func secrets(findings map[string]int64) int64 {
	var n int64
	for rule, one := range findings {
		if !strings.HasPrefix(rule, "policy-") {
			n += one
		}
	}
	return n
}

func sum(counts map[string]int64) int64 {
	var n int64
	for _, one := range counts {
		n += one
	}
	return n
}

// number writes a number with commas.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// shortTitle is a title as far as a row has room for it.
func shortTitle(title string) string {
	runes := []rune(safe(title))
	if len(runes) > 40 {
		return string(runes[:39]) + "…"
	}
	return string(runes)
}
