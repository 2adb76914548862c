package upload

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

// registryFile lies in the state directory.
const registryFile = "workstation"

// maxRegistry bounds that file.
const maxRegistry = 64 << 10

// ErrNotRegistered: this state directory has no Workstation yet.
var ErrNotRegistered = errors.New("this workstation is not registered: run undersong init")

var workstationName = regexp.MustCompile(`^ws-[0-9a-f]{16}$`)

// Registry is what the state directory knows of its own Workstation.
type Registry struct {
	path string

	mu     sync.Mutex
	record record
}

type record struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	UID     string `json:"uid,omitempty"`

	// UsedSlot is the highest slot ever used. Slots only grow.
	UsedSlot int64 `json:"usedSlot"`
}

// OpenRegistry reads the registry of a state directory; ErrNotRegistered if
// there is none.
func OpenRegistry(home string) (*Registry, error) {
	r := &Registry{path: filepath.Join(home, registryFile)}
	data, err := durable.ReadFile(r.path, maxRegistry)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotRegistered
	}
	if err != nil {
		return nil, fmt.Errorf("read workstation: %w", err)
	}
	if err := json.Unmarshal(data, &r.record); err != nil || r.record.Version != 1 || !workstationName.MatchString(r.record.Name) {
		return nil, errors.New("read workstation: the file is damaged: run undersong init again")
	}
	return r, nil
}

// NewRegistry makes a registry with a new random name, in place of any other.
func NewRegistry(home string) (*Registry, error) {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails; it would end the process
	r := &Registry{path: filepath.Join(home, registryFile)}
	return r, r.update(func(rec *record) {
		*rec = record{Version: 1, Name: "ws-" + hex.EncodeToString(id)}
	})
}

// Name returns the name of the Workstation, ws- and 16 hex digits.
func (r *Registry) Name() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Name
}

// UID returns the uid of the Workstation, "" before it was registered.
func (r *Registry) UID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.UID
}

// Registered records the uid of the Workstation.
func (r *Registry) Registered(uid string) error {
	return r.update(func(rec *record) { rec.UID = uid })
}

func (r *Registry) used() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.UsedSlot
}

// use records that a slot is used.
func (r *Registry) use(slot int64) error {
	return r.update(func(rec *record) { rec.UsedSlot = max(rec.UsedSlot, slot) })
}

func (r *Registry) update(change func(*record)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.record
	change(&next)
	if next == r.record {
		return nil
	}
	data, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return fmt.Errorf("record workstation: %w", err)
	}
	if err := durable.WriteFile(r.path, data); err != nil {
		return fmt.Errorf("record workstation: %w", err)
	}
	r.record = next
	return nil
}
