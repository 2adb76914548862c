package cli

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/agent/note"
)

func TestServicesAreGolden(t *testing.T) {
	m := newMachine(t)
	m.Executable = func() (string, error) { return `/opt/a "b" & 100%/undersong`, nil }
	m.UserHome = func() (string, error) { return "/home/ada", nil }
	m.env[note.HomeVariable] = "/data/<state> $x"
	var all strings.Builder
	for _, goos := range []string{"linux", "darwin"} {
		unit, err := m.serviceFor(goos)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(unit.path + "\n" + unit.text + strings.Join(unit.enable, "\n") + "\n" + strings.Join(unit.remove, "\n") + "\n\n")
		if goos != "darwin" {
			continue
		}
		for d := xml.NewDecoder(strings.NewReader(unit.text)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("the agent is no XML: %v", err)
			}
		}
	}
	golden(t, "services", all.String())
	if _, err := m.serviceFor("windows"); err == nil || !strings.Contains(err.Error(), "hooks start") {
		t.Errorf("windows: %v", err)
	}
}

func TestServiceComesAndGoes(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("no service manager of a user here")
	}
	m := newMachine(t)
	unit, err := m.serviceFor(runtime.GOOS)
	if err != nil {
		t.Fatal(err)
	}
	if _, out, _ := m.run("daemon", "install", "--print"); out != unit.text {
		t.Errorf("--print:\n%s", out)
	}
	if _, err := os.Stat(unit.path); !os.IsNotExist(err) {
		t.Errorf("--print wrote a file: %v", err)
	}
	for range 2 {
		if code, out, errs := m.run("daemon", "install"); code != 0 || !strings.Contains(out, unit.path) {
			t.Errorf("install: exit %d, %s%s", code, out, errs)
		}
	}
	if got := get(t, unit.path); got != unit.text {
		t.Errorf("wrote:\n%s", got)
	}
	if code, out, _ := m.run("daemon", "uninstall"); code != 0 || !strings.Contains(out, "Removed") {
		t.Errorf("uninstall: exit %d, %s", code, out)
	}
	if code, out, _ := m.run("daemon", "uninstall"); code != 0 || !strings.Contains(out, "There is no") {
		t.Errorf("again: exit %d, %s", code, out)
	}
}
