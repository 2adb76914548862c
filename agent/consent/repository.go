package consent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

const (
	// maxPointer bounds a file that names a folder, in bytes.
	maxPointer = 8 << 10

	// maxGitConfig bounds a repository's configuration, in bytes.
	maxGitConfig = 1 << 20

	// maxCache bounds the files that a Finder remembers.
	maxCache = 512
)

// Finder looks up the repositories of folders. It remembers what it read of a
// file until the file changes; the look for the repository itself is made each
// time, since a repository may appear between two records. The zero value is
// ready, and safe for concurrent use.
type Finder struct {
	mu    sync.Mutex
	files map[string]remembered
}

// remembered is what was understood of a file in one state.
type remembered struct {
	info  fs.FileInfo
	value string
}

// recall returns what was understood of a file, if it is as it was then.
func (f *Finder) recall(name string, now fs.FileInfo) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, known := f.files[name]
	same := known && os.SameFile(r.info, now) && r.info.ModTime().Equal(now.ModTime()) && r.info.Size() == now.Size()
	return r.value, same
}

func (f *Finder) remember(name string, now fs.FileInfo, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files == nil || len(f.files) >= maxCache {
		f.files = map[string]remembered{} // starting over is rare and cheap
	}
	f.files[name] = remembered{info: now, value: value}
}

// findRepository walks up from a folder to the first repository, and returns
// its working tree with the folder in which git keeps the configuration, which
// is empty when the repository is broken.
func findRepository(dir string) (root, gitDir string) {
	for {
		if gitDir, found := gitDirOf(dir); found {
			return dir, gitDir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ""
		}
		dir = parent
	}
}

// gitDirOf returns the folder that holds the configuration of the repository
// whose working tree is dir: .git itself, or what a .git file points to, which
// for a worktree points on to the common one. A repository that is broken is
// found, too: what was said in it is not its parent's.
func gitDirOf(dir string) (gitDir string, found bool) {
	gitDir = filepath.Join(dir, ".git")
	info, err := os.Stat(gitDir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "", false
	case err != nil:
		return "", true
	case info.Mode().IsRegular(): // a worktree or a submodule
		target, ok := pointer(gitDir, "gitdir: ")
		if !ok {
			return "", true
		}
		gitDir = join(dir, target)
		if _, err := os.Lstat(filepath.Join(gitDir, "HEAD")); err != nil {
			return "", true
		}
	default:
		// Git, too, walks on from a folder of this name without a HEAD.
		if _, err := os.Lstat(filepath.Join(gitDir, "HEAD")); err != nil {
			return "", false
		}
	}
	if common, ok := pointer(filepath.Join(gitDir, "commondir"), ""); ok {
		gitDir = join(gitDir, common)
	}
	return gitDir, true
}

// pointer returns the folder that a file of one line names.
func pointer(name, prefix string) (string, bool) {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() { // a pipe would be waited for
		return "", false
	}
	data, err := durable.ReadFile(name, maxPointer)
	if err != nil {
		return "", false
	}
	target, ok := strings.CutPrefix(strings.TrimRight(string(data), "\r\n"), prefix)
	return target, ok && target != "" && !strings.ContainsAny(target, "\x00\n")
}

// join resolves a path that may be relative to a folder.
func join(dir, target string) string {
	if filepath.IsAbs(target) {
		return filepath.Clean(target)
	}
	return filepath.Join(dir, target)
}

// remote returns the URL of the remote origin, else of the first remote, of a
// repository. Empty when there is none, or the configuration cannot be read.
func (f *Finder) remote(gitDir string) string {
	name := filepath.Join(gitDir, "config")
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	if url, ok := f.recall(name, info); ok {
		return url
	}
	data, err := durable.ReadFile(name, maxGitConfig)
	if err != nil {
		return ""
	}
	url := remoteURL(string(data))
	f.remember(name, info, url)
	return url
}

// remoteURL finds the URL in the text of a git configuration.
func remoteURL(config string) string {
	first, remote := "", ""
	for line := range logicalLines(config) {
		if strings.HasPrefix(line, "[") {
			var rest string
			remote, rest = section(line)
			line = strings.TrimSpace(rest)
		}
		key, value, found := strings.Cut(line, "=")
		if !found || remote == "" || !strings.EqualFold(strings.TrimSpace(key), "url") {
			continue
		}
		url := unquote(value)
		switch {
		case url == "":
		case remote == "origin":
			return url
		case first == "":
			first = url
		}
	}
	return first
}

// logicalLines yields the lines of a configuration without blanks around them,
// comments left out, continued lines joined.
func logicalLines(config string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		var joined strings.Builder
		for line := range strings.SplitSeq(config, "\n") {
			line = strings.TrimSuffix(line, "\r")
			if body := strings.TrimRight(line, `\`); (len(line)-len(body))%2 == 1 {
				joined.WriteString(line[:len(line)-1])
				continue
			}
			joined.WriteString(line)
			whole := strings.TrimSpace(joined.String())
			joined.Reset()
			if whole != "" && whole[0] != '#' && whole[0] != ';' && !yield(whole) {
				return
			}
		}
	}
}

// section returns the name of the remote that a section header opens, empty
// for any other section, and what follows the header.
func section(line string) (remote, rest string) {
	header, rest, closed := cutHeader(line[1:])
	if !closed {
		return "", ""
	}
	kind, sub, quoted := strings.Cut(header, `"`)
	if !quoted { // the old form, which ignores case
		kind, sub, _ = strings.Cut(header, ".")
		sub = strings.ToLower(sub)
	}
	if !strings.EqualFold(strings.TrimSpace(kind), "remote") {
		return "", rest
	}
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(sub), `"`), `\`, ""), rest
}

// cutHeader cuts at the bracket that is not within quotes.
func cutHeader(s string) (header, rest string, ok bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == ']' && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return "", "", false
}

// unquote returns a value of a configuration: quotes are taken off, escapes
// resolved, and a comment after it is left out.
func unquote(value string) string {
	var b strings.Builder
	quoted := false
	value = strings.TrimSpace(value)
	end := 0 // after the last character that is not a blank outside quotes
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '"':
			quoted = !quoted
			end = b.Len()
			continue
		case c == '\\' && i+1 < len(value):
			i++
			switch value[i] {
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			default:
				c = value[i]
			}
		case (c == '#' || c == ';') && !quoted:
			return b.String()[:end]
		case (c == ' ' || c == '\t') && !quoted:
			b.WriteByte(c)
			continue
		}
		b.WriteByte(c)
		end = b.Len()
	}
	return b.String()[:end]
}
