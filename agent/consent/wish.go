package consent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

// RecallOff is what Recall returns for a file that cannot be understood.
const RecallOff = "off"

// Recall returns what the file .undersong.yaml in the root of a repository wishes
// to be shown there: off, whisper, brief or full, or nothing where it is silent.
// It narrows what the team and the person allow. A file that is there and
// cannot be understood is taken for off: somebody put it there.
func (f *Finder) Recall(dir string) string {
	if dir == "" {
		return ""
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "" // gone; there is nothing to be shown in it
	}
	defer func() { _ = root.Close() }() // only read
	info, err := root.Lstat(optOutFile)
	if err != nil {
		return ""
	}
	name := filepath.Join(dir, optOutFile)
	if info.Mode().IsRegular() {
		if wish, ok := f.recall(name+"#recall", info); ok {
			return wish
		}
	}
	wish := readWish(root)
	f.remember(name+"#recall", info, wish)
	return wish
}

func readWish(root *os.Root) string {
	info, err := root.Stat(optOutFile) // a link out of the repository is not followed
	if err != nil || !info.Mode().IsRegular() {
		return RecallOff
	}
	data, err := durable.ReadFileIn(root, optOutFile, maxOptOut)
	if err != nil {
		return RecallOff
	}
	var file struct {
		Recall any `json:"recall"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return RecallOff
	}
	switch wish := file.Recall.(type) {
	case nil:
		return ""
	case bool: // off and on without quotes are booleans in YAML
		if wish {
			return ""
		}
		return RecallOff
	default:
		switch text := strings.ToLower(strings.TrimSpace(fmt.Sprint(wish))); text {
		case "whisper", "brief", "full":
			return text
		case "on", "":
			return ""
		}
		return RecallOff
	}
}
