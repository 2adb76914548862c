package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/hook"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/segment"
)

const (
	// maxSpans bounds the requests of one session: what lies between two spans
	// goes with them when there are more.
	maxSpans = 4
)

type forgetFlags struct {
	last, wait time.Duration
	retry      bool
}

func (s *System) forgetCommand() *cobra.Command {
	var f forgetFlags
	cmd := &cobra.Command{
		Use:   "forget {--last 10m | <session id>}",
		Short: "Take back what was recorded: the last minutes, or a session",
		Long: `Take back what was recorded: of all sessions of this workstation the last
minutes, or one whole session, of all workstations. What has not left this
computer is erased at once and will not be read again. What has left is erased
from the archive, from what waits for the memory, and from what it said because
of it; the command waits for the answer, and says what could not be reached: what
a memory has learned from words cannot be taken out of it by us.

A session that was forgotten is not recorded any more. If the cluster cannot be
reached the request is kept, and the daemon asks again when it can: undersong
status says so. undersong forget --retry asks at once.`,
		Example: `  undersong forget --last 10m
  undersong forget 8c1f0a52-4a1d-4d5e-9d58-2f0c6b7c1c11`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return s.forget(c.Context(), f, args) },
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.last, "last", 0, "what was said in the last minutes, such as 10m, in every session")
	flags.BoolVar(&f.retry, "retry", false, "ask at once for what the cluster has not answered, and say what it answered meanwhile")
	flags.DurationVar(&f.wait, "wait", 2*time.Minute, "how long to wait for the answer")
	cmd.MarkFlagsMutuallyExclusive("last", "retry")
	return cmd
}

func (s *System) forget(ctx context.Context, f forgetFlags, args []string) error {
	home, err := s.home()
	if err != nil {
		return err
	}
	config, err := note.LoadConfig(home)
	if err != nil {
		return err
	}
	if (f.last > 0 || f.retry) == (len(args) == 1) || f.last < 0 {
		return errors.New("say what to forget: --last with a time, or the id of a session")
	}
	if !f.retry {
		session := ""
		if len(args) == 1 {
			if session = strings.ToLower(args[0]); !note.ValidSession(session) {
				return errors.New("that is not a session id")
			}
			if at, result := forgottenAlready(home, config, session); result != "" {
				return s.print("Session %s was forgotten on %s: %s\n", safe(session), clockTime(at), safe(result))
			}
		}
		if err := s.forgetHere(ctx, home, config, session, f.last); err != nil {
			return err
		}
	}
	waiting, err := upload.Wishes(home)
	if err != nil {
		return err
	}
	waiting = slices.DeleteFunc(waiting, func(w upload.Wish) bool { return w.Told })
	if len(waiting) == 0 {
		return s.print("Nothing else of it has left this computer.\n")
	}
	return s.forgetThere(ctx, home, config, waiting, f.wait)
}

// forgottenAlready returns when the cluster answered for a whole session that is
// neither read nor sent since, and what; nothing otherwise. It has no Session any
// more of which it could be asked again.
func forgottenAlready(home string, config note.Config, session string) (time.Time, string) {
	state, known := spool.Read(filepath.Join(home, daemon.SessionsDir), session)
	wishes, err := upload.Wishes(home)
	i := slices.IndexFunc(wishes, func(w upload.Wish) bool {
		return w.Whole && w.Told && w.SessionID == session && w.For == upload.Addressee(config)
	})
	if err != nil || i < 0 || known && !state.Withdrawn {
		return time.Time{}, ""
	}
	return wishes[i].At, wishes[i].Result
}

// forgetHere sees to what this workstation has, and keeps what is to be asked of
// the cluster.
func (s *System) forgetHere(ctx context.Context, home string, config note.Config, session string, last time.Duration) error {
	now := s.Clock.Now().UTC()
	var since time.Time
	if session == "" {
		since = now.Add(-last)
	}
	// First, so that a daemon that reads meanwhile does not read it.
	err := s.quiet(ctx, home, func(known *consent.Silences, projects string, sizes map[string]int64) {
		known.Add(forgotten(session, projects, since, now, sizes))
	})
	if err != nil {
		return err
	}
	ran, err := s.stop(ctx, home)
	if err != nil {
		return err
	}
	held, err := daemon.Hold(ctx, home)
	if err != nil {
		return err
	}
	defer func() {
		held()
		if ran { // what is on its way has to arrive before it can be erased there
			_ = hook.Wake(home, config, s.Clock.Now()) // else the next hook does
		}
	}()
	dir := filepath.Join(home, daemon.SessionsDir)
	queue, err := spool.Open(spool.Options{Dir: dir, Owner: config.Owner, Workstation: config.Workstation})
	if err != nil {
		return err
	}
	var waiting []upload.Wish
	erased := int64(0)
	known, unsent, stored := false, false, false
	for _, one := range queue.Sessions() {
		state := one.State()
		if session != "" && state.SessionID != session {
			continue
		}
		known = true
		receipts, err := spool.Receipts(dir, state.SessionID)
		if err != nil {
			return err
		}
		lines, spans, here := meant(receipts, &state, one.Unsent(), since)
		if session == "" {
			wrote := wroteSince(&state, since)
			if wrote && !accounted(receipts, &state, config.Workstation) {
				err := s.print("Session %s: this computer does not know any more which lines it sent first; if they are of that time: undersong forget %[1]s\n", safe(state.SessionID))
				if err != nil {
					return err
				}
			}
			if here == 0 && len(spans) == 0 && !wrote {
				continue // nothing was said in it
			}
		}
		erased += here
		if err := unsay(home, state.SessionID, since); err != nil {
			return err
		}
		unsent, stored = untold(&state)
		inbox := session == "" && inSlots(&state, lines)
		if inbox && state.Applied == nil {
			inbox = false // there is no entry of this workstation to ask about
			err := s.print("Session %s: the cluster was not told of it; what was uploaded may lie in the bucket's inbox for a day, where nobody reads it.\n", safe(state.SessionID))
			if err != nil {
				return err
			}
		}
		if inbox && len(spans) == 0 { // the cluster empties it when it is asked for any line
			spans = append(spans, oneErased(receipts, lines))
		}
		if err := one.Erase(lines, consent.ReasonForgotten); err != nil {
			return err
		}
		if session != "" {
			if err := one.Withdraw(); err != nil {
				return err
			}
			continue
		}
		for _, span := range spans {
			waiting = append(waiting, upload.Wish{For: upload.Addressee(config), SessionID: state.SessionID, Name: state.Name, Request: v1alpha1.Request{
				ID: newRequestID(), Kind: v1alpha1.RequestForget, Workstation: config.Workstation, FromLine: &span[0], ToLine: &span[1],
			}})
		}
	}
	if session != "" {
		waiting = append(waiting, upload.Wish{
			For: upload.Addressee(config), SessionID: session, Name: v1alpha1.SessionName(session, config.Owner), Whole: true, Unsent: unsent, Stored: stored,
			Request: v1alpha1.Request{ID: newRequestID(), Kind: v1alpha1.RequestForget},
		})
	}
	err = upload.UpdateWishes(ctx, home, func(list []upload.Wish) []upload.Wish { return append(list, waiting...) })
	if err != nil {
		return err
	}
	switch {
	case session != "" && !known:
		return s.print("Session %s is not known on this computer.\n", safe(session))
	case session != "":
		return s.print("Session %s: nothing more of it leaves this computer.\n", safe(session))
	}
	return s.print("%s that had not left this computer erased; nothing of the last %s will be read again.\n", many(erased, "line"), span(last))
}

// unsay takes back the memory's messages to a session since then: they may come of
// what is to be forgotten.
func unsay(home, session string, since time.Time) error {
	kept, err := whisper.List(home)
	if err != nil {
		return err
	}
	for i := range kept {
		if k := &kept[i]; k.Session == session && k.Label == "" && !k.At.Before(since) {
			if err := whisper.Withdraw(home, session, k.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// untold says whether the cluster was never told of a session from here, and, if so,
// whether segments of it may lie in the store all the same.
func untold(state *spool.State) (unsent, stored bool) {
	if state.UID != "" || state.Expired || state.Applied != nil || !state.Withdrawn && state.Verified.Segments > 0 {
		return false, false
	}
	return true, state.Sent || slices.ContainsFunc(state.Segments, func(g spool.Segment) bool {
		return g.SlotState == spool.SlotTaken || g.SlotState == spool.SlotUploaded
	})
}

// inSlots says whether segments with one of the lines may lie in a slot.
func inSlots(state *spool.State, lines map[int64][]int) bool {
	return slices.ContainsFunc(state.Segments, func(g spool.Segment) bool {
		return len(lines[g.Seq]) > 0 && (g.SlotState == spool.SlotTaken || g.SlotState == spool.SlotUploaded)
	})
}

// oneErased is the first of the lines that are erased here, as a span.
func oneErased(receipts []spool.Receipt, lines map[int64][]int) [2]int64 {
	for _, r := range receipts {
		if places := lines[r.Seq]; len(places) > 0 {
			return [2]int64{r.First + int64(places[0]), r.First + int64(places[0])}
		}
	}
	return [2]int64{1, 1} // not so: each has a receipt
}

// forgotten is the silence of what is to be forgotten: the whole of a session up
// to now, or a span of time of every one.
func forgotten(session, projects string, since, now time.Time, sizes map[string]int64) consent.Silence {
	one := consent.Silence{
		Reason: consent.ReasonForgotten, Session: session, Since: since, Until: now, Projects: projects, Measured: true,
	}
	if session == "" {
		return one
	}
	one.Ranges = map[string]consent.Range{}
	for path, size := range sizes {
		if strings.Contains(path, session) && size > 0 {
			one.Ranges[path] = consent.Range{To: size}
		}
	}
	return one
}

// wroteSince says whether anything was written into a session's files since then. A
// file that is gone says nothing.
func wroteSince(state *spool.State, since time.Time) bool {
	paths := []string{state.Transcript}
	for _, cursor := range state.Cursors {
		paths = append(paths, cursor.Path)
	}
	paths = slices.AppendSeq(paths, maps.Values(state.AgentFiles))
	paths = slices.AppendSeq(paths, maps.Values(read.Agents(state.Transcript, state.SessionID)))
	return slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && !info.ModTime().Before(since)
	})
}

// accounted says whether there is a receipt for each segment up to the head, all
// of one chain: only then all lines are known that have left.
func accounted(receipts []spool.Receipt, state *spool.State, workstation string) bool {
	if slices.ContainsFunc(state.Earlier, func(p spool.Place) bool { return p.Generation > 0 || p.Offset > 0 }) {
		return false // an earlier registration has sent what is before
	}
	chain := segment.Start(state.Name, workstation)
	next := int64(1)
	for _, r := range receipts {
		if r.Seq > state.Head.Segments {
			break // of a segment that a crash undid
		}
		digest, err := segment.ParseSum(r.Digest)
		if chain = chain.NextDigest(digest); err != nil || r.Seq != next || r.Chain != chain.String() {
			return false
		}
		next++
	}
	return next == state.Head.Segments+1 && (next == 1 || chain.String() == state.Head.Chain)
}

// meant returns the lines of a session that are meant: those in segments that
// have not left, by segment and place, their number, and, as spans of the
// writer's lines, all others. A line whose time is not known is meant when its
// segment was made in that time.
func meant(receipts []spool.Receipt, state *spool.State, unsent int64, since time.Time) (lines map[int64][]int, spans [][2]int64, here int64) {
	lines = map[int64][]int{}
	for _, r := range receipts {
		if r.Seq > state.Head.Segments {
			continue // of a segment that a crash undid
		}
		times := r.Times()
		for i := range int(r.Lines) {
			at := r.At
			if i < len(times) && !times[i].IsZero() {
				at = times[i]
			}
			if at.Before(since) {
				continue
			}
			if r.Seq >= unsent {
				lines[r.Seq] = append(lines[r.Seq], i)
				here++
				continue
			}
			number := r.First + int64(i)
			if n := len(spans); n > 0 && spans[n-1][1] == number-1 {
				spans[n-1][1] = number
			} else {
				spans = append(spans, [2]int64{number, number})
			}
		}
	}
	for len(spans) > maxSpans { // join the two that are nearest to each other
		nearest := 1
		for i := 1; i < len(spans); i++ {
			if spans[i][0]-spans[i-1][1] < spans[nearest][0]-spans[nearest-1][1] {
				nearest = i
			}
		}
		spans[nearest-1][1] = spans[nearest][1]
		spans = slices.Delete(spans, nearest, nearest+1)
	}
	return lines, spans, here
}

func newRequestID() string { return "forget-" + uuid.NewString()[:8] }

// forgetThere asks the cluster, and waits for its answers.
func (s *System) forgetThere(ctx context.Context, home string, config note.Config, waiting []upload.Wish, wait time.Duration) error {
	failed := s.tellAnswers(ctx, home, waiting)
	waiting = slices.DeleteFunc(waiting, func(w upload.Wish) bool { return w.Result != "" })
	if len(waiting) == 0 {
		return failed
	}
	c, err := s.cluster(config)
	if err == nil {
		until := s.Clock.Now().Add(wait)
		err = s.settle(ctx, home, waiting, func(one upload.Wish) (string, error) {
			return s.ask1(ctx, c, home, config, one, until)
		})
	}
	if err == nil {
		return failed
	}
	again := "undersong forget --retry"
	if !config.Off && !config.ConsentedAt.IsZero() && hook.Wake(home, config, s.Clock.Now()) == nil {
		again = "the daemon asks again when it can; at once: " + again
	}
	return errors.Join(failed, fmt.Errorf("%w; what has left this computer is not forgotten yet: %s", err, again))
}

// tellAnswers says what became of wishes that the daemon has asked for.
func (s *System) tellAnswers(ctx context.Context, home string, wishes []upload.Wish) error {
	return s.settle(ctx, home, slices.DeleteFunc(slices.Clone(wishes), func(w upload.Wish) bool { return w.Result == "" }),
		func(w upload.Wish) (string, error) { return w.Result, nil })
}

// settle asks for each, and takes out of the file what was answered and nothing
// else: another command may have put something in meanwhile.
func (s *System) settle(ctx context.Context, home string, waiting []upload.Wish, ask func(upload.Wish) (string, error)) error {
	var failed error
	for _, one := range waiting {
		result, err := ask(one)
		if err == nil {
			err = upload.TellWish(ctx, home, one.Request.ID, result, s.Clock.Now())
		}
		if err == nil {
			err = s.print("Session %s: %s\n", safe(one.SessionID), safe(result))
		}
		if err != nil {
			err = fmt.Errorf("session %s: %w", safe(one.SessionID), err)
			if failed != nil {
				err = fmt.Errorf("%w; %w", failed, err)
			}
			failed = err
		}
	}
	return failed
}

// ask1 makes one request, unless it is made, and waits for its answer.
func (s *System) ask1(ctx context.Context, c *kube.Client, home string, config note.Config, one upload.Wish, until time.Time) (string, error) {
	for {
		within, cancel := asking(ctx)
		result, err := upload.Forget(within, c, home, config.Namespace, one)
		cancel()
		switch {
		case errors.Is(err, upload.ErrAbsent), errors.Is(err, upload.ErrTooManyRequests):
			return "", err
		case errors.Is(err, upload.ErrNoAnswer) && s.Clock.Now().Before(until):
		case errors.Is(err, upload.ErrNoAnswer):
			return "", err
		case err != nil:
			return "", explain(err)
		default:
			return result, nil
		}
		timer := s.Clock.NewTimer(answerEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return "", ctx.Err()
		case <-timer.C():
		}
	}
}
