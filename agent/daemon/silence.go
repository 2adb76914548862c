package daemon

import (
	"cmp"
	"context"
	"math"
	"os"
	"slices"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/agent/spool"
)

// silences is what the loop knows of the times in which nothing may be heard.
type silences struct {
	known *consent.Silences
	stamp os.FileInfo
}

// measure looks at transcripts for the loop.
func (l *loop) measure(projects string) (map[string]int64, error) { return Measure(l.home, projects) }

// quiet brings what the loop knows of silences up to date: what the user said
// since, what ended by the clock, and what hooks marked as switched off.
func (l *loop) quiet(ctx context.Context, id string) error {
	offs, err := note.Offs(l.home, id)
	if err != nil {
		return err
	}
	ended := slices.DeleteFunc(slices.Clone(offs), func(off note.Off) bool { return off.Until.IsZero() })
	stamp := consent.SilenceStamp(l.home)
	if l.silences.known == nil || !consent.SameStamp(stamp, l.silences.stamp) {
		if l.silences.known, err = consent.LoadSilences(l.home); err != nil {
			return err
		}
		l.silences.stamp = stamp
	}
	now := l.clock.Now()
	if len(ended) == 0 && !l.silences.known.Due(now) {
		return nil
	}
	err = consent.UpdateSilences(ctx, l.home, now, l.measure, func(s *consent.Silences) error {
		for _, off := range ended {
			s.Add(consent.Silence{
				Reason: consent.ReasonOff, Session: id, Since: off.Since, Until: off.Until, Measured: true,
				Ranges: map[string]consent.Range{off.Transcript: {From: min(off.From, off.To), To: off.To}},
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, off := range ended {
		if err := note.DropOff(l.home, id, off.Name); err != nil {
			return err
		}
	}
	l.silences.known = nil
	return l.quiet(ctx, id)
}

// silent returns the silences that concern a stream.
func (l *loop) silent(ctx context.Context, src read.Source) ([]read.Silence, error) {
	if err := l.quiet(ctx, src.Session); err != nil {
		return nil, err
	}
	var list []read.Silence
	now := l.clock.Now()
	for i := range l.silences.known.List {
		one := &l.silences.known.List[i]
		if src.History == nil && one.Old(now) {
			continue
		}
		w := read.Silence{Reason: one.Reason, Session: one.Session, Root: one.Root, Since: one.Since, Until: one.Until, ByClock: one.ByClock}
		// A hook looks at one file only, and what is to be forgotten is a time, as is
		// that of a repository's wish.
		w.Blind = one.Reason == consent.ReasonOff && src.Stream != read.Main || one.Reason == consent.ReasonForgotten && one.Session == "" || wished(one.Reason)
		if one.Session == "" || one.Session == src.Session {
			if bytes, open, ok := one.Bytes(src.Path); ok {
				w.From, w.To = bytes.From, bytes.To
				if open {
					w.To = math.MaxInt64
				}
				if open && src.History != nil && !one.Measures(src.Path) {
					w.From, w.To = 0, 0 // it lies elsewhere, as a copy does, and is judged by its times
				}
			}
		}
		list = append(list, w)
	}
	offs, err := note.Offs(l.home, src.Session)
	if err != nil {
		return nil, err
	}
	for _, off := range offs {
		w := read.Silence{Reason: consent.ReasonOff, Session: src.Session, Since: off.Since, Until: off.Until, Blind: src.Stream != read.Main}
		if src.Stream == read.Main {
			w.From, w.To = off.From, math.MaxInt64
			if !off.Until.IsZero() {
				w.To = off.To
			}
		}
		list = append(list, w)
	}
	if l.spool == nil { // of a survey
		return list, nil
	}
	if session, known := l.spool.Session(src.Session); known {
		if open := session.State().OptOut; open != nil {
			list = append(list, read.Silence{Reason: open.Reason, Session: src.Session, Root: open.Root, Since: open.Since, Blind: true})
		}
	}
	return list, nil
}

// wished says whether a silence is of a repository's wish.
func wished(reason string) bool {
	return reason == consent.ReasonOptOut || reason == consent.ReasonOptOutFile
}

// inherit makes a fork of a private session private, too, so that a fork of the
// fork is.
func (l *loop) inherit(ctx context.Context, id, origin string) error {
	now := l.clock.Now()
	if origin == "" || origin == id || l.silences.known.Current(consent.ReasonPrivate, origin, now) == nil ||
		l.silences.known.Current(consent.ReasonPrivate, id, now) != nil {
		return nil
	}
	return consent.UpdateSilences(ctx, l.home, now, l.measure, func(s *consent.Silences) error {
		if one := s.Current(consent.ReasonPrivate, origin, now); one != nil {
			s.Begin(consent.ReasonPrivate, id, one.Projects, one.Since, one.Until, nil)
		}
		return nil
	})
}

// origin is the session that a session is a fork of, "" where none is known.
func origin(state *spool.State) string {
	return cmp.Or(state.Cursors[read.Main].ForkedFrom, state.ForkedFrom)
}

// hushed says whether anything of a session was withheld.
func hushed(state *spool.State) bool {
	for _, cursor := range state.Cursors {
		if cursor.NoSummaries {
			return true
		}
	}
	return false
}
