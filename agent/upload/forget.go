package upload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

const (
	// wishesFile has what is to be forgotten in the cluster.
	wishesFile = "forget.json"
	wishesLock = "forget.lock"
	maxWishes  = 1 << 20

	// sessionsDir is the spool's folder in the state directory.
	sessionsDir = "sessions"

	// wishesPatience is how long another process is waited for.
	wishesPatience = 5 * time.Second
)

// Wish is what a person wants to be forgotten in the cluster. It is kept until
// the person was told what became of it.
type Wish struct {
	SessionID string           `json:"sessionID"`
	Name      string           `json:"name"`
	Request   v1alpha1.Request `json:"request"`

	// For is the cluster, the namespace and the person that it is for. One of an
	// older undersong does not say.
	For string `json:"for,omitempty"`

	// Whole says that the Session is deleted when it is answered, Answered that
	// it was, and Unsent that the cluster was never told of the session from here.
	Whole    bool `json:"whole,omitempty"`
	Answered bool `json:"answered,omitempty"`
	Unsent   bool `json:"unsent,omitempty"`

	// Stored says that segments may lie in the store of which the cluster was never
	// told.
	Stored bool `json:"stored,omitempty"`

	// Absent says that the cluster has no Session of it, when it was last asked.
	Absent bool `json:"absent,omitempty"`

	// Result is what became of it, and At when. Told says that the person knows; of
	// a whole session it is kept, as the cluster cannot say it a second time.
	Result string    `json:"result,omitempty"`
	At     time.Time `json:"at,omitzero"`
	Told   bool      `json:"told,omitempty"`
}

// Addressee says whom wishes of a configuration are for.
func Addressee(c note.Config) string {
	return c.Server + " " + c.Namespace + " " + c.Owner
}

// Open says whether a wish waits for the cluster of this addressee.
func (w *Wish) Open(addressee string) bool { return w.Result == "" && w.For == addressee }

// ErrNoAnswer: the controller may be behind, or not run.
var ErrNoAnswer = errors.New("the cluster has the request and has not answered yet")

// ErrAbsent: archive and conversation outlive the Session.
var ErrAbsent = errors.New("the cluster has no Session of it now; its archive and the memory's conversation may still be there: ask a lead to make the Session again (undersong-controller rebuild)")

// Forget asks the cluster for a wish, unless it was asked, and looks for the
// answer once. Of a whole session it deletes the Session then. It returns what
// became of the wish; ErrNoAnswer and ErrAbsent say that it has to wait. Wherever
// it is cut off it may be called again, and by several processes at a time.
func Forget(ctx context.Context, c API, home, namespace string, w Wish) (string, error) {
	key := kube.Key{Namespace: namespace, Name: w.Name}
	live := &v1alpha1.Session{}
	err := c.Get(ctx, key, live)
	answer, done := AnswerTo(live, w.Request.ID)
	if err == nil && !done {
		if untold(home, live, w) {
			return "", ErrNoAnswer
		}
		if err = Request(ctx, c, key, w.Request); err == nil {
			return "", ErrNoAnswer
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return absent(home, w)
	case err != nil:
		return "", err
	}
	text := "forgotten in the cluster"
	switch answer.Result {
	case v1alpha1.AnswerPartial:
		text = answer.Message
	case v1alpha1.AnswerRefused:
		return "refused: " + answer.Message + ".", nil
	case v1alpha1.AnswerDone:
	}
	if !w.Whole {
		return text + ".", nil
	}
	// First, or a run that is cut off behind the next call would never know.
	if err := changeWish(ctx, home, w.Request.ID, func(w *Wish) { w.Answered = true }); err != nil {
		return "", err
	}
	if err := c.Delete(ctx, live); err != nil && !apierrors.IsNotFound(err) {
		return "", err
	}
	return text + ". The Session is deleted.", nil
}

// untold reports whether the cluster does not know lines of a wish which it may be
// told of at any moment: it would answer for those that it knows, and the others
// would come behind the answer.
func untold(home string, live *v1alpha1.Session, w Wish) bool {
	mine := writer(live, w.Request.Workstation)
	if w.Request.ToLine == nil || mine != nil && mine.Lines >= *w.Request.ToLine {
		return false
	}
	state, ok := spool.Read(filepath.Join(home, sessionsDir), w.SessionID)
	return ok && !state.Withdrawn && len(state.Segments) > 0 && (state.Applied == nil || state.Applied.Segments < state.Told)
}

// absent says what it means that the Session is not there.
func absent(home string, w Wish) (string, error) {
	list, err := Wishes(home)
	if err != nil {
		return "", err
	}
	// Another process may have deleted the Session just now.
	i := slices.IndexFunc(list, func(each Wish) bool { return each.Request.ID == w.Request.ID })
	if i < 0 {
		return "another undersong forget has said what became of it.", nil
	}
	w = list[i]
	switch {
	case w.Result != "":
		return w.Result, nil
	case w.Answered:
		return "forgotten in the cluster. The Session is deleted.", nil
	case w.Unsent && w.Stored:
		return "the cluster was never told of it, but what was uploaded before may lie in the bucket's inbox, where nobody reads it. " +
			"It is removed there by the rule for inbox/; to have it gone at once, ask whoever runs undersong in the cluster.", nil
	case w.Unsent:
		return "the cluster was never told of it.", nil
	}
	return "", ErrAbsent
}

// Wishes returns what is to be forgotten in the cluster, and what became of it.
func Wishes(home string) ([]Wish, error) {
	data, err := durable.ReadFile(filepath.Join(home, wishesFile), maxWishes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []Wish
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, localError{fmt.Errorf("read %s: it is damaged; remove it, and say again what to forget", wishesFile)}
	}
	return list, nil
}

// UpdateWishes changes what waits in one step.
func UpdateWishes(ctx context.Context, home string, change func([]Wish) []Wish) error {
	lock := flock.New(filepath.Join(home, wishesLock), flock.SetPermissions(0o600))
	within, cancel := context.WithTimeout(ctx, wishesPatience)
	defer cancel()
	if taken, err := lock.TryLockContext(within, wishesPatience/100); !taken {
		return localError{fmt.Errorf("keep what is to be forgotten: %w", errors.Join(err, errors.New("another process holds the lock")))}
	}
	defer func() { _ = lock.Unlock() }() // the system does it otherwise
	list, err := Wishes(home)
	if err != nil {
		return err
	}
	if list = change(list); len(list) == 0 {
		err = durable.Remove(filepath.Join(home, wishesFile))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		var data []byte
		if data, err = json.MarshalIndent(list, "", "  "); err == nil {
			err = durable.WriteFile(filepath.Join(home, wishesFile), data)
		}
	}
	if err != nil {
		return localError{fmt.Errorf("keep what is to be forgotten: %w", err)}
	}
	return nil
}

// TellWish notes that the person was told what became of a wish.
func TellWish(ctx context.Context, home, id, result string, now time.Time) error {
	return UpdateWishes(ctx, home, func(list []Wish) []Wish {
		for i := range list {
			if w := &list[i]; w.Request.ID == id && w.Whole && (w.Answered || w.Unsent) {
				w.Result, w.At, w.Told = result, now.UTC(), true
				return list
			}
		}
		return slices.DeleteFunc(list, func(w Wish) bool { return w.Request.ID == id })
	})
}

// DropWishes takes wishes out of what waits.
func DropWishes(ctx context.Context, home string, ids ...string) error {
	return UpdateWishes(ctx, home, func(list []Wish) []Wish {
		return slices.DeleteFunc(list, func(w Wish) bool { return slices.Contains(ids, w.Request.ID) })
	})
}

// changeWish changes a wish that is still there.
func changeWish(ctx context.Context, home, id string, change func(*Wish)) error {
	return UpdateWishes(ctx, home, func(list []Wish) []Wish {
		for i := range list {
			if list[i].Request.ID == id {
				change(&list[i])
			}
		}
		return list
	})
}

// localError is an error of the file, not of the cluster.
type localError struct{ err error }

// Error is the error's own text.
func (e localError) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e localError) Unwrap() error { return e.err }

const (
	// PartForget is what the Forgetter tells trouble of.
	PartForget = "forget"

	// keepResult is how long it is kept what became of a wish that nobody asks
	// about.
	keepResult = 30 * 24 * time.Hour

	// absentEvery is how often a Session is looked for that was not there.
	absentEvery = time.Hour

	// forgetStep bounds one question.
	forgetStep = 30 * time.Second
)

// Forgetter asks the cluster for what people want to be forgotten, while a daemon
// is connected: a command that could not reach it has left the wish. It only does
// what the command does, and a command may work at the same wishes meanwhile.
type Forgetter struct {
	Client    API
	Home      string
	Namespace string
	Addressee string // see Addressee

	// Every is how often it looks whether there are new wishes.
	Every   time.Duration
	Clock   clock.WithTicker
	Backoff Backoff
	Trouble Trouble
	Log     *slog.Logger
}

// Run works until ctx is done.
func (f *Forgetter) Run(ctx context.Context) {
	ticker := f.Clock.NewTicker(f.Every)
	defer ticker.Stop()
	var stamp os.FileInfo
	var next time.Time
	for tries := 0; ctx.Err() == nil; {
		now, found := f.Clock.Now(), wishesStamp(f.Home)
		changed := !sameStamp(stamp, found)
		if changed || !now.Before(next) {
			if changed {
				tries = 0
			}
			if stamp = found; f.look(ctx, now) {
				tries++
				next = now.Add(f.Backoff.After(tries))
			} else {
				tries, next = 0, now.Add(absentEvery)
			}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C():
		}
	}
}

func wishesStamp(home string) os.FileInfo {
	info, err := os.Stat(filepath.Join(home, wishesFile))
	if err != nil {
		return nil
	}
	return info
}

func sameStamp(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// look asks for each wish that waits, once, and keeps what became of it. It says
// whether to look again soon.
func (f *Forgetter) look(ctx context.Context, now time.Time) (again bool) {
	list, err := Wishes(f.Home)
	for i := 0; i < len(list) && err == nil; i++ {
		w := list[i]
		switch {
		case w.Open(f.Addressee):
			var waits bool
			waits, err = f.ask(ctx, w, now)
			again = again || waits
		case w.Result != "" && now.Sub(w.At) > keepResult:
			err = DropWishes(ctx, f.Home, w.Request.ID)
		}
	}
	_, local := errors.AsType[localError](err)
	switch {
	case ctx.Err() != nil:
		return true
	case err == nil:
		f.Trouble.Set(PartForget, "")
		return again
	case local:
		f.Trouble.Set(PartForget, err.Error())
	default:
		Report(f.Trouble, PartForget, err)
	}
	f.Log.Error("What is to be forgotten cannot be asked for", "error", err)
	return true
}

// ask asks for one wish, and says whether it waits for the cluster's answer.
func (f *Forgetter) ask(ctx context.Context, w Wish, now time.Time) (waits bool, err error) {
	within, cancel := context.WithTimeout(ctx, forgetStep)
	result, err := Forget(within, f.Client, f.Home, f.Namespace, w)
	cancel()
	is := w
	switch {
	case errors.Is(err, ErrAbsent):
		is.Absent = true
	case errors.Is(err, ErrNoAnswer), errors.Is(err, ErrTooManyRequests):
		waits, is.Absent = true, false // a lead may have made it again
	case err != nil:
		return true, err
	default:
		is.Result, is.At, is.Absent = result, now.UTC(), false
		f.Log.Info("What was to be forgotten was asked for and answered", "session", w.Name)
	}
	if is.Absent == w.Absent && is.Result == "" {
		return waits, nil
	}
	return waits, changeWish(ctx, f.Home, w.Request.ID, func(w *Wish) { w.Result, w.At, w.Absent = is.Result, is.At, is.Absent })
}
