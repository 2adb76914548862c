package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/internal/text"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/seal"
)

const (
	// maxWhispers and maxWhisperBytes bound status.whispers.
	maxWhispers     = 4
	maxWhisperBytes = 2000
	// whisperLife is how long a whisper is worth showing.
	whisperLife = 2 * time.Hour
	// whisperWindow is the time in which a session gets no more than
	// maxWhispers: an agent that talks without end is noise, and an answer that
	// is left out is in the memory all the same.
	whisperWindow = 10 * time.Minute
	// maxRecipients is how many of the owner's workstations a whisper is
	// sealed to, newest first.
	maxRecipients = 8
)

// whisper seals the answer to the owner's workstations, unless it is silence
// or one too many.
func (r *Reconciler) whisper(ctx context.Context, s *scope, d *v1alpha1.Delivery, turn letta.Turn) error {
	st := &s.ses.Status
	now := r.Clock.Now()
	r.expire(st)
	st.Whispers = slices.DeleteFunc(st.Whispers, func(w v1alpha1.Whisper) bool { return w.ID == d.ID })
	said, ok := spoken(turn)
	if !ok || d.Answer == v1alpha1.AnswerDrop {
		whispers.WithLabelValues(whisperSilent).Inc()
		return nil
	}
	clean, _ := s.redactor.Text(said)
	words := text.Plain(clean, maxWhisperBytes)
	if words == "" {
		whispers.WithLabelValues(whisperSilent).Inc()
		return nil
	}
	if n := len(st.Whispers); n >= maxWhispers && now.Sub(st.Whispers[n-maxWhispers].At.Time) < whisperWindow {
		whispers.WithLabelValues(whisperLimited).Inc()
		return nil
	}
	keys, err := r.recipients(ctx, s)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		whispers.WithLabelValues(whisperNobody).Inc()
		return nil
	}
	at := now.Truncate(time.Second)
	sealed, err := seal.SealWhisper(seal.WhisperText{
		ID: d.ID, Session: s.ses.Spec.SessionID, Project: s.ses.Spec.Project.Remote, Memory: s.mem.Name, Text: words, At: at, Expires: at.Add(whisperLife),
		Source: origin(s.ses, d),
	}, keys...)
	if err != nil {
		return fmt.Errorf("seal a whisper: %w", err)
	}
	w := v1alpha1.Whisper{ID: d.ID, At: metav1.NewTime(at), Bytes: int32(len(words)), Sealed: sealed} //nolint:gosec // at most maxWhisperBytes
	if s.mem.Spec.Whispers == v1alpha1.WhispersTeam {
		w.Text = words
	}
	st.Whispers = append(st.Whispers, w)
	if n := len(st.Whispers); n > maxWhispers {
		st.Whispers = st.Whispers[n-maxWhispers:]
	}
	s.after = append(s.after, func(context.Context) { whispers.WithLabelValues(whisperSealed).Inc() })
	return nil
}

// origin says what an answer came from: the owner asks why.
func origin(ses *v1alpha1.Session, d *v1alpha1.Delivery) seal.WhisperSource {
	from := seal.WhisperSource{
		Session: ses.Name, Workstation: d.Workstation, FromSegment: d.From.Segments + 1, ToSegment: d.To.Segments,
		Agent: ses.Status.SyncState.AgentID, Conversation: ses.Status.SyncState.ConversationID, Revision: ses.Status.SyncState.MemoryRevision,
	}
	if d.To.Lines > 0 {
		from.ToSegment++
	}
	return from
}

// expire drops the whispers that are no longer worth showing.
func (r *Reconciler) expire(st *v1alpha1.SessionStatus) {
	st.Whispers = slices.DeleteFunc(st.Whispers, func(w v1alpha1.Whisper) bool { return r.Clock.Since(w.At.Time) > whisperLife })
}

// recipients are the public keys of the owner's newest workstations.
func (r *Reconciler) recipients(ctx context.Context, s *scope) ([]string, error) {
	var list v1alpha1.WorkstationList
	if err := r.Client.List(ctx, &list, client.InNamespace(s.ses.Namespace), client.MatchingFields{ownerIndex: s.ses.Spec.Owner}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the owner's workstations: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Workstation) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	var keys []string
	for _, w := range list.Items {
		if len(keys) == maxRecipients || slices.Contains(keys, w.Spec.PublicKey) {
			continue
		}
		// A key that nothing can be sealed to must not keep the whisper from
		// the others.
		if _, err := seal.Seal(nil, w.Spec.PublicKey); err == nil {
			keys = append(keys, w.Spec.PublicKey)
		}
	}
	return keys, nil
}

// spoken is what the agent says to the person, false where that is nothing. A
// turn can have several messages, told before and after a tool was called; the
// last one is the answer, so that a last one of silence is silence.
func spoken(t letta.Turn) (string, bool) {
	for _, m := range slices.Backward(t.Reply) {
		if strings.TrimSpace(m.Text) == "" {
			continue
		}
		if silent(m.Text) {
			return "", false
		}
		return t.Text(), true
	}
	return "", false
}

// silent reports whether a text is [connect.Silence] as models write it: with
// other marks around it or none, in any case, and with an explanation behind
// it, which nobody asked for. A text without a letter or digit is silent too.
func silent(s string) bool {
	mark := func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) }
	words := strings.TrimFunc(s, mark)
	word := strings.Trim(connect.Silence, "()")
	if words == "" || strings.EqualFold(words, word) {
		return true
	}
	// Only in its parentheses: "Silence the alarm first" is an answer.
	head := strings.TrimLeftFunc(s, func(c rune) bool { return c != '(' && mark(c) })
	return len(head) >= len(connect.Silence) && strings.EqualFold(head[:len(connect.Silence)], connect.Silence)
}
