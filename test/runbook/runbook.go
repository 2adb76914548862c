// Package runbook reads what a page of docs tells a person to type, so that a test
// follows it word by word.
package runbook

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/undersong-dev/undersong/test/tools"
)

// block is a fenced block of commands.
var block = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```")

// Commands are the lines of the command blocks under a heading of a page in docs,
// which is given as it stands there: "## The bill". What is under smaller headings
// below it belongs to it.
func Commands(page, heading string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(tools.Root(), "docs", page))
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	_, under, ok := strings.Cut("\n"+string(text), "\n"+heading+"\n")
	if !ok {
		return nil, fmt.Errorf("%s has no heading %q", page, heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	for n := 2; n <= len(level); n++ { // one # begins a comment of a command
		under, _, _ = strings.Cut(under, "\n"+strings.Repeat("#", n)+" ")
	}
	var lines []string
	for _, b := range block.FindAllStringSubmatch(under, -1) {
		for line := range strings.Lines(b[1]) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s has no commands under %q", page, heading)
	}
	return lines, nil
}

// Fill puts values into the places of a line that are in <…>.
func Fill(line string, values map[string]string) string {
	for name, value := range values {
		line = strings.ReplaceAll(line, "<"+name+">", value)
	}
	return line
}
