package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

// proof is what verify found of one session on this workstation.
type proof struct {
	Session     string `json:"session"`
	Name        string `json:"name"`
	Workstation string `json:"workstation"`

	Streams []streamProof `json:"streams"`

	// Segments and Lines are those that the receipts tell of; Chain is the head
	// that follows from them.
	Segments int64  `json:"segments"`
	Lines    int64  `json:"lines"`
	Chain    string `json:"chain"`

	// Archived are the segments that this workstation has seen to be verified: they
	// stay so when the Session's time is over and it is deleted.
	Archived int64 `json:"archived"`

	// Asked says that the cluster has the Session. Uploaded, Verified and Delivered are
	// the segments that it says it has.
	Asked     bool  `json:"asked"`
	Uploaded  int64 `json:"uploaded"`
	Verified  int64 `json:"verified"`
	Delivered int64 `json:"delivered"`
	Lost      int64 `json:"lostLines"`

	Withheld []withheld `json:"withheld"`

	// Gap is the first thing that does not fit. Empty when all fits.
	Gap string `json:"gap,omitempty"`
}

// streamProof is one transcript file.
type streamProof struct {
	Stream     string `json:"stream"`
	Generation int64  `json:"generation,omitempty"`
	// Import says that it is about what was brought in of before init.
	Import bool   `json:"import,omitempty"`
	Path   string `json:"path"`
	// Read is the byte after the last line read, Size that of the file now; -1
	// when there is no file.
	Read int64 `json:"read"`
	Size int64 `json:"size"`
}

// withheld is a range of a transcript that did not leave, and why.
type withheld struct {
	Stream     string `json:"stream"`
	Generation int64  `json:"generation,omitempty"`
	From       int64  `json:"from"` // bytes
	To         int64  `json:"to"`
	Reason     string `json:"reason"`

	imported bool
}

// errGap is returned, after the report, when something does not fit.
var errGap = errors.New("something does not fit; see GAP above")

func (s *System) verifyCommand() *cobra.Command {
	var asJSON, offline bool
	cmd := &cobra.Command{
		Use:   "verify <session id>",
		Short: "Prove that nothing of a session was lost on its way",
		Long: `Follow one session of this workstation from the transcript to the memory: every
byte that was read is in a segment or in a named range that was withheld; the
chain of segments, computed anew from the receipts that are kept here, ends in
the same head as the cluster's; and so many segments are verified and delivered.
It names the first thing that does not fit.

Exit status: 0 when all fits, also while something is still on its way; 1 when
something does not fit.`,
		Example: `  undersong verify 0b7c52b1-5f4d-4d1c-a3a0-0c1c1b0a9f11`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := s.verify(c.Context(), strings.ToLower(args[0]), offline)
			if err != nil {
				return err
			}
			if asJSON {
				err = s.printJSON(p)
			} else {
				err = s.print("%s", p.render())
			}
			if err == nil && p.Gap != "" {
				err = errGap
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	cmd.Flags().BoolVar(&offline, "offline", false, "do not ask the cluster")
	return cmd
}

func (s *System) verify(ctx context.Context, id string, offline bool) (*proof, error) {
	home, err := s.home()
	if err != nil {
		return nil, err
	}
	config, err := note.LoadConfig(home)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(home, daemon.SessionsDir)
	states := spool.States(dir)
	at := slices.IndexFunc(states, func(state spool.State) bool { return state.SessionID == id })
	if at < 0 {
		return nil, fmt.Errorf("this workstation knows no session %s: undersong status lists what it knows", safe(id))
	}
	receipts, err := spool.Receipts(dir, id)
	if err != nil {
		return nil, err
	}
	p := &proof{Session: id, Name: states[at].Name, Workstation: config.Workstation, Archived: states[at].Verified.Segments, Withheld: []withheld{}}
	p.fromReceipts(&states[at], receipts)
	p.fromFiles(&states[at])
	if offline {
		return p, nil
	}
	return p, s.fromCluster(ctx, config, p, receipts)
}

// gap keeps the first thing that does not fit.
func (p *proof) gap(format string, args ...any) {
	if p.Gap == "" {
		p.Gap = safe(fmt.Sprintf(format, args...))
	}
}

// place is one generation of one stream, as it was said or as it was brought in
// afterwards.
type place struct {
	stream     string
	generation int64
	imported   bool
}

// fromReceipts computes the chain anew and looks whether the segments, with what
// was withheld, cover each stream without a hole.
func (p *proof) fromReceipts(state *spool.State, receipts []spool.Receipt) {
	head := segment.Start(state.Name, p.Workstation)
	ends := map[place]int64{}
	for _, p := range state.Earlier {
		ends[place{p.Stream, p.Generation, p.Import}] = p.Offset
	}
	for i := range receipts {
		r := &receipts[i]
		if r.Seq > state.Head.Segments {
			break // left by a crash; the next segment takes its place
		}
		if r.Seq != p.Segments+1 {
			p.gap("there is no receipt of segment %d", p.Segments+1)
		}
		digest, err := segment.ParseSum(r.Digest)
		if err != nil {
			p.gap("the receipt of segment %d has no digest: it was made by an older version", r.Seq)
		} else if head = head.NextDigest(digest); head.String() != r.Chain {
			p.gap("segment %d does not follow from the one before it", r.Seq)
		}
		where := place{r.Stream, r.Generation, r.Import}
		start := r.Offset
		for _, w := range r.Withheld {
			start = min(start, w.FromOffset) // withheld before, and left with the next line
			p.Withheld = append(p.Withheld, withheld{r.Stream, r.Generation, w.FromOffset, w.ToOffset, w.Reason, r.Import})
		}
		// A session that was opened again after its import goes on behind it.
		if end := max(ends[where], ends[place{r.Stream, r.Generation, true}]); start > end {
			p.gap("bytes %d to %d of %s are in no segment (before segment %d)", end, start, r.Stream, r.Seq)
		}
		ends[where] = r.EndOffset
		p.Segments, p.Lines = r.Seq, p.Lines+r.Lines
	}
	p.Chain = head.String()
	switch {
	case p.Segments != state.Head.Segments:
		p.gap("segments %d to %d have no receipts", p.Segments+1, state.Head.Segments)
	case p.Chain != state.Head.Chain:
		p.gap("the receipts end in another head than the spool")
	case p.Lines != state.Head.Lines:
		p.gap("the receipts tell of %d lines, the spool of %d", p.Lines, state.Head.Lines)
	}
	for stream, one := range state.Imports {
		p.fromCursor(stream, one.Cursor, true, ends)
	}
	for stream, cursor := range state.Cursors {
		p.fromCursor(stream, cursor, false, ends)
	}
	p.brought(state)
	slices.SortFunc(p.Streams, func(a, b streamProof) int {
		if a.Import != b.Import && a.Stream == b.Stream {
			return map[bool]int{true: -1, false: 1}[a.Import]
		}
		return cmp.Compare(a.Stream, b.Stream)
	})
	slices.SortStableFunc(p.Withheld, func(a, b withheld) int {
		return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.From, b.From))
	})
	// What an import's cursor holds goes on in that of who opened the session again.
	p.Withheld = slices.CompactFunc(p.Withheld, func(a, b withheld) bool { a.imported = b.imported; return a == b })
}

// fromCursor looks whether all that a cursor has read is in a segment or withheld.
func (p *proof) fromCursor(stream string, cursor read.Cursor, imported bool, ends map[place]int64) {
	end := max(ends[place{stream, cursor.Generation, imported}], ends[place{stream, cursor.Generation, true}])
	for _, w := range cursor.Pending {
		p.Withheld = append(p.Withheld, withheld{stream, cursor.Generation, w.FromOffset, w.ToOffset, w.Reason, imported})
		end = max(end, w.ToOffset)
	}
	if end < cursor.Offset {
		p.gap("bytes %d to %d of %s were read and are in no segment", end, cursor.Offset, stream)
	}
	p.Streams = append(p.Streams, streamProof{Stream: stream, Generation: cursor.Generation, Import: imported, Path: cursor.Path, Read: cursor.Offset, Size: -1})
}

// brought takes out of what was withheld as of before init what was brought in
// since.
func (p *proof) brought(state *spool.State) {
	kept := p.Withheld[:0]
	for _, w := range p.Withheld {
		if one, ok := state.Imports[w.Stream]; ok && !w.imported && w.Reason == read.ReasonBeforeInit && w.Generation == 0 && w.From < one.Cursor.Offset {
			if w.From = one.Cursor.Offset; w.From >= w.To {
				continue
			}
		}
		kept = append(kept, w)
	}
	p.Withheld = kept
}

// fromFiles looks at the transcripts as they are now.
func (p *proof) fromFiles(state *spool.State) {
	if len(p.Streams) == 0 && state.Transcript != "" {
		p.Streams = []streamProof{{Stream: "main", Path: state.Transcript, Size: -1}}
	}
	for i := range p.Streams {
		if info, err := os.Stat(p.Streams[i].Path); err == nil {
			p.Streams[i].Size = info.Size()
		}
	}
}

// fromCluster compares with what the cluster says.
func (s *System) fromCluster(ctx context.Context, config note.Config, p *proof, receipts []spool.Receipt) error {
	c, err := s.cluster(config)
	if err != nil {
		return err
	}
	ctx, cancel := asking(ctx)
	defer cancel()
	live := &v1alpha1.Session{}
	err = c.Get(ctx, kube.Key{Namespace: config.Namespace, Name: p.Name}, live)
	if apierrors.IsNotFound(err) {
		p.Asked = false
		if p.Segments > p.Archived {
			p.gap("the cluster has no Session %s, and %d of %d segments were never seen to be archived: it was deleted, or nothing was uploaded yet", p.Name, p.Segments-p.Archived, p.Segments)
		}
		return nil
	}
	if err != nil {
		return explain(err)
	}
	p.compare(live, receipts)
	return nil
}

// headAt is the head after so many segments, by the receipts.
func headAt(name, workstation string, receipts []spool.Receipt, segments int64) (string, bool) {
	if segments == 0 {
		return segment.Start(name, workstation).String(), true
	}
	i := slices.IndexFunc(receipts, func(r spool.Receipt) bool { return r.Seq == segments })
	if i < 0 {
		return "", false
	}
	return receipts[i].Chain, true
}

// compare holds the receipts against a Session.
func (p *proof) compare(live *v1alpha1.Session, receipts []spool.Receipt) {
	p.Asked, p.Lost = true, live.Status.LostLines
	same := func(segments int64, chain, what string) {
		head, known := headAt(p.Name, p.Workstation, receipts, segments)
		switch {
		case !known:
			p.gap("the cluster has %s %d segments, and there is no receipt of the last", what, segments)
		case head != chain:
			p.gap("after segment %d the head that the cluster has %s is another one", segments, what)
		}
	}
	if i := slices.IndexFunc(live.Spec.Writers, func(w v1alpha1.Writer) bool { return w.Workstation == p.Workstation }); i >= 0 {
		w := &live.Spec.Writers[i]
		p.Uploaded = w.Segments
		same(w.Segments, w.Chain, "uploaded")
		if len(w.Gone) > 0 {
			p.gap("segment %d was asked for again and could not be sent", slices.Min(w.Gone))
		}
	}
	if live.Status.SyncState != nil {
		for _, w := range live.Status.SyncState.Writers {
			if w.Workstation != p.Workstation || w.Origin == v1alpha1.OriginArchive {
				continue // what an earlier Session left says nothing of this one
			}
			p.Verified, p.Delivered = w.Verified.Segments, w.Delivered.Segments
			same(w.Verified.Segments, w.Verified.Chain, "verified")
		}
	}
	if p.Lost > 0 {
		p.gap("%s of this session were lost for good (status.lostLines)", many(p.Lost, "line"))
	}
}

// render is the proof for people.
func (p *proof) render() string {
	var b strings.Builder
	rows := [][]string{{"session", safe(p.Session)}, {"object", safe(p.Name)}, {"workstation", safe(p.Workstation)}}
	for _, stream := range p.Streams {
		text := fmt.Sprintf("read to byte %d of %d, %s", stream.Read, stream.Size, safe(stream.Path))
		switch {
		case stream.Size < 0:
			text = fmt.Sprintf("read to byte %d; the file is gone, %s", stream.Read, safe(stream.Path))
		case stream.Size < stream.Read:
			text = fmt.Sprintf("read to byte %d; the file is shorter now (%d), and is read as a new one, %s", stream.Read, stream.Size, safe(stream.Path))
		case stream.Import && stream.Size > stream.Read:
			text = fmt.Sprintf("brought in to byte %d, %s", stream.Read, safe(stream.Path))
		case stream.Size == stream.Read:
			text = fmt.Sprintf("read to its end, byte %d, %s", stream.Read, safe(stream.Path))
		}
		name := safe(stream.Stream)
		if stream.Import {
			name += ", imported"
		}
		rows = append(rows, []string{name, text})
	}
	rows = append(rows, []string{"segments", fmt.Sprintf("%d, with %s; head %s", p.Segments, many(p.Lines, "line"), headOf(p.Chain))})
	if p.Asked {
		rows = append(rows,
			[]string{"uploaded", outOf(p.Uploaded, p.Segments)},
			[]string{"verified", outOf(p.Verified, p.Segments)},
			[]string{"delivered", outOf(p.Delivered, p.Segments)})
	} else {
		rows = append(rows,
			[]string{"archived", outOf(p.Archived, p.Segments) + ", as this computer last saw it"},
			[]string{"cluster", "not asked, or it no longer has the Session"})
	}
	columns(&b, rows)
	if len(p.Withheld) > 0 {
		b.WriteString("\nNot sent, and never will be" + p.importable() + ":\n")
		table := [][]string{{"  STREAM", "BYTES", "BECAUSE"}}
		for _, w := range p.Withheld {
			table = append(table, []string{"  " + safe(w.Stream), fmt.Sprintf("%d to %d", w.From, w.To), safe(w.Reason)})
		}
		columns(&b, table)
	}
	if p.Gap != "" {
		b.WriteString("\nGAP: " + p.Gap + "\n")
		return b.String()
	}
	b.WriteString("\nAll that was read is in a segment or in a range above, and the chain is whole.\n")
	return b.String()
}

// importable is what to say where something is withheld that the person may still
// bring in.
func (p *proof) importable() string {
	if slices.ContainsFunc(p.Withheld, func(w withheld) bool { return w.Reason == read.ReasonBeforeInit }) {
		return ", unless you bring in what was said before init (undersong import)"
	}
	return ""
}

func outOf(n, all int64) string {
	if n >= all {
		return fmt.Sprintf("all %d", all)
	}
	return fmt.Sprintf("%d of %d; the rest is on its way", n, all)
}

func headOf(chain string) string { return chain[:min(len(chain), 16)] }
