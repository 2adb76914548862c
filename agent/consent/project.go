package consent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path"
	"path/filepath"
	"strings"
)

const (
	// maxRemote bounds a remote, in bytes, as the Session kind does.
	maxRemote = 253

	// maxProjectName bounds the name for people, in bytes, as the Session
	// kind does.
	maxProjectName = 100

	// local is the host of projects that have none.
	local = "local"
)

// ErrCwd is returned for a working directory that is no absolute path.
var ErrCwd = errors.New("working directory is not an absolute path")

// Project is the repository of a folder.
type Project struct {
	// Name is the last part of Remote, at most 100 bytes, for people.
	Name string

	// Remote is the normal form of the remote, at most 253 bytes of
	// [a-z0-9._~/-]. Where there is none it is local/ and 8 hex digits of the
	// sha256 of Root, or of the folder outside any repository.
	Remote string

	// Root is the repository's working tree. Empty outside.
	Root string

	// Outside says that the folder is in no repository, or in one without a
	// remote that names a host.
	Outside bool
}

// Project returns the repository that a folder is in. The folder need not exist
// any more. Symbolic links in it are followed, as git does.
func (f *Finder) Project(cwd string) (Project, error) {
	if !filepath.IsAbs(cwd) {
		return Project{}, ErrCwd
	}
	cwd = filepath.Clean(cwd)
	if resolved, err := filepath.EvalSymlinks(cwd); err == nil {
		cwd = resolved
	}
	root, gitDir := findRepository(cwd)
	if root == "" {
		return outside("", cwd), nil
	}
	if gitDir == "" {
		return outside(root, root), nil
	}
	remote, ok := Normalize(f.remote(gitDir))
	if !ok {
		return outside(root, root), nil
	}
	return Project{Name: name(remote), Remote: remote, Root: root}, nil
}

// outside is the project of a folder that shares no remote.
func outside(root, dir string) Project {
	sum := sha256.Sum256([]byte(dir))
	id := hex.EncodeToString(sum[:4])
	return Project{Name: id, Remote: local + "/" + id, Root: root, Outside: true}
}

// name is the last part of a remote.
func name(remote string) string {
	last := path.Base(remote)
	return last[:min(len(last), maxProjectName)]
}

// Normalize returns the normal form of a git remote, host/path, so that all
// ways to write one repository give one project: lower case, without scheme,
// port, user, password, query, fragment, .git and superfluous slashes. A byte
// outside [a-z0-9._~/-] becomes ~ and two hex digits; a result over 253 bytes
// is cut and gets a hash. It returns false for what names no host: paths,
// file://, helpers such as ext::, and what is not a remote at all.
//
// A normal form with https:// before it has itself as its normal form.
func Normalize(remote string) (string, bool) {
	host, rest, ok := split(strings.TrimSpace(remote))
	if !ok {
		return "", false
	}
	host = strings.Trim(encode(host), ".")
	parts := []string{host}
	for part := range strings.SplitSeq(encode(rest), "/") {
		switch part {
		case "", ".":
		case "..":
			return "", false // would name another repository than it says
		default:
			parts = append(parts, part)
		}
	}
	// Of org/repo.git, org/repo/.git and repo.git.git alike.
	for last := len(parts) - 1; last > 0 && strings.HasSuffix(parts[last], ".git"); last = len(parts) - 1 {
		if parts[last] = strings.TrimSuffix(parts[last], ".git"); parts[last] == "" || parts[last] == "." || parts[last] == ".." {
			parts = parts[:last]
		}
	}
	// A name of the internet has 253 characters at most; what is cut below must
	// still have a path.
	badHost := host == "" || host == local || strings.Contains(host, "/") || len(host) > maxRemote/2
	if badHost || len(parts) < 2 {
		return "", false
	}
	return bound(strings.Join(parts, "/")), true
}

// bound cuts a normal form to its length, and lets it stay different from
// others of the same beginning.
func bound(remote string) string {
	if len(remote) <= maxRemote {
		return remote
	}
	sum := sha256.Sum256([]byte(remote))
	tail := "~" + hex.EncodeToString(sum[:8])
	return remote[:maxRemote-len(tail)] + tail
}

// split takes a remote apart, as git does, into host and path.
func split(remote string) (host, rest string, ok bool) {
	if scheme, after, found := strings.Cut(remote, "://"); found && isScheme(scheme) {
		if strings.EqualFold(scheme, "file") {
			return "", "", false
		}
		after, _, _ = strings.Cut(after, "#")
		after, _, _ = strings.Cut(after, "?")
		authority, rest, _ := strings.Cut(after, "/")
		return hostOf(authority), unescape(rest), true
	}
	if helper, _, found := strings.Cut(remote, "::"); found && isScheme(helper) {
		return "", "", false // a program and its argument
	}
	return splitShort(remote)
}

// splitShort takes [user@]host:path apart. A slash before the colon makes it a
// path of this machine, as does a single letter: a drive.
func splitShort(remote string) (host, rest string, ok bool) {
	head, _, _ := strings.Cut(remote, "/")
	if at := strings.LastIndex(head, "@"); at >= 0 {
		// What is before it may be user:password, which git does not know here
		// and people write.
		if !strings.Contains(head[at:], ":") {
			return "", "", false
		}
		remote = remote[at+1:]
	}
	if strings.HasPrefix(remote, "[") { // [::1]:path, or [host:port]:path
		inner, after, found := strings.Cut(remote[1:], "]")
		rest, isPath := strings.CutPrefix(after, ":")
		if !found || !isPath {
			return "", "", false
		}
		if strings.Count(inner, ":") == 1 {
			inner, _, _ = strings.Cut(inner, ":")
		}
		return inner, rest, true
	}
	host, rest, ok = strings.Cut(remote, ":")
	if !ok || strings.Contains(host, "/") || len(host) < 2 {
		return "", "", false
	}
	return host, rest, true
}

// isScheme reports whether a string can be the scheme of a URL.
func isScheme(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20 // lower case of a letter
		if (c < 'a' || c > 'z') && (i == 0 || !strings.ContainsRune("0123456789+-.", rune(s[i]))) {
			return false
		}
	}
	return s != ""
}

// hostOf returns the host of a URL's authority, without user and port.
func hostOf(authority string) string {
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		authority = authority[at+1:]
	}
	if inner, isIPv6 := strings.CutPrefix(authority, "["); isIPv6 {
		inner, _, _ = strings.Cut(inner, "]")
		return inner
	}
	host, _, _ := strings.Cut(authority, ":")
	return unescape(host)
}

// unescape decodes %XX. What is no escape stays.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// encode lowers ASCII letters and replaces what a normal form does not have.
func encode(s string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'A' && c <= 'Z':
			b.WriteByte(c | 0x20)
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', strings.IndexByte("._~/-", c) >= 0:
			b.WriteByte(c)
		default:
			b.Write([]byte{'~', digits[c>>4], digits[c&0xf]})
		}
	}
	return b.String()
}
