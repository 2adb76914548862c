package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/undersong-dev/undersong/agent/consent"
	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

const (
	// backupSuffix is added to the settings file's name for what it was before
	// our hooks came.
	backupSuffix = ".before-undersong"

	// settingsRecord says in the state directory what init wrote where.
	settingsRecord = "hooks.json"
)

// written is what init did to a settings file.
type written struct {
	Path string `json:"path"`
	// Existed says that there was a file before, which is kept beside it.
	Existed bool `json:"existed"`
	// Digest is the sha256 of what init wrote, in hex.
	Digest string `json:"digest"`
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func readWritten(home string) (written, error) {
	var w written
	data, err := durable.ReadFile(filepath.Join(home, settingsRecord), 1<<16)
	if err == nil {
		err = json.Unmarshal(data, &w)
	}
	return w, err
}

// uninstallFlags are the flags of uninstall.
type uninstallFlags struct {
	yes, erase, discard bool
}

func (s *System) uninstallCommand() *cobra.Command {
	var f uninstallFlags
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take undersong off this workstation again",
		Long: `Take the hooks out of Claude Code's settings, stop the daemon, and forget the
consent: nothing is recorded afterwards. The settings file becomes byte for byte
what it was before init, unless somebody changed it since; then only our hooks
are taken out.

What the team's memory has stays there; see undersong forget. What is not
archived yet stays in the state directory, and a later init goes on with it,
unless --erase removes the state directory too. What is said in between is never
sent. The two binaries are yours to delete.`,
		Example: `  undersong uninstall
  undersong uninstall --erase`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.uninstall(c.Context(), f) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.yes, "yes", false, "do it without being asked")
	flags.BoolVar(&f.erase, "erase", false, "remove the state directory, too")
	flags.BoolVar(&f.discard, "discard", false, "with --erase: give up what is not archived yet")
	return cmd
}

func (s *System) uninstall(ctx context.Context, f uninstallFlags) error {
	home, err := s.home()
	if err != nil {
		return err
	}
	config, err := before(home)
	if err != nil {
		return err
	}
	backlog, err := f.pending(home)
	if err != nil {
		return err
	}
	owed := unforgotten(home)
	if owed != "" && f.erase && !f.discard {
		return fmt.Errorf("%s not answered yet: undersong forget --retry asks again; leave --erase out to keep what waits, or give it up with --discard", owed)
	}
	if err := s.confirm(f, home, backlog); err != nil {
		return err
	}
	if _, err := s.stop(ctx, home); err != nil {
		return err
	}
	release, err := holdIfThere(ctx, home)
	if err != nil {
		return err
	}
	defer release()
	if err := settle(home); err != nil {
		return err
	}
	if backlog, err = f.pending(home); err != nil { // the daemon has read on
		return err
	}
	if err := s.forgetConsent(ctx, home); err != nil {
		return err
	}
	said, err := s.restoreSettings(home)
	if err != nil {
		return err
	}
	if err := s.print("%s\n", said); err != nil {
		return err
	}
	// A Workstation with a backlog stays: without it the backlog could not go.
	if backlog == "" || f.discard {
		if err := s.print("%s\n", s.unregister(ctx, home, config)); err != nil {
			return err
		}
	}
	if f.erase {
		release() // the lock lies in there
		if err := os.RemoveAll(home); err != nil {
			return fmt.Errorf("remove the state directory: %w", err)
		}
		return s.print("Removed %s.\n", home)
	}
	if owed != "" {
		if err := s.print("%s not answered yet, and nobody asks again until undersong init.\n", owed); err != nil {
			return err
		}
	}
	if backlog != "" {
		return s.print("Kept %s: %s not archived yet. undersong init goes on with it.\n", home, backlog)
	}
	return s.print("Kept %s; remove it with --erase.\n", home)
}

// unforgotten says what the cluster was asked to forget and has not answered.
// Empty means nothing.
func unforgotten(home string) string {
	wishes, err := upload.Wishes(home)
	open := slices.DeleteFunc(wishes, func(w upload.Wish) bool { return w.Result != "" })
	switch {
	case err != nil:
		return "What the cluster was asked to forget cannot be read here: it is perhaps"
	case len(open) == 0:
		return ""
	case len(open) == 1:
		return "1 request to the cluster to forget something is"
	}
	return fmt.Sprintf("%d requests to the cluster to forget something are", len(open))
}

// holdIfThere keeps daemons out of a state directory, if there is one, until
// release is called for the first time.
func holdIfThere(ctx context.Context, home string) (release func(), err error) {
	if _, err := os.Stat(home); err != nil {
		return func() {}, nil //nolint:nilerr // there is none
	}
	held, err := daemon.Hold(ctx, home)
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(held), nil
}

// forgetConsent sees to it that nothing is heard any more: no daemon that starts
// later finds a configuration, and what is said until the next init is never sent.
func (s *System) forgetConsent(ctx context.Context, home string) error {
	_, err := note.LoadConfig(home)
	if errors.Is(err, note.ErrNotConfigured) {
		return nil // it is forgotten already
	}
	if err == nil {
		err = s.quiet(ctx, home, func(known *consent.Silences, projects string, sizes map[string]int64) {
			known.Begin(consent.ReasonUninstalled, "", projects, s.Clock.Now().UTC(), time.Time{}, sizes)
		})
		if err == nil {
			return note.RetireConfig(home)
		}
	}
	// Then the next init begins anew, and withholds all that was not read.
	return errors.Join(note.RemoveConfig(home), note.ForgetFormer(home))
}

// pending says what is not archived, and refuses to erase it.
func (f uninstallFlags) pending(home string) (string, error) {
	backlog := pending(home)
	if f.erase && backlog != "" && !f.discard {
		return "", fmt.Errorf("%s not archived yet: let the daemon finish, leave --erase out to keep it, or give it up with --discard", backlog)
	}
	return backlog, nil
}

// pending says what would be lost with the state directory. Empty means nothing.
func pending(home string) string {
	if segments := backlogOf(home); segments != "" {
		return segments
	}
	if notes := countFiles(note.Dir(home)); notes > 0 {
		return "what " + many(int64(notes), "hook call") + " spoke of is"
	}
	return ""
}

func (s *System) confirm(f uninstallFlags, home, backlog string) error {
	if f.yes {
		return nil
	}
	if !s.Terminal() {
		return errors.New("there is nobody to ask here: run it in a terminal, or with --yes")
	}
	what := "This takes the hooks out of Claude Code's settings and stops recording."
	if f.erase {
		what += "\nIt removes " + home + "."
	}
	if backlog != "" {
		what += "\nNote: " + backlog + " not archived yet."
	}
	yes, err := s.agree(what + "\nGo on? [y/N] ")
	if err != nil {
		return err
	}
	if !yes {
		return errors.New("nothing was changed")
	}
	return nil
}

// restoreSettings takes our hooks out of the settings file and says what it
// did.
func (s *System) restoreSettings(home string) (string, error) {
	w, err := readWritten(home)
	if err != nil { // written by hand, or by an older version
		path, perr := s.settingsPath()
		if perr != nil {
			return "", perr
		}
		w = written{Path: path, Existed: true}
	}
	now, err := durable.ReadFile(w.Path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return "There are no hooks in " + w.Path + ".", nil
	}
	if err != nil {
		return "", fmt.Errorf("read Claude Code's settings: %w", err)
	}
	backup := w.Path + backupSuffix
	if w.Digest != "" && digest(now) == w.Digest {
		if !w.Existed {
			return "Removed " + w.Path + ", which init had made.", durable.Remove(w.Path)
		}
		before, err := durable.ReadFile(backup, maxSettings)
		if err == nil {
			if err := rewrite(w.Path, before); err != nil {
				return "", err
			}
			return w.Path + " is what it was before init.", durable.Remove(backup)
		}
	}
	without, err := dropHooks(now)
	if err != nil {
		return "", fmt.Errorf("read Claude Code's settings: %s: %w; it is left as it is, take the hooks out by hand", filepath.Base(w.Path), err)
	}
	if bytes.Equal(now, without) {
		return "There are no hooks of ours in " + w.Path + ".", nil
	}
	if err := rewrite(w.Path, without); err != nil {
		return "", err
	}
	said := "Took our hooks out of " + w.Path + "; it was changed since init, and everything else in it stays."
	if _, err := os.Lstat(backup); err == nil {
		said += "\nWhat it was before init is still in " + backup + ": remove it when you do not need it."
	}
	return said, nil
}

// rewrite replaces a file that exists and keeps its mode.
func rewrite(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read Claude Code's settings: %w", err)
	}
	if err := durable.WriteFile(path, data); err != nil {
		return fmt.Errorf("write Claude Code's settings: %w", err)
	}
	return os.Chmod(path, info.Mode().Perm())
}

// dropHooks returns settings without our hooks. What is empty afterwards goes
// with them.
func dropHooks(settings []byte) ([]byte, error) {
	if len(bytes.TrimSpace(settings)) == 0 {
		return settings, nil
	}
	top, err := members(settings)
	if err != nil {
		return nil, err
	}
	changed := false
	var kept []member
	for _, m := range top {
		if m.key != "hooks" {
			kept = append(kept, m)
			continue
		}
		events, err := members(m.value)
		if err != nil {
			return nil, fmt.Errorf("hooks: %w", err)
		}
		var left []member
		for _, event := range events {
			value, differs, err := dropFrom(event.value)
			if err != nil {
				return nil, fmt.Errorf("hooks: %s: %w", event.key, err)
			}
			changed = changed || differs
			if value != nil {
				left = append(left, member{event.key, value})
			}
		}
		if len(left) == 0 && changed {
			continue
		}
		if m.value, err = join(left, "  "); err != nil {
			return nil, err
		}
		kept = append(kept, m)
	}
	if !changed {
		return settings, nil
	}
	if len(kept) == 0 {
		return []byte("{}\n"), nil
	}
	text, err := join(kept, "")
	return append(text, '\n'), err
}

// dropFrom takes our groups out of one event. Nil means that nothing is left.
func dropFrom(value json.RawMessage) (json.RawMessage, bool, error) {
	var groups []json.RawMessage
	if err := json.Unmarshal(value, &groups); err != nil {
		return nil, false, errors.New("not a list")
	}
	var kept []json.RawMessage
	for _, group := range groups {
		if ours, _ := oursIn(group, ""); !ours {
			kept = append(kept, group)
		}
	}
	switch {
	case len(kept) == len(groups):
		return value, false, nil
	case len(kept) == 0:
		return nil, true, nil
	}
	text, err := groupsText(kept)
	return text, true, err
}

// unregister deletes this workstation's object, which ends its grants, and says
// what came of it.
func (s *System) unregister(ctx context.Context, home string, config note.Config) string {
	if config.Workstation == "" {
		return "No workstation is registered."
	}
	later := fmt.Sprintf("kubectl delete workstation %s -n %s", config.Workstation, config.Namespace)
	registry, err := upload.OpenRegistry(home)
	if err != nil {
		return "This workstation's registration is not readable here; to end it: " + later
	}
	c, err := s.cluster(config)
	if err != nil {
		return "The cluster cannot be asked from here; to end this workstation's registration: " + later
	}
	ctx, cancel := asking(ctx)
	defer cancel()
	live := &v1alpha1.Workstation{ObjectMeta: metav1.ObjectMeta{
		Namespace: config.Namespace, Name: registry.Name(), UID: types.UID(registry.UID()),
	}}
	err = c.Delete(ctx, live)
	if err != nil && !apierrors.IsNotFound(err) {
		return "The cluster did not take this workstation's registration back; to end it: " + later
	}
	return "Workstation " + config.Workstation + " is no longer registered."
}
