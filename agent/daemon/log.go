package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

const (
	// LogFile is the daemon's log in the state directory, one JSON object a
	// line. One older file is kept beside it, with .1 added to its name.
	LogFile = "daemon.log"

	// maxLog bounds the log; one older file of that size is kept.
	maxLog = 4 << 20
)

// rotating is a file that is moved aside when it is full.
type rotating struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
}

// openLog opens the daemon's log. Its lines are JSON.
func openLog(home string) (*slog.Logger, io.Closer, error) {
	r := &rotating{path: filepath.Join(home, LogFile)}
	if err := r.open(); err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}
	return slog.New(slog.NewJSONHandler(r, nil)), r, nil
}

func (r *rotating) open() error {
	file, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	r.file, r.size = file, info.Size()
	return nil
}

// Write appends one line. A log that cannot be moved aside goes on growing: to
// lose it would help nobody.
func (r *rotating) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size > 0 && r.size+int64(len(line)) > maxLog {
		if err := r.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := r.file.Write(line)
	r.size += int64(n)
	return n, err
}

func (r *rotating) rotate() error {
	if err := r.file.Close(); err != nil {
		return err
	}
	_ = os.Rename(r.path, r.path+".1") // see Write
	return r.open()
}

// Close closes the file.
func (r *rotating) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Close()
}
