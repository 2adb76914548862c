package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var runs = regexp.MustCompile("(?m)^!`undersong ([a-z]+)(.*)`$")

// TestPlugin: each slash command runs a command that exists, with flags that it
// has, is allowed exactly that, and the plugin has no hook.
func TestPlugin(t *testing.T) {
	plugin := filepath.Join("..", "..", "plugin")
	if _, err := os.Stat(filepath.Join(plugin, "hooks")); !os.IsNotExist(err) {
		t.Error("the plugin has hooks: a session would be heard twice")
	}
	var manifest struct{ Name, Version string }
	if err := json.Unmarshal([]byte(get(t, filepath.Join(plugin, ".claude-plugin", "plugin.json"))), &manifest); err != nil || manifest.Name != "undersong" || manifest.Version == "" {
		t.Errorf("plugin.json: %+v, %v", manifest, err)
	}
	var market struct {
		Plugins []struct{ Name, Source string }
	}
	if err := json.Unmarshal([]byte(get(t, filepath.Join("..", "..", ".claude-plugin", "marketplace.json"))), &market); err != nil || len(market.Plugins) != 1 || market.Plugins[0].Source != "./plugin" {
		t.Errorf("marketplace.json: %+v, %v", market, err)
	}
	files, err := filepath.Glob(filepath.Join(plugin, "commands", "*.md"))
	if err != nil || len(files) != 5 {
		t.Fatalf("%d commands, %v", len(files), err)
	}
	root := New(newMachine(t).System)
	for _, file := range files {
		text := get(t, file)
		found := runs.FindStringSubmatch(text)
		if found == nil {
			t.Errorf("%s runs nothing", filepath.Base(file))
			continue
		}
		cmd, _, err := root.Find([]string{found[1]})
		if err != nil || cmd.Name() != found[1] {
			t.Errorf("%s: there is no command %s", filepath.Base(file), found[1])
			continue
		}
		for word := range strings.FieldsSeq(found[2]) {
			if name, is := strings.CutPrefix(word, "--"); is && cmd.Flags().Lookup(name) == nil {
				t.Errorf("%s: undersong %s has no flag %s", filepath.Base(file), found[1], word)
			}
		}
		if !strings.HasPrefix(text, "---\ndescription: ") || !strings.Contains(text, "\nallowed-tools: Bash(undersong "+found[1]+":*)\n") {
			t.Errorf("%s: its head must describe it and allow exactly what it runs", filepath.Base(file))
		}
	}
}
