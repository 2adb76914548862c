package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/agent/hook"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
)

const (
	// hookSeconds bounds one call of the hook. It takes milliseconds; the bound
	// is for a machine that stands still.
	hookSeconds = 10

	// maxSettings bounds the settings file.
	maxSettings = 16 << 20

	hookBinary = "undersong-hook"
)

func (s *System) hooksCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hooks",
		Short: "Print the settings that let Claude Code call undersong",
		Long: `Print the part of Claude Code's settings.json that lets it call undersong-hook,
the binary beside this one. undersong init --install-hooks writes it for you.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			home, err := s.home()
			if err != nil {
				return err
			}
			command, err := s.hookCommand(home)
			if err != nil {
				return err
			}
			text, err := mergeHooks(nil, command)
			if err != nil {
				return err
			}
			return s.print("%s", text)
		},
	}
}

// hookCommand returns the command line of the hook binary beside this one, for a
// state directory. Without one, for everybody, each hook finds its user's own.
func (s *System) hookCommand(home string) (string, error) {
	self, err := s.Executable()
	if err != nil {
		return "", fmt.Errorf("find this binary: %w", err)
	}
	name := hookBinary
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	path := filepath.Join(filepath.Dir(self), name)
	info, err := os.Stat(path)
	if err == nil && runtime.GOOS != "windows" && info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s cannot be started: chmod 755 it", path)
	}
	if err != nil {
		return "", fmt.Errorf("there is no %s beside %s: install both binaries into one folder", name, filepath.Base(self))
	}
	command := quote(path)
	if home != "" {
		command += " " + note.HomeFlag + " " + quote(home)
	}
	return command, nil
}

// quote makes one word of a shell's command line. Claude Code starts hooks by
// a shell.
func quote(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@", r)
	}
	if strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	if runtime.GOOS == "windows" {
		return `"` + path + `"` // no path has this character
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// member is one member of a JSON object, in its place, with its text.
type member struct {
	key   string
	value json.RawMessage
}

// members takes an object apart and keeps the order.
func members(data []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	open, err := d.Token()
	if err != nil || open != json.Delim('{') {
		return nil, errors.New("not a JSON object (comments are none of JSON)")
	}
	var list []member
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, errors.New("not a JSON object")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, errors.New("not a JSON object")
		}
		name, _ := key.(string) // keys are strings
		list = append(list, member{name, value})
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("not a JSON object")
	}
	if d.More() {
		return nil, errors.New("more than one JSON value")
	}
	return list, nil
}

// join is the inverse of members, one member a line.
func join(list []member, indent string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("{")
	for i, m := range list {
		if i > 0 {
			b.WriteString(",")
		}
		key, err := json.Marshal(m.key)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n%s  %s: %s", indent, key, m.value)
	}
	b.WriteString("\n" + indent + "}")
	return b.Bytes(), nil
}

// mergeHooks returns settings in which every event of ours calls command, once.
// Everything else stays as it was, in its order and with its own text. Settings
// that are right already come back unchanged.
func mergeHooks(settings []byte, command string) ([]byte, error) {
	if len(bytes.TrimSpace(settings)) == 0 {
		settings = []byte("{}")
	}
	top, err := members(settings)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(top, func(m member) bool { return m.key == "hooks" })
	if at < 0 {
		at = len(top)
		top = append(top, member{key: "hooks", value: json.RawMessage("{}")})
	}
	events, err := members(top[at].value)
	if err != nil {
		return nil, fmt.Errorf("hooks: %w", err)
	}
	changed := false
	for _, event := range hook.Events() {
		i := slices.IndexFunc(events, func(m member) bool { return m.key == event })
		if i < 0 {
			i = len(events)
			events = append(events, member{key: event, value: json.RawMessage("[]")})
		}
		value, differs, err := mergeEvent(events[i].value, event, command)
		if err != nil {
			return nil, fmt.Errorf("hooks: %s: %w", event, err)
		}
		events[i].value, changed = value, changed || differs
	}
	if !changed {
		return settings, nil
	}
	if top[at].value, err = join(events, "  "); err != nil {
		return nil, err
	}
	merged, err := join(top, "")
	return append(merged, '\n'), err
}

// mergeEvent lets the groups of one event call command, once.
func mergeEvent(value json.RawMessage, event, command string) (json.RawMessage, bool, error) {
	var groups []json.RawMessage
	if err := json.Unmarshal(value, &groups); err != nil {
		return nil, false, errors.New("not a list")
	}
	var kept []json.RawMessage
	found := 0
	right := true
	for _, group := range groups {
		ours, same := oursIn(group, command)
		if !ours {
			kept = append(kept, group)
			continue
		}
		found++
		right = right && same
	}
	if found == 1 && right {
		return value, false, nil
	}
	wanted := map[string]any{"hooks": []any{map[string]any{"type": "command", "command": command, "timeout": hookSeconds}}}
	if event == hook.PreToolUse {
		wanted["matcher"] = "*"
	}
	group, err := json.Marshal(wanted)
	if err != nil {
		return nil, false, err
	}
	merged, err := groupsText(append(kept, group))
	return merged, true, err
}

// groupsText writes the groups of an event. Not MarshalIndent, which would write
// <, > and & of other hooks as escapes.
func groupsText(groups []json.RawMessage) (json.RawMessage, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("    ", "  ")
	err := e.Encode(groups)
	return bytes.TrimSpace(text.Bytes()), err
}

// oursIn says whether a group has our hook and nothing else, and whether it
// calls command. A group that a person mixed is left alone.
func oursIn(group json.RawMessage, command string) (ours, same bool) {
	var g struct {
		Hooks []struct {
			Command string `json:"command"`
			Timeout int    `json:"timeout"`
		} `json:"hooks"`
	}
	if json.Unmarshal(group, &g) != nil || len(g.Hooks) != 1 {
		return false, false
	}
	binary, _, _ := strings.Cut(g.Hooks[0].Command, " "+note.HomeFlag+" ")
	binary = strings.Trim(strings.ReplaceAll(strings.TrimSpace(binary), `\`, "/"), `'"`)
	binary = strings.TrimSuffix(binary[strings.LastIndex(binary, "/")+1:], ".exe")
	return binary == hookBinary, g.Hooks[0].Command == command && g.Hooks[0].Timeout == hookSeconds
}

// settingsPath returns where Claude Code keeps the user's settings.
func (s *System) settingsPath() (string, error) {
	dir, err := s.claudeDir()
	return filepath.Join(dir, "settings.json"), err
}

// claudeDir returns Claude Code's folder of the user.
func (s *System) claudeDir() (string, error) {
	if dir := s.Getenv("CLAUDE_CONFIG_DIR"); filepath.IsAbs(dir) {
		return filepath.Clean(dir), nil
	}
	home, err := s.UserHome()
	if err != nil {
		return "", fmt.Errorf("find the user's folder: %w", err)
	}
	return filepath.Join(home, ".claude"), nil
}

// installHooks merges our hooks into the user's settings, atomically. It keeps
// the file that was there beside the new one, records in the state directory
// what it wrote, for uninstall, and says whether it wrote.
func installHooks(home, path, command string) (bool, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link into somebody's dotfiles stays one
	}
	before, err := durable.ReadFile(path, maxSettings)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read Claude Code's settings: %w", err)
	}
	exists := err == nil
	after, err := mergeHooks(before, command)
	if err != nil {
		return false, fmt.Errorf("read Claude Code's settings: %s: %w; it is left as it is: put it right and run this again, or add by hand what undersong hooks prints", path, err)
	}
	if exists && bytes.Equal(before, after) {
		return false, nil
	}
	mode := fs.FileMode(0o600)
	if exists {
		info, err := os.Stat(path)
		if err != nil {
			return false, fmt.Errorf("read Claude Code's settings: %w", err)
		}
		mode = info.Mode().Perm()
		if err := keep(home, path, before); err != nil {
			return false, fmt.Errorf("keep Claude Code's settings: %w", err)
		}
	} else if err := durable.MkdirAll(filepath.Dir(path)); err != nil {
		return false, err
	}
	if earlier, err := readWritten(home); err == nil && earlier.Path == path && earlier.Digest == digest(before) {
		exists = earlier.Existed // what is there is our own work
	}
	record, err := json.Marshal(written{Path: path, Existed: exists, Digest: digest(after)})
	if err != nil {
		return false, err
	}
	// Before the settings: uninstall compares the digest.
	if err := durable.WriteFile(filepath.Join(home, settingsRecord), record); err != nil {
		return false, fmt.Errorf("record what is written: %w", err)
	}
	if err := durable.WriteFile(path, after); err != nil {
		return false, fmt.Errorf("write Claude Code's settings: %w", err)
	}
	return true, os.Chmod(path, mode)
}

// keep puts the settings aside as they were before our hooks came. What is our
// own work of an earlier init is not worth keeping.
func keep(home, path string, before []byte) error {
	if w, err := readWritten(home); err == nil && w.Path == path && w.Digest == digest(before) {
		return nil
	}
	without, err := dropHooks(before)
	if err != nil {
		return err
	}
	return durable.WriteFile(path+backupSuffix, without)
}
