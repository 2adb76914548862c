package note

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/internal/object"
)

// Version is the version of Config and Note. A file with a higher one was
// written by a newer undersong and is refused.
const Version = 1

// ConfigFile is the name of the user's configuration in the state directory.
const ConfigFile = "config.json"

// maxConfig bounds the configuration, in bytes.
const maxConfig = 256 << 10

// Errors of LoadConfig.
var (
	// ErrNotConfigured says that init has not run here: there is no
	// configuration, and without one nothing is heard.
	ErrNotConfigured = errors.New("not configured, run undersong init")
	// ErrConfig says that there is a configuration which cannot be used.
	ErrConfig = errors.New("configuration cannot be used")
)

// Config is what init pinned. Only init and the user's own commands write it;
// nothing in a repository and nothing in a hook's environment changes it.
type Config struct {
	// Version is 1.
	Version int `json:"version"`

	// Server is the URL of the API server that init spoke to. A kubeconfig
	// that later names another one is refused.
	Server string `json:"server"`

	// Context is the kubeconfig context. Empty means its current context.
	Context string `json:"context,omitempty"`

	// Kubeconfig is the absolute path of the kubeconfig.
	Kubeconfig string `json:"kubeconfig"`

	// Namespace is the team.
	Namespace string `json:"namespace"`

	// Memory is the name of the TeamMemory.
	Memory string `json:"memory"`

	// StoreHost is the only place to which segments are uploaded: scheme, host
	// and, if it has one, port.
	StoreHost string `json:"storeHost"`

	// Owner is the user's name as the API server knows it.
	Owner string `json:"owner"`

	// Workstation is the name of the Workstation object of this state
	// directory. Empty until one is registered.
	Workstation string `json:"workstation,omitempty"`

	// Daemon is the absolute path of the undersong binary that the hook starts.
	Daemon string `json:"daemon"`

	// Env is the whole environment of the daemon, as recorded at init: what
	// credential plugins need. It holds no token.
	Env map[string]string `json:"env,omitempty"`

	// ConsentedAt is when the user agreed to be heard. Zero means never, and
	// then nothing is captured. Lines written earlier are not sent.
	ConsentedAt time.Time `json:"consentedAt,omitzero"`

	// Exclude are globs over remotes, the user's own, added to the team's.
	Exclude []string `json:"exclude,omitempty"`

	// Recall narrows what of the team's memory is shown here. Empty leaves it
	// to the team.
	Recall Recall `json:"recall,omitempty"`

	// Off silences hook and daemon.
	Off bool `json:"off,omitempty"`

	// IdleExitSeconds is after how many seconds without work the daemon
	// leaves. 0 means the daemon's default; negative means never.
	IdleExitSeconds int32 `json:"idleExitSeconds,omitempty"`
}

// formerFile is what the configuration was until uninstall.
const formerFile = "config.uninstalled.json"

// LoadConfig returns the configuration in a state directory. It returns
// ErrNotConfigured when there is none, and ErrConfig when it is broken, too
// new, or others than the user could have written it: it names a binary that
// the hook starts.
func LoadConfig(home string) (Config, error) { return load(home, ConfigFile) }

// LoadFormer returns the configuration that RetireConfig put away, with the errors
// of LoadConfig.
func LoadFormer(home string) (Config, error) { return load(home, formerFile) }

func load(home, file string) (Config, error) {
	name := filepath.Join(home, file)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, ErrNotConfigured
	}
	if err != nil {
		return Config{}, fmt.Errorf("read %s: %w: %w", file, ErrConfig, err)
	}
	if err := private(info); err != nil {
		return Config{}, fmt.Errorf("read %s: %w: %w", file, ErrConfig, err)
	}
	data, err := durable.ReadFile(name, maxConfig)
	if err != nil {
		return Config{}, fmt.Errorf("read %s: %w: %w", file, ErrConfig, err)
	}
	c, madeFor, err := parseConfig(data)
	if err != nil {
		return Config{}, fmt.Errorf("parse %s: %w: %w", file, ErrConfig, err)
	}
	if madeFor == "" || !sameFolder(madeFor, home) {
		return Config{}, fmt.Errorf("%s was made for another folder: %w", file, ErrConfig)
	}
	if c.Version < 1 || c.Version > Version {
		return Config{}, fmt.Errorf("%s has version %d, this undersong knows %d: %w", file, c.Version, Version, ErrConfig)
	}
	return c, nil
}

// parseConfig reads what SaveConfig writes: the configuration, and the folder
// that it was made for.
func parseConfig(data []byte) (c Config, home string, err error) {
	o, err := object.Parse(data)
	if err != nil {
		return Config{}, "", err
	}
	c = Config{
		Version:     int(o.Int("version")),
		Server:      o.String("server"),
		Context:     o.String("context"),
		Kubeconfig:  o.String("kubeconfig"),
		Namespace:   o.String("namespace"),
		Memory:      o.String("memory"),
		StoreHost:   o.String("storeHost"),
		Owner:       o.String("owner"),
		Workstation: o.String("workstation"),
		Daemon:      o.String("daemon"),
		Env:         o.StringMap("env"),
		ConsentedAt: o.Time("consentedAt"),
		Exclude:     o.Strings("exclude"),
		Recall:      Recall(o.String("recall")),
		Off:         o.Bool("off"),
		// Longer than a life is for ever, too.
		IdleExitSeconds: int32(max(min(o.Int("idleExitSeconds"), math.MaxInt32), math.MinInt32)),
	}
	return c, o.String("home"), o.Err()
}

// stored is a configuration as it lies on the disk, with the folder that it was
// made for: one that was copied, or came with a repository, is refused.
type stored struct {
	Config
	Home string `json:"home,omitempty"`
}

func sameFolder(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// private returns an error unless the file is the user's alone. A repository
// can carry a file, and the environment of a hook can be set by a repository's
// settings; but git does not keep the mode that this asks for.
func private(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	if runtime.GOOS == "windows" {
		return nil // access lists, inherited from the user's own folder
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("mode is %04o, must be 0600", mode)
	}
	if !durable.Ours(info) {
		return errors.New("file belongs to another user")
	}
	return nil
}

// SaveConfig writes the configuration durably, and makes the state directory
// if there is none. It sets Version.
func SaveConfig(home string, c Config) error {
	c.Version = Version
	data, err := json.MarshalIndent(stored{Config: c, Home: filepath.Clean(home)}, "", "  ")
	if err != nil {
		return fmt.Errorf("format %s: %w", ConfigFile, err)
	}
	if err := durable.MkdirAll(home); err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(home, ConfigFile), append(data, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", ConfigFile, err)
	}
	return nil
}

// RetireConfig removes the configuration as RemoveConfig does, and keeps it for
// LoadFormer.
func RetireConfig(home string) error {
	err := durable.Rename(filepath.Join(home, ConfigFile), filepath.Join(home, formerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ForgetFormer removes what RetireConfig kept.
func ForgetFormer(home string) error {
	err := os.Remove(filepath.Join(home, formerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RemoveConfig removes the configuration: hooks are silent from then on, and
// the daemon reads nothing. One that is not there is removed already.
func RemoveConfig(home string) error {
	err := os.Remove(filepath.Join(home, ConfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
