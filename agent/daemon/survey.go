package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/status"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
)

// States of a session of before init.
const (
	// HistoryReady: something of it would be sent.
	HistoryReady = "ready"
	// HistoryDone: all of it was brought in before.
	HistoryDone = "imported"
	// HistorySince: nothing of it is of before init.
	HistorySince = "since init"
	// HistoryWithheld: what is of before init may not be heard; Withheld says why.
	HistoryWithheld = "withheld"
	// HistoryEmpty: nothing is in it.
	HistoryEmpty = "empty"
	// HistoryQuiet: it is private, switched off or forgotten.
	HistoryQuiet = "private"
	// HistoryDeleted: its Session was deleted, by a person or by forget.
	HistoryDeleted = "deleted"
	// HistoryChanged: the file is another one than the one that was begun.
	HistoryChanged = "changed"
	// HistoryUnread: it cannot be read.
	HistoryUnread = "unreadable"
)

// Past is what would be brought in of one session.
type Past struct {
	ID      string    `json:"session"`
	Path    string    `json:"path"`
	State   string    `json:"state"`
	Title   string    `json:"title,omitempty"`
	Project string    `json:"project,omitempty"`
	First   time.Time `json:"first,omitzero"` // of what would be sent
	Last    time.Time `json:"last,omitzero"`

	// Bytes are those of the transcripts that would be read, Records the lines
	// that would be sent, Sent their bytes. Words are those that the memory would
	// be told, WordBytes their bytes, Turns in how many turns at most.
	Bytes     int64 `json:"bytes"`
	Records   int64 `json:"records"`
	Sent      int64 `json:"sentBytes"`
	Words     int64 `json:"words"`
	WordBytes int64 `json:"wordBytes"`
	Turns     int64 `json:"turns"`

	// Findings are what is taken out, by rule, Withheld the lines that stay, by
	// reason.
	Findings map[string]int64 `json:"findings"`
	Withheld map[string]int64 `json:"withheld"`

	plan   HistorySession
	copies []copied
}

// copied is a run of records that another session of the survey has, too.
type copied struct {
	from    owner
	stream  int
	bytes   HistoryRange
	records int64
	sent    int64
	words   int64
	text    int64
}

// Plan is what the daemon is to bring in of it.
func (p *Past) Plan() HistorySession { return p.plan }

// Transcript is one file to look at.
type Transcript struct {
	ID   string
	Path string

	// Sent are how many of its lines the plugin has sent.
	Sent int64
}

// Survey says what would be brought in of transcripts, and changes nothing. It
// reads them as the daemon does, with the same rules.
type Survey struct {
	Home   string
	Config note.Config
	Clock  clock.Clock

	// Room keeps what is remembered of records.
	Room transcript.Room

	// Progress is told how many transcripts and bytes were looked at. Nil means
	// nobody.
	Progress func(transcripts int, bytes int64)

	loop   *loop
	marks  *transcript.Marks
	aside  []string                 // folders of earlier registrations
	before map[string][]spool.State // their sessions
	bytes  int64

	// places lets the reader know the folders of a session as notes named them.
	places func(*spool.State) error
}

// ErrPolicyUnknown: nothing can be said without it.
var ErrPolicyUnknown = errors.New("what the team allows is not known yet: undersong status says whether the cluster can be reached")

// ErrTeamRules: the team's redaction rules cannot be used.
var ErrTeamRules = errors.New(teamRules)

// Look looks at transcripts, in their order: of copies the first has the words.
func (s *Survey) Look(ctx context.Context, all []Transcript) (list []*Past, err error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.marks.Close()) }()
	if err := s.settled(all); err != nil {
		return nil, err
	}
	for n, one := range all {
		past, err := s.one(ctx, n, one)
		if err != nil {
			return nil, err
		}
		list = append(list, past)
		if s.Progress != nil {
			s.Progress(n+1, s.bytes)
		}
	}
	return list, s.marks.Err()
}

func (s *Survey) open() error {
	view := status.OpenView(s.Home)
	if _, _, known := view.Capture(); !known {
		return ErrPolicyUnknown
	}
	builtIn, err := redact.New()
	if err != nil {
		return err
	}
	base, err := readBaseline(s.Home)
	if err != nil {
		return err
	}
	consent := newConsent(&settings{home: s.Home, config: s.Config}, view)
	redactor, err := consent.begin(builtIn, nil)
	if err != nil {
		return ErrTeamRules
	}
	s.places = func(state *spool.State) error {
		var err error
		s.loop.reader.Redactor, err = consent.begin(builtIn, state.Folders)
		return err
	}
	s.loop = &loop{
		home: s.Home, config: s.Config, clock: s.Clock, timing: DefaultTiming, view: view, baseline: base,
		trouble: nobody{}, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		reader: &read.Reader{Redactor: redactor, Clock: s.Clock, Decide: consent.decide, Policy: consent.policy},
	}
	s.marks = transcript.NewMarks(s.Room)
	s.before = map[string][]spool.State{}
	s.aside, err = filepath.Glob(filepath.Join(s.Home, SessionsDir+".*")) // nothing special is in the end of it
	if err != nil {
		return err
	}
	for _, dir := range s.aside {
		for _, state := range spool.States(dir) {
			s.before[state.SessionID] = append(s.before[state.SessionID], state)
		}
	}
	return nil
}

// nobody takes what is told and forgets it.
type nobody struct{}

// Set does nothing.
func (nobody) Set(string, string) {}

// state is what is known of a session now.
func (s *Survey) state(id string) spool.State {
	if state, ok := spool.Read(filepath.Join(s.Home, SessionsDir), id); ok {
		return state
	}
	return spool.State{SessionID: id}
}

// one looks at one session. Only what concerns all of them is an error.
func (s *Survey) one(ctx context.Context, n int, file Transcript) (*Past, error) {
	past := &Past{ID: file.ID, Path: file.Path, Findings: map[string]int64{}, Withheld: map[string]int64{}, plan: HistorySession{ID: file.ID}}
	state := s.state(file.ID)
	if err := errors.Join(s.places(&state), s.loop.quiet(ctx, file.ID)); err != nil {
		return nil, err
	}
	switch {
	case state.Withdrawn:
		past.State = HistoryDeleted
		return past, nil
	case s.loop.hushedNow(&state):
		past.State = HistoryQuiet
		return past, nil
	}
	streams := read.Agents(file.Path, file.ID)
	names := []string{read.Main}
	for name := range streams {
		names = append(names, name)
	}
	slices.Sort(names[1:])
	streams[read.Main] = file.Path
	b := &surveying{Survey: s, past: past, state: state, number: n}
	for _, name := range names {
		err := b.stream(ctx, name, streams[name], file.Sent)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, consent.ErrSilences):
			return nil, err
		case errors.Is(err, read.ErrReplaced):
			past.State = HistoryChanged
		case err != nil:
			past.State = HistoryUnread
		}
		if past.State != "" {
			past.plan.Streams = nil
			return past, nil
		}
	}
	past.judge(b)
	return past, nil
}

// judge says in which state a session is.
func (p *Past) judge(b *surveying) {
	switch {
	case len(p.plan.Streams) > 0:
		p.State = HistoryReady
	case b.done:
		p.State = HistoryDone
	case len(p.Withheld) > 0:
		p.State = HistoryWithheld
	case b.since:
		p.State = HistorySince
	default:
		p.State = HistoryEmpty
	}
	title, _ := b.loop.reader.Redactor.Text(b.talk.Title)
	p.Title = title.String()
	if b.project != nil {
		p.Project = b.project.Remote
	}
}

// surveying is one session under survey.
type surveying struct {
	*Survey
	past    *Past
	state   spool.State
	number  int
	project *read.Project
	talk    transcript.State
	done    bool // something was brought in before
	since   bool // something is of after init
}

// stream looks at one stream, and plans what is to be brought in of it.
func (b *surveying) stream(ctx context.Context, name, path string, sent int64) error {
	until, dated := b.loop.baseline.bounded(&b.state, name, path)
	cursor := b.state.Imports[name].Cursor
	b.done = b.done || cursor.Offset > 0
	if until == 0 {
		b.since = true
		return nil
	}
	plan := HistoryStream{Stream: name, Path: path, Until: until, Dated: dated}
	var err error
	if plan.Cwd, plan.Entrypoint, err = firstPlace(path); err != nil {
		return err
	}
	if plan.Leave, err = b.leave(name, path, sent); err != nil {
		return err
	}
	src, err := b.loop.historySource(ctx, b.state.SessionID, plan)
	if err != nil {
		return err
	}
	want := wantOf(&b.state)
	if want.Project == nil {
		want.Project = b.project
	}
	begin, lines := cursor.Offset, b.past.Records
	s := &stretch{surveying: b, stream: len(b.past.plan.Streams), main: name == read.Main}
	for {
		batch, err := b.loop.reader.Next(ctx, src, cursor, want)
		switch {
		case errors.Is(err, read.ErrMissing):
			return nil
		case err != nil:
			return err
		}
		s.take(batch)
		b.bytes += batch.Cursor.Offset - cursor.Offset
		cursor, b.since = batch.Cursor, b.since || batch.Over
		if want.Project == nil {
			want.Project = batch.Project
		}
		want.NoSummaries = want.NoSummaries || cursor.NoSummaries
		if !batch.More {
			break
		}
	}
	s.end()
	if b.project == nil {
		b.project = want.Project
	}
	for _, w := range cursor.Pending {
		b.count(w.Range)
	}
	// The cursor of a subagent's withheld lines concerns the whole session.
	b.state.Imports = withCursor(b.state.Imports, name, cursor)
	if b.past.Records == lines && !s.copied {
		return nil // nothing would be sent
	}
	b.past.Bytes += cursor.Offset - begin
	plan.Until = cursor.Offset
	b.past.plan.Streams = append(b.past.plan.Streams, plan)
	return nil
}

// firstPlace returns where the first record that says so was written, and how
// Claude Code was started then.
func firstPlace(path string) (cwd, entrypoint string, err error) {
	file, err := os.Open(path) //nolint:gosec // the user named the folder
	if err != nil {
		return "", "", err
	}
	defer func() { _ = file.Close() }() // nothing was written
	lines := transcript.NewLines(io.LimitReader(file, spanBytes), 0)
	for lines.Next() {
		if record, err := transcript.Parse(lines.Line().Raw); err == nil && record.Cwd != "" {
			return record.Cwd, record.Entrypoint, nil
		}
	}
	return "", "", lines.Err()
}

func withCursor(all map[string]spool.Import, name string, cursor read.Cursor) map[string]spool.Import {
	if all == nil {
		all = map[string]spool.Import{}
	}
	all[name] = spool.Import{Cursor: cursor}
	return all
}

// count counts withheld lines.
func (b *surveying) count(r segment.Range) {
	n := int64(1)
	if r.FromIndex != segment.NoIndex {
		n = r.ToIndex - r.FromIndex + 1
	}
	b.past.Withheld[r.Reason] += n
}

// leave returns what stays of a stream because it was sent before.
func (b *surveying) leave(name, path string, sent int64) ([]HistoryRange, error) {
	var list []HistoryRange
	if name == read.Main && sent > 0 {
		file, err := os.Open(path) //nolint:gosec // the user named the folder
		if err != nil {
			return nil, err
		}
		to, _, err := read.After(file, sent-1)
		_ = file.Close() // nothing was written
		if err != nil {
			return nil, err
		}
		list = append(list, HistoryRange{To: to, Reason: read.ReasonSent})
	}
	for _, earlier := range b.before[b.state.SessionID] {
		if cursor, ok := earlier.Cursors[name]; ok {
			from := cursor.Baseline
			if cursor.Generation > 0 {
				from = 0
			}
			list = append(list, HistoryRange{From: from, To: cursor.Offset, Reason: read.ReasonSent})
		}
		if one, ok := earlier.Imports[name]; ok {
			list = append(list, HistoryRange{To: one.Cursor.Offset, Reason: read.ReasonSent})
		}
	}
	return slices.DeleteFunc(list, func(r HistoryRange) bool { return r.To <= r.From }), nil
}

// settled remembers the records of which it is decided that a session has them,
// whether or not anybody asks for that session now: those that were sent before,
// and those that an import under way is to bring in. Copies of them in other
// sessions stay.
func (s *Survey) settled(all []Transcript) error {
	number, path := map[string]int{}, map[string]string{}
	for n, one := range all {
		number[one.ID], path[one.ID] = n+1, one.Path
	}
	for _, dir := range append(slices.Clone(s.aside), filepath.Join(s.Home, SessionsDir)) {
		for _, state := range spool.States(dir) {
			if len(state.Imports) == 0 {
				continue
			}
			receipts, err := spool.Receipts(dir, state.SessionID)
			if err != nil {
				return err
			}
			for stream, one := range state.Imports {
				paths := []string{one.Cursor.Path}
				if stream == read.Main {
					paths = append(paths, path[state.SessionID]) // it may have moved
				}
				from := slices.IndexFunc(paths, func(path string) bool { return path != "" && read.Fits(path, one.Cursor) })
				if from < 0 {
					continue // the file is gone, or another one
				}
				if err := s.settle(number[state.SessionID]-1, paths[from], one.Cursor.Offset, others(stream, one.Cursor, receipts)); err != nil {
					return err
				}
			}
		}
	}
	plan, err := LoadHistory(s.Home, s.Config)
	if err != nil {
		return err
	}
	for i := range plan.Sessions {
		one := &plan.Sessions[i]
		if state := s.state(one.ID); one.reached(&state, plan.At) {
			continue
		}
		for _, stream := range one.Streams {
			err := s.settle(number[one.ID]-1, stream.Path, stream.Until, stream.Leave)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// others are the bytes that an import left out of a stream as another session has
// them.
func others(stream string, cursor read.Cursor, receipts []spool.Receipt) []HistoryRange {
	var list []HistoryRange
	add := func(w read.Withheld) {
		if w.Reason == read.ReasonInherited {
			list = append(list, HistoryRange{From: w.FromOffset, To: w.ToOffset, Reason: w.Reason})
		}
	}
	for _, w := range cursor.Pending {
		add(w)
	}
	for _, r := range receipts {
		if r.Import && r.Stream == stream {
			for _, w := range r.Withheld {
				add(w)
			}
		}
	}
	return list
}

// settle remembers the records before a byte of a file, but not those of others,
// as those of a session; -1 is one that nobody asks for.
func (s *Survey) settle(number int, path string, until int64, others []HistoryRange) error {
	file, err := os.Open(path) //nolint:gosec // the user named the folder
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // nothing was written
	lines := transcript.NewLines(io.NewSectionReader(file, 0, until), 0)
	for lines.Next() {
		line := lines.Line()
		if slices.ContainsFunc(others, func(r HistoryRange) bool {
			return r.Reason == read.ReasonInherited && line.Offset < r.To && r.From < line.Offset+line.Length
		}) {
			continue
		}
		record, err := transcript.Parse(line.Raw)
		if err != nil || record.UUID == "" {
			continue
		}
		if _, known := s.marks.Get(record.UUID); !known {
			s.marks.Set(record.UUID, owner{number: number, settled: true}.mark())
		}
	}
	return lines.Err()
}

// owner says which session of the survey has a record.
type owner struct {
	number  int
	settled bool // whatever is chosen now
}

// mark is an owner as a number, and ownerOf the way back.
func (o owner) mark() uint64 {
	m := uint64(o.number+1) << 1 //nolint:gosec // from -1 on
	if o.settled {
		m |= 1
	}
	return m
}

func ownerOf(mark uint64) owner {
	return owner{number: int(mark>>1) - 1, settled: mark&1 == 1}
}

// own gives a record to this session, unless another has it already.
func (b *surveying) own(id string) (of owner, other bool) {
	if mark, known := b.marks.Get(id); known {
		of = ownerOf(mark)
		return of, of.number != b.number
	}
	b.marks.Set(id, owner{number: b.number}.mark())
	return owner{}, false
}

// maxCopies bounds the runs of copied records of a session. More are no fork.
const maxCopies = 1024

// stretch is one stream of a session under survey.
type stretch struct {
	*surveying
	stream int
	main   bool
	tools  transcript.Tools
	run    *copied
	copied bool // some of it
}

// take counts what a batch would send.
func (s *stretch) take(batch read.Batch) {
	p := s.past
	for _, r := range batch.Header.Withheld {
		s.count(r)
	}
	for rule, n := range batch.Header.Findings {
		p.Findings[rule] += int64(n)
	}
	for i, line := range batch.Lines {
		record, err := transcript.Parse([]byte(line.String()))
		size := int64(line.Len()) + 1
		var words, text int64
		if err == nil && s.main {
			s.talk.Fold(record, p.ID)
			policy := transcript.Policy{}
			if s.loop.reader.Policy != nil {
				policy = s.loop.reader.Policy()
			}
			for _, entry := range record.Memory(transcript.MainStream, p.ID, policy, &s.tools) {
				words += int64(len(bytes.Fields([]byte(entry.Text))))
				text += int64(len(entry.Text))
			}
			s.tools.Fold(record)
		}
		if err == nil && record.UUID != "" {
			if of, other := s.own(record.UUID); other && len(p.copies) < maxCopies {
				s.copy(of, batch.Header.Offsets[i], size, words, text)
				continue
			}
			s.end()
		}
		p.Records, p.Sent, p.Words, p.WordBytes = p.Records+1, p.Sent+size, p.Words+words, p.WordBytes+text
		if at := batch.Times[i]; !at.IsZero() && !at.After(batch.Header.At) {
			if p.First.IsZero() || at.Before(p.First) {
				p.First = at
			}
			if at.After(p.Last) {
				p.Last = at
			}
		}
	}
}

// copy notes a record that another session has.
func (s *stretch) copy(of owner, offset, size, words, text int64) {
	if s.run == nil || s.run.from != of {
		s.end()
		s.run = &copied{from: of, stream: s.stream, bytes: HistoryRange{From: offset, Reason: read.ReasonInherited}}
	}
	s.copied = true
	s.run.bytes.To = offset + 1 // a byte of it, so all of its line
	s.run.records, s.run.sent, s.run.words, s.run.text = s.run.records+1, s.run.sent+size, s.run.words+words, s.run.text+text
}

// end ends a run of copies.
func (s *stretch) end() {
	if s.run != nil {
		s.past.copies = append(s.past.copies, *s.run)
		s.run = nil
	}
}

// Choose keeps what is wanted of a survey, and decides what is sent of copies:
// nothing where the session that they are copies of is sent, too, or was.
func Choose(all []*Past, want func(*Past) bool) []*Past {
	chosen := make([]bool, len(all))
	for i, p := range all {
		chosen[i] = p.State == HistoryReady && want(p)
	}
	var list []*Past
	for i, p := range all {
		if !chosen[i] {
			continue
		}
		for _, c := range p.copies {
			if c.from.settled || chosen[c.from.number] {
				p.Withheld[read.ReasonInherited] += c.records
				s := &p.plan.Streams[c.stream]
				s.Leave = append(s.Leave, c.bytes)
				continue
			}
			p.Records, p.Sent, p.Words, p.WordBytes = p.Records+c.records, p.Sent+c.sent, p.Words+c.words, p.WordBytes+c.text
		}
		p.copies = nil
		if p.Records == 0 {
			p.State = HistoryWithheld
			continue
		}
		if p.WordBytes > 0 {
			p.Turns = int64(math.Ceil(float64(p.WordBytes) / turnBytes))
		}
		list = append(list, p)
	}
	return list
}

// turnBytes is TeamMemory.spec.delivery.maxBatchBytes where it is omitted.
const turnBytes = 32 << 10

// Span returns the times that the first and the last record of a transcript give,
// as far as they can be told from its beginning and its end. A time to come is none.
func Span(path string, now time.Time) (first, last time.Time, err error) {
	file, err := os.Open(path) //nolint:gosec // the user named the folder
	if err != nil {
		return first, last, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	info, err := file.Stat()
	if err != nil {
		return first, last, err
	}
	if !info.Mode().IsRegular() {
		return first, last, fmt.Errorf("read %s: not a regular file", filepath.Base(path))
	}
	times := func(from int64, each func(time.Time) bool) error {
		lines := transcript.NewLines(io.NewSectionReader(file, from, spanBytes), from)
		if from > 0 {
			lines.Next() // it begins within a line
		}
		for lines.Next() {
			record, err := transcript.Parse(lines.Line().Raw)
			if err == nil && !record.Timestamp.IsZero() && !record.Timestamp.After(now) && !each(record.Timestamp) {
				break
			}
		}
		return lines.Err()
	}
	err = times(0, func(at time.Time) bool { first = at; return false })
	err = errors.Join(err, times(max(info.Size()-spanBytes, 0), func(at time.Time) bool {
		if at.After(last) {
			last = at
		}
		return true
	}))
	return first, last, err
}

// spanBytes is how much of each end of a transcript is looked at.
const spanBytes = 1 << 20

// Transcripts lists the sessions' transcripts below a folder, those that no
// subagent wrote, by id. Of several of one id, the one that session knows counts,
// else the longest.
func Transcripts(dir, home string) ([]Transcript, error) {
	type candidate struct {
		path  string
		size  int64
		known bool
	}
	known := map[string]bool{}
	for _, state := range spool.States(filepath.Join(home, SessionsDir)) {
		for _, path := range state.Transcripts() {
			known[path] = true
		}
	}
	byID := map[string]candidate{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			if path == dir {
				return err
			}
			return nil // a folder that cannot be listed hides no other
		}
		if entry.IsDir() && entry.Name() == "subagents" {
			return filepath.SkipDir
		}
		id, is := strings.CutSuffix(entry.Name(), ".jsonl")
		if !is || !entry.Type().IsRegular() || !note.ValidSession(id) || strings.HasPrefix(id, segment.AgentPrefix) {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // it went meanwhile
		}
		id = strings.ToLower(id)
		now := candidate{path, info.Size(), known[path]}
		if before, ok := byID[id]; !ok || now.known && !before.known || now.known == before.known && now.size > before.size {
			byID[id] = now
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for transcripts: %w", err)
	}
	list := make([]Transcript, 0, len(byID))
	for id, one := range byID {
		list = append(list, Transcript{ID: id, Path: one.path})
	}
	slices.SortFunc(list, func(a, b Transcript) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}
