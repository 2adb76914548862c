package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/redact/jsonline"
	"github.com/undersong-dev/undersong/internal/redact/stream"
	"github.com/undersong-dev/undersong/internal/transcript"
)

func (s *System) inspectCommand() *cobra.Command {
	var (
		asJSON bool
		state  string
		known  []string
	)
	cmd := &cobra.Command{
		Use:   "inspect [flags] FILE|DIR",
		Short: "Say what a transcript holds, and what of it would leave",
		Long: `Say what a transcript holds, or all transcripts in a folder: the records by type
and which of them would leave this machine as a stub of type, ids, time and length
only, the words of people and of the assistant, titles, streams, bad lines, the
tail that waits for its line end, tokens, and what would be redacted, by rule.

With --json it prints one line with one JSON object for each file, its words
included. Words and titles are printed as they would leave: redacted.

With --state FILE it reads on from where the last call with the same FILE ended,
and says what came and what is gone since. With --known FILE, once for each file,
it tells the records of those other transcripts from new ones.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return s.inspect(args[0], asJSON, state, known)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	cmd.Flags().StringVar(&state, "state", "", "read on from the cursor in this `file`, and keep it there")
	cmd.Flags().StringArrayVar(&known, "known", nil, "the transcript of another session, in this `file` (may be repeated)")
	return cmd
}

func (s *System) inspect(path string, asJSON bool, statePath string, known []string) (err error) {
	redactor, err := redact.New()
	if err != nil {
		return err
	}
	state, err := loadState(statePath)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.close()) }()
	all, err := transcripts(path)
	if err != nil {
		return err
	}
	in := inspector{redactor: redactor, state: state, lists: asJSON, known: transcript.NewKnown(scratch)}
	defer func() { err = errors.Join(err, in.known.Close()) }()
	for _, path := range known {
		if err := in.know(path); err != nil {
			return err
		}
	}
	t := table{others: all.others}
	for _, o := range all.origins {
		err := in.file(o, func(i *inspection) error {
			if asJSON {
				return i.writeJSON(s.Out)
			}
			t.add(i)
			return nil
		})
		if err != nil && o.name == filepath.ToSlash(path) {
			return err // there is no other
		}
		if err != nil {
			all.problems = append(all.problems, err)
		}
	}
	if !asJSON {
		if err := s.print("%s", t.String()); err != nil {
			return err
		}
	}
	if err := state.save(); err != nil {
		return err
	}
	for _, problem := range all.problems {
		_, _ = fmt.Fprintln(s.Err, "undersong: "+safe(problem.Error())) // there is nowhere else to say it
	}
	if n := len(all.problems); n > 0 {
		return fmt.Errorf("inspect %s: %s could not be read", path, many(int64(n), "file"))
	}
	return nil
}

// inspector inspects files.
type inspector struct {
	redactor *redact.Redactor
	state    *stateFile
	lists    bool // are wanted, not only their lengths

	known    *transcript.Known // records of other sessions
	sources  []os.FileInfo     // their files
	compared bool
}

// know takes the records of a transcript as known from another session.
func (in *inspector) know(path string) error {
	file, info, err := openTranscript(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // nothing was written
	lines := transcript.NewLines(file, 0)
	for lines.Next() {
		if record, err := transcript.Parse(lines.Line().Raw); err == nil {
			in.known.Add(record)
		}
	}
	in.sources, in.compared = append(in.sources, info), true
	return errors.Join(lines.Err(), in.known.Err())
}

// isSource reports whether a file is one of those that are known: it is not
// inherited from itself.
func (in *inspector) isSource(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	for _, source := range in.sources {
		if os.SameFile(source, info) {
			return true
		}
	}
	return false
}

// file inspects one transcript, shows what it found, and moves the cursor.
func (in *inspector) file(o origin, show func(*inspection) error) (err error) {
	p, leftover, err := in.state.pass(o)
	if err != nil {
		return err
	}
	i := newInspection(p, in.lists)
	defer func() { err = errors.Join(err, i.close()) }()
	i.leftover, i.delta = leftover, in.state != nil && !leftover
	if known := in.state.find(o); known != nil && i.delta {
		i.earlier = func(f func(role, id string) error) error { return in.state.each(known, f) }
		err := i.earlier(func(_, id string) error {
			i.before.Set(id, 0)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if in.compared && !in.isSource(o.path) {
		i.compared, i.known = true, in.known
	}
	if err := p.read(in.redactor, i.item); err != nil {
		return err
	}
	if err := i.finish(in.redactor); err != nil {
		return err
	}
	if err := show(i); err != nil {
		return err
	}
	if i.delta {
		in.state.keep(p.cursor)
	}
	return nil
}

// inspection is what one transcript holds, as far as it was read. It takes the
// same memory for any number of records: what is kept of each lies in files.
type inspection struct {
	*pass
	// leftover is that of stateFile.pass. delta says that a cursor was asked
	// for, compared that other transcripts were.
	leftover, delta, compared bool

	known *transcript.Known // records of other sessions

	earlier func(func(role, id string) error) error // the records of the cursor, nil for none
	before  *transcript.Marks                       // their uuids, with readAgain for what was read this time

	seen  *transcript.Known
	tree  *transcript.Tree
	usage *transcript.Usage

	census   map[string]*kindCount
	findings redact.Findings
	unknown  []string
	badLines []int64 // the first ones
	tooLong  []int64

	title, tag, pullRequest, branch string
	forkedFrom, continuedIn, owner  string // owner is the session, fit to be shown
	firstPrompt, agentID, foreignID string

	users, assistants, characters, repeats int64

	conversation, texts, calls, results, thinking, notHuman, summaries, sidechain, foreign,
	disputed, bad, withheld, inherited, fresh, abandoned, adds, drops *list
}

const readAgain = 1

// kindCount counts the records of one type.
type kindCount struct {
	records, bytes int64
	stub, withheld bool
}

// leaves says what of the records leaves.
func (c *kindCount) leaves() string {
	switch {
	case c.withheld:
		return "withheld"
	case c.stub:
		return "stub"
	}
	return "itself"
}

func newInspection(p *pass, keep bool) *inspection {
	i := &inspection{
		pass: p, known: new(transcript.Known), before: transcript.NewMarks(scratch),
		seen: transcript.NewKnown(scratch), tree: transcript.NewTree(scratch), usage: transcript.NewUsage(scratch),
		census: map[string]*kindCount{}, findings: redact.Findings{},
	}
	for _, l := range i.all() {
		*l = &list{open: '[', end: ']', keep: keep}
	}
	i.texts.open, i.texts.end = '{', '}'
	return i
}

func (i *inspection) all() []**list {
	return []**list{
		&i.conversation, &i.texts, &i.calls, &i.results, &i.thinking, &i.notHuman, &i.summaries, &i.sidechain, &i.foreign,
		&i.disputed, &i.bad, &i.withheld, &i.inherited, &i.fresh, &i.abandoned, &i.adds, &i.drops,
	}
}

func (i *inspection) close() error {
	errs := []error{i.before.Close(), i.seen.Close(), i.tree.Close(), i.usage.Close()}
	for _, l := range i.all() {
		errs = append(errs, (*l).close())
	}
	return errors.Join(errs...)
}

// maxKinds bounds the census: a damaged file may name a new type in each line.
const maxKinds = 256

// item takes one line into account.
func (i *inspection) item(it *stream.Item) error {
	i.count(it)
	if it.Line.TooLong {
		if len(i.tooLong) < 10 {
			i.tooLong = append(i.tooLong, it.Number)
		}
		return i.withheld.number(it.Number)
	}
	if it.Err != nil {
		if len(i.badLines) < 10 {
			i.badLines = append(i.badLines, it.Number)
		}
		return i.bad.number(it.Number)
	}
	r := it.Record
	if r.AgentID != "" && i.agentID == "" {
		i.agentID = it.Clean.AgentID
	}
	i.note(it)
	if _, known := i.before.Get(r.UUID); known && i.old {
		i.repeats++
		return nil
	}
	switch i.seen.Add(r) {
	case transcript.Conflicting:
		if err := i.disputed.add(it.Clean.UUID); err != nil {
			return err
		}
		fallthrough
	case transcript.Repeated, transcript.Disputed:
		i.repeats++
		return nil
	case transcript.New:
	}
	i.tree.Fold(r, i.session)
	i.usage.Fold(r, i.kind, i.session)
	i.cursor.State.Fold(r, i.session)
	return i.record(it)
}

// count counts the line by its type and by what it would leave as.
func (i *inspection) count(it *stream.Item) {
	kind := it.Stub
	if kind == "" {
		if kind = it.Clean.Type; it.Clean.Subtype != "" {
			kind += "/" + it.Clean.Subtype
		}
	}
	c := i.census[kind]
	if c == nil {
		if len(i.census) >= maxKinds {
			kind = "others"
		}
		if c = i.census[kind]; c == nil {
			c = &kindCount{stub: it.Stub != "" && !it.Line.TooLong, withheld: it.Line.TooLong}
			i.census[kind] = c
		}
	}
	c.records++
	c.bytes += it.Line.Length
	for rule, n := range it.Findings {
		i.findings[rule] += n
	}
}

// note keeps what is odd about a record.
func (i *inspection) note(it *stream.Item) {
	r := it.Record
	if r.Type != "" && !transcript.KnownType(r.Type) && it.Stub != "" && len(i.unknown) < maxKinds {
		name, _, _ := strings.Cut(it.Stub, "/")
		if !slices.Contains(i.unknown, name) {
			i.unknown = append(i.unknown, name)
		}
	}
	if i.isForeign(r) && i.foreignID == "" {
		i.foreignID = it.Clean.SessionID
	}
}

func (i *inspection) isForeign(r transcript.Record) bool {
	return i.session != "" && r.SessionID != "" && r.SessionID != i.session
}

// record takes a record into account that was not there before.
func (i *inspection) record(it *stream.Item) error {
	r, id := it.Record, it.Clean.UUID
	entries := it.Clean.Entries(i.kind, i.session)
	role := ""
	for _, e := range entries {
		role = string(e.Speaker)
		if e.Speaker == transcript.User && i.firstPrompt == "" {
			i.firstPrompt = e.Text
		}
		if e.Speaker == transcript.User {
			i.users++
		} else {
			i.assistants++
		}
		i.characters += int64(utf8.RuneCountInString(e.Text))
		if err := errors.Join(i.conversation.add(role+":"+id), i.texts.entry(id, e.Text)); err != nil {
			return err
		}
		to := i.fresh
		if i.known.Inherited(r) {
			to = i.inherited
		}
		if err := to.add(role + ":" + id); err != nil {
			return err
		}
	}
	if i.delta && r.UUID != "" {
		if _, known := i.before.Get(r.UUID); known {
			i.before.Set(r.UUID, readAgain)
		} else if role != "" {
			if err := i.adds.add(role + ":" + id); err != nil {
				return err
			}
		}
		if err := i.cursor.note(role, r.UUID); err != nil {
			return err
		}
	}
	return i.sort(it, role)
}

// sort adds a record to the lists of its kinds.
func (i *inspection) sort(it *stream.Item, role string) error {
	r, id := it.Record, it.Clean.UUID
	switch {
	case i.isForeign(r):
		if r.UUID == "" {
			return nil
		}
		return i.foreign.add(id)
	case r.Sidechain && i.kind == transcript.MainStream:
		return i.sidechain.add(id)
	case r.CompactSummary:
		return i.summaries.add(id)
	}
	call, result, thought := acts(it.Line.Raw)
	var err error
	if call {
		err = i.calls.add(id)
	}
	if result {
		err = errors.Join(err, i.results.add(id))
	}
	if thought {
		err = errors.Join(err, i.thinking.add(id))
	}
	if r.Type == "user" && role == "" && !result {
		err = errors.Join(err, i.notHuman.add(id))
	}
	return err
}

// acts reports whether the message of a record holds a call of a tool, a result,
// or thoughts, whatever becomes of them.
func acts(raw []byte) (call, result, thought bool) {
	raw = jsonline.Trim(raw)
	var message, content jsonline.Value
	jsonline.Members(raw, func(key, v jsonline.Value) {
		if jsonline.Is(raw, key, "message") {
			message = v
		}
	})
	if message.Kind != jsonline.Object {
		return false, false, false
	}
	jsonline.Each(raw, message, func(key, v jsonline.Value) {
		if jsonline.Is(raw, key, "content") {
			content = v
		}
	})
	if content.Kind != jsonline.Array {
		return false, false, false
	}
	jsonline.Elements(raw, content, func(block jsonline.Value) {
		if block.Kind != jsonline.Object {
			return
		}
		jsonline.Each(raw, block, func(key, v jsonline.Value) {
			if !jsonline.Is(raw, key, "type") {
				return
			}
			kind := jsonline.Text(raw, v)
			call = call || strings.HasSuffix(kind, "tool_use")
			result = result || strings.HasSuffix(kind, "tool_result")
			thought = thought || strings.HasSuffix(kind, "thinking")
		})
	})
	return call, result, thought
}

// finish says what only the end shows.
func (i *inspection) finish(redactor *redact.Redactor) error {
	text := func(s string) string {
		clean, _ := redactor.Text(s)
		return clean.String()
	}
	state := i.cursor.State
	i.title, i.tag, i.pullRequest, i.branch = text(state.Title), text(state.Tag), text(state.PullRequest), text(state.Branch)
	i.forkedFrom, i.continuedIn, i.owner = text(state.ForkedFrom), text(state.ContinuedIn), text(i.session)
	if i.kind == transcript.MainStream {
		for id := range i.tree.Abandoned() {
			if err := i.abandoned.add(text(id)); err != nil {
				return err
			}
		}
	}
	if i.earlier != nil && !i.old {
		err := i.earlier(func(role, id string) error {
			if marks, _ := i.before.Get(id); role == "" || marks&readAgain != 0 {
				return nil
			}
			return i.drops.add(role + ":" + text(id))
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(i.before.Err(), i.seen.Err(), i.tree.Err(), i.usage.Err(), i.known.Err())
}
