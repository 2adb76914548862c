package cli

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
)

const (
	systemdUnit = "undersong.service"
	launchdName = "dev.undersong.daemon"
)

// service is a file that tells the system's own service manager of the daemon.
type service struct {
	path, text     string
	enable, remove []string // what the user runs, one command an entry
}

func (s *System) serviceCommands() []*cobra.Command {
	var show bool
	install := &cobra.Command{
		Use:   "install",
		Short: "Let systemd or launchd keep the daemon running",
		Long: `Write a unit for systemd (Linux) or an agent for launchd (macOS) that keeps the
daemon running while you are logged in, and print the command that turns it on.

This is a matter of taste: without it every hook starts the daemon when it does
not run, and the daemon leaves when there is nothing to do.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return s.installService(show) },
	}
	install.Flags().BoolVar(&show, "print", false, "print the file and write nothing")
	return []*cobra.Command{install, {
		Use: "uninstall", Short: "Take that unit or agent away again", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return s.uninstallService() },
	}}
}

// serviceFor returns what an operating system's service manager is told.
func (s *System) serviceFor(goos string) (service, error) {
	binary, err := s.Executable()
	if err != nil {
		return service{}, fmt.Errorf("find this binary: %w", err)
	}
	user, err := s.UserHome()
	if err != nil {
		return service{}, fmt.Errorf("find the user's folder: %w", err)
	}
	state := s.Getenv(note.HomeVariable)
	switch goos {
	case "linux":
		config := s.Getenv("XDG_CONFIG_HOME")
		if !filepath.IsAbs(config) {
			config = filepath.Join(user, ".config")
		}
		return service{
			path: filepath.Join(config, "systemd", "user", systemdUnit), text: systemd(binary, state),
			enable: []string{"systemctl --user daemon-reload", "systemctl --user enable --now " + systemdUnit},
			remove: []string{"systemctl --user disable --now " + systemdUnit},
		}, nil
	case "darwin":
		path := filepath.Join(user, "Library", "LaunchAgents", launchdName+".plist")
		text, err := launchd(binary, state)
		return service{
			path: path, text: text,
			enable: []string{"launchctl bootstrap gui/$(id -u) " + quote(path)},
			remove: []string{"launchctl bootout gui/$(id -u)/" + launchdName},
		}, err
	}
	return service{}, fmt.Errorf("there is no service manager of a user on %s; the hooks start the daemon", goos)
}

// systemd returns a unit. The daemon takes its environment from what init
// recorded, so the unit needs none but the place of the state.
func systemd(binary, state string) string {
	// A dollar sign stands for itself in Environment and in the program's path.
	word := func(text string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(text) + `"`
	}
	var b strings.Builder
	b.WriteString("[Unit]\nDescription=undersong: a team's shared memory for coding agents\n" +
		"Documentation=https://github.com/undersong-dev/undersong\n\n[Service]\n")
	if state != "" {
		b.WriteString("Environment=" + word(note.HomeVariable+"="+state) + "\n")
	}
	b.WriteString("ExecStart=" + word(binary) + " daemon run --stay\n" +
		"Restart=on-failure\nRestartSec=10\n" +
		"# What it has in hand is finished; the spool keeps the rest.\n" +
		"TimeoutStopSec=20\nNice=10\nNoNewPrivileges=true\nUMask=0077\n\n[Install]\nWantedBy=default.target\n")
	return b.String()
}

// launchd returns an agent.
func launchd(binary, state string) (string, error) {
	escape := func(text string) (string, error) {
		var b strings.Builder
		err := xml.EscapeText(&b, []byte(text))
		return b.String(), err
	}
	program, err := escape(binary)
	if err != nil {
		return "", err
	}
	var environment string
	if state != "" {
		value, err := escape(state)
		if err != nil {
			return "", err
		}
		environment = "  <key>EnvironmentVariables</key>\n  <dict>\n    <key>" + note.HomeVariable + "</key><string>" + value + "</string>\n  </dict>\n"
	}
	return `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>` + launchdName + `</string>
  <key>ProgramArguments</key>
  <array>
    <string>` + program + `</string>
    <string>daemon</string>
    <string>run</string>
    <string>--stay</string>
  </array>
` + environment + `  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key>
  <dict><key>SuccessfulExit</key><false/></dict>
  <key>ProcessType</key><string>Background</string>
  <key>Umask</key><integer>63</integer>
</dict>
</plist>
`, nil
}

func (s *System) installService(show bool) error {
	unit, err := s.serviceFor(runtime.GOOS)
	if err != nil {
		return err
	}
	if show {
		return s.print("%s", unit.text)
	}
	if err := durable.MkdirAll(filepath.Dir(unit.path)); err != nil {
		return err
	}
	if err := durable.WriteFile(unit.path, []byte(unit.text)); err != nil {
		return fmt.Errorf("write the service: %w", err)
	}
	return s.print("Wrote %s. Turn it on:\n\n  %s\n", unit.path, strings.Join(unit.enable, "\n  "))
}

func (s *System) uninstallService() error {
	unit, err := s.serviceFor(runtime.GOOS)
	if err != nil {
		return err
	}
	err = os.Remove(unit.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.print("There is no %s.\n", unit.path)
	}
	if err != nil {
		return fmt.Errorf("remove the service: %w", err)
	}
	return s.print("Removed %s. If it still runs:\n\n  %s\n", unit.path, strings.Join(unit.remove, "\n  "))
}
