package status

import (
	"errors"
	"strings"
	"time"

	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/agent/whisper"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/crash"
	"github.com/undersong-dev/undersong/internal/seal"
)

// whispers puts new messages of the memory where the hook finds them.
func (w *Watcher) whispers(session *spool.Session, live *v1alpha1.Session) error {
	id := session.State().SessionID
	wrong := map[string]bool{}
	for _, q := range live.Spec.Requests {
		// Said here or on another workstation of the same person.
		if q.Kind == v1alpha1.RequestWrongWhisper && !wrong[q.Whisper] {
			wrong[q.Whisper] = true
			if err := whisper.Withdraw(w.Home, id, q.Whisper); err != nil {
				return err
			}
		}
	}
	for _, taken := range live.Status.Withdrawn {
		if !wrong[taken] {
			wrong[taken] = true
			if err := whisper.Withdraw(w.Home, id, taken); err != nil {
				return err
			}
		}
	}
	if recall, _ := w.View.Recall(); !recall {
		return nil // they are looked at again when that changes
	}
	handled := w.handled[id]
	if handled == nil {
		handled = map[string]bool{}
		w.handled[id] = handled
	}
	var errs []error
	seen := make(map[string]bool, len(live.Status.Whispers))
	for i := range live.Status.Whispers {
		sealed := &live.Status.Whispers[i]
		if wrong[sealed.ID] {
			continue
		}
		if !handled[sealed.ID] {
			if err := w.whisper(id, sealed); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		seen[sealed.ID] = true
	}
	w.handled[id] = seen // what status no longer lists need not be remembered
	return errors.Join(errs...)
}

// whisper stores one message. One that cannot be opened here, or has expired,
// is passed over.
func (w *Watcher) whisper(id string, sealed *v1alpha1.Whisper) error {
	text, err := w.Identity.OpenWhisper(sealed.Sealed)
	switch {
	case err != nil:
		// Sealed before this workstation was registered, or not for it.
		w.Log.Info("A whisper cannot be opened here", "session", id, "whisper", sealed.ID)
		return nil //nolint:nilerr // for somebody else
	case text.ID != sealed.ID, !strings.EqualFold(text.Session, id):
		w.Log.Error("A whisper is for another session", "session", id, "whisper", sealed.ID)
		return nil
	}
	// The times are the cluster's; hooks compare them with this computer's.
	skew := w.Skew()
	text.At, text.Expires = local(text.At, skew), local(text.Expires, skew)
	if expired(text, w.Clock.Now()) {
		return nil
	}
	err = whisper.Put(w.Home, whisper.Whisper{
		ID: text.ID, Session: id, Project: text.Project, Memory: text.Memory, Text: text.Text, Source: whisper.Source(text.Source),
		Notice: "undersong: the team's memory has a note for this session",
		At:     text.At, Expires: text.Expires,
	})
	if errors.Is(err, whisper.ErrInvalid) {
		w.Log.Error("A whisper cannot be kept", "session", id, "whisper", sealed.ID, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	crash.Point(crash.AgentWhisperStored)
	w.Log.Info("Stored a whisper", "session", id, "whisper", text.ID, "bytes", len(text.Text))
	return nil
}

// local returns what this computer's clock shows when the cluster's shows at.
// Differences of seconds are let alone, or the same whisper would have another
// time at every look.
func local(at time.Time, skew time.Duration) time.Time {
	if at.IsZero() || skew.Abs() < time.Minute {
		return at
	}
	return at.Add(-skew)
}

func expired(text seal.WhisperText, now time.Time) bool {
	return !text.Expires.IsZero() && !now.Before(text.Expires)
}

// explainGrant returns the stable text of an error of Offer.
func explainGrant(err error) string {
	if errors.Is(err, upload.ErrOtherHost) {
		return upload.ErrOtherHost.Error()
	}
	return upload.ErrGrant.Error() + ": run undersong init to register this workstation anew"
}

func noMemory(namespace, name string) string {
	return "there is no TeamMemory " + name + " in namespace " + namespace + ": nothing is read until there is; ask the team lead"
}
