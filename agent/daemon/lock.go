package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

const (
	lockFile = "daemon.lock"
	infoFile = "daemon.json"
	maxInfo  = 64 << 10

	lockPatience = 200 * time.Millisecond
	// infoTries is how often daemon.json is looked for, a tenth of lockPatience
	// apart.
	infoTries = 25
)

// ErrRunning: another daemon has this state directory.
var ErrRunning = errors.New("a daemon is already running")

// Info is what daemon.json says of the running daemon.
type Info struct {
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	Version   string    `json:"version"`
}

// lock takes the state directory for this process, and says so in daemon.json.
// The system gives the lock back when the process ends, however it ends.
func lock(ctx context.Context, home string, info Info) (*flock.Flock, error) {
	l := flock.New(filepath.Join(home, lockFile), flock.SetPermissions(0o600))
	// A hook that looks whether a daemon runs holds the lock for an instant.
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	taken, err := l.TryLockContext(ctx, lockPatience/10)
	if !taken && (err == nil || errors.Is(err, context.DeadlineExceeded)) {
		return nil, ErrRunning
	}
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	data, err := json.MarshalIndent(info, "", "  ")
	if err == nil {
		err = durable.WriteFile(filepath.Join(home, infoFile), data)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock state directory: %w", err), l.Unlock())
	}
	return l, nil
}

// Hold keeps daemons out of a state directory until release is called. It is
// for commands that change what a daemon relies on.
func Hold(ctx context.Context, home string) (release func(), err error) {
	l := flock.New(filepath.Join(home, lockFile), flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(ctx, 10*lockPatience)
	defer cancel()
	taken, err := l.TryLockContext(ctx, lockPatience/10)
	if !taken && (err == nil || errors.Is(err, context.DeadlineExceeded)) {
		return nil, ErrRunning
	}
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	return func() { _ = l.Unlock() }, nil // the system does it otherwise
}

// Running returns what is known of the daemon of a state directory, and
// whether it runs.
func Running(home string) (Info, bool, error) {
	if _, err := os.Stat(filepath.Join(home, lockFile)); err != nil {
		return Info{}, false, nil //nolint:nilerr // no daemon ever ran here
	}
	l := flock.New(filepath.Join(home, lockFile), flock.SetPermissions(0o600))
	for range infoTries {
		free, err := l.TryRLock() // shared: it keeps no hook from asking
		if err != nil {
			return Info{}, false, fmt.Errorf("look for a daemon: %w", err)
		}
		if free {
			return Info{}, false, l.Unlock()
		}
		var info Info
		data, err := durable.ReadFile(filepath.Join(home, infoFile), maxInfo)
		if errors.Is(err, fs.ErrNotExist) {
			time.Sleep(lockPatience / 10) //nolint:forbidigo // it begins, and says so in an instant
			continue
		}
		if err == nil {
			err = json.Unmarshal(data, &info)
		}
		if err != nil {
			return Info{}, true, fmt.Errorf("read %s: %w", infoFile, err)
		}
		return info, true, nil
	}
	return Info{}, true, errNoInfo
}

// errNoInfo is of a lock that something holds which does not say what it is: a
// command that changes the state directory.
var errNoInfo = errors.New("another undersong command works on the state directory; run this again when it has ended")
