package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// files are the contents of an archive by their slash-separated names. Whether
// one can be executed is said by the name in executable.
type files struct {
	content    map[string][]byte
	executable map[string]bool
}

func newFiles() *files { return &files{content: map[string][]byte{}, executable: map[string]bool{}} }

// add takes a file of the disk.
func (f *files) add(name, from string, executable bool) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f.content[name], f.executable[name] = data, executable
	return nil
}

// addTree takes a folder, without hidden files.
func (f *files) addTree(name, from string) error {
	return filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), ".") {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		return f.add(path.Join(name, filepath.ToSlash(rel)), file, false)
	})
}

// names are sorted, so that the same files make the same archive.
func (f *files) names() []string { return slices.Sorted(maps.Keys(f.content)) }

func (f *files) mode(name string) fs.FileMode {
	if f.executable[name] {
		return 0o755
	}
	return 0o644
}

// tarred writes a tar with neither users nor a time but the given one. Folders
// have entries of their own, because an image's layer needs them.
func (f *files) tarred(w io.Writer, date time.Time) error {
	t := tar.NewWriter(w)
	made := map[string]bool{".": true}
	for _, name := range f.names() {
		var missing []string
		for dir := path.Dir(name); !made[dir]; dir = path.Dir(dir) {
			made[dir] = true
			missing = append(missing, dir)
		}
		slices.Reverse(missing)
		for _, dir := range missing {
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: date, Format: tar.FormatPAX}); err != nil {
				return err
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(f.mode(name)), Size: int64(len(f.content[name])), ModTime: date, Format: tar.FormatPAX}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := t.Write(f.content[name]); err != nil {
			return err
		}
	}
	return t.Close()
}

// targz is tarred and packed.
func (f *files) targz(date time.Time) ([]byte, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := f.tarred(z, date); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// zipped is the same for Windows.
func (f *files) zipped(date time.Time) ([]byte, error) {
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	for _, name := range f.names() {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: date}
		header.SetMode(f.mode(name))
		w, err := z.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content[name]); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// completions are made by the binary itself, for the shells that have them.
var completions = map[string]string{"bash": "undersong.bash", "zsh": "_undersong", "fish": "undersong.fish", "powershell": "undersong.ps1"}

// relative is a link of a page to another file of the repository.
var relative = regexp.MustCompile(`\]\(([^):#][^):]*)\)`)

// absolute is a page whose links lead to the repository, because what they mean
// is in no archive.
func absolute(page []byte, revision string) []byte {
	return relative.ReplaceAll(page, []byte("]("+home+"/blob/"+revision+"/$1)"))
}

// makeArchives writes one archive for each platform, one more with the
// controller where a lead may need it, and the chart.
func makeArchives(ctx context.Context, s *source, platforms []platform, dist string, out io.Writer) error {
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "undersong-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // the system's own folder for such files

	common := newFiles()
	for _, name := range []string{"LICENSE", "README.md"} {
		if err := common.add(name, filepath.Join(s.root, name), false); err != nil {
			return err
		}
	}
	common.content["README.md"] = absolute(common.content["README.md"], s.revision)
	shells := newFiles()
	if err := shells.addTree("plugin", filepath.Join(s.root, "plugin")); err != nil {
		return err
	}
	here := platform{runtime.GOOS, runtime.GOARCH}
	if err := s.build(ctx, here, filepath.Join(work, "here"), "undersong"); err != nil {
		return err
	}
	for shell, name := range completions {
		text, err := command(ctx, work, nil, filepath.Join(work, "here", "undersong"+suffix(here)), "completion", shell)
		if err != nil {
			return err
		}
		shells.content["completions/"+name] = text
	}

	for _, p := range platforms {
		for _, a := range []struct {
			name     string
			programs []string
			more     *files
		}{
			{"undersong", []string{"undersong", "undersong-hook"}, shells},
			// rebuild is a lead's, with his own rights; an image of one's own needs it, too.
			{"undersong-controller", []string{"undersong-controller"}, newFiles()},
		} {
			if p.os == "windows" && a.name == "undersong-controller" {
				continue // nothing of it was ever tried there
			}
			_, _ = fmt.Fprintf(out, "release: building %s for %s\n", a.name, p)
			dir := filepath.Join(work, p.os, p.arch, a.name)
			if err := s.build(ctx, p, dir, a.programs...); err != nil {
				return err
			}
			name := fmt.Sprintf("%s_%s_%s_%s", a.name, s.tag(), p.os, p.arch)
			all := newFiles()
			for _, from := range []*files{common, a.more} {
				for file, content := range from.content {
					all.content[name+"/"+file] = content
				}
			}
			var binaries []string
			for _, program := range a.programs {
				binary := filepath.Join(dir, program+suffix(p))
				binaries = append(binaries, binary)
				if err := all.add(name+"/"+program+suffix(p), binary, true); err != nil {
					return err
				}
			}
			if all.content[name+"/THIRD-PARTY-LICENSES"], err = s.notices(ctx, binaries...); err != nil {
				return err
			}
			if err := writeArchive(all, s.date, filepath.Join(dist, name), p.os == "windows"); err != nil {
				return err
			}
		}
	}
	return makeChart(s, dist)
}

func suffix(p platform) string {
	if p.os == "windows" {
		return ".exe"
	}
	return ""
}

func writeArchive(f *files, date time.Time, path string, windows bool) error {
	data, err := f.targz(date)
	path += ".tar.gz"
	if windows {
		path = strings.TrimSuffix(path, ".tar.gz") + ".zip"
		data, err = f.zipped(date)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

var appVersion = regexp.MustCompile(`(?m)^appVersion: .*$`)

// makeChart packs the chart, which pulls the image of the same version.
func makeChart(s *source, dist string) error {
	chart := newFiles()
	if err := chart.addTree("undersong", filepath.Join(s.root, "charts", "undersong")); err != nil {
		return err
	}
	about := chart.content["undersong/Chart.yaml"]
	version := regexp.MustCompile(`(?m)^version: (\S+)$`).FindSubmatch(about)
	if version == nil || !appVersion.Match(about) {
		return fmt.Errorf("charts/undersong/Chart.yaml has no version or no appVersion in a line of its own")
	}
	chart.content["undersong/Chart.yaml"] = appVersion.ReplaceAll(about, fmt.Appendf(nil, "appVersion: %q", s.tag()))
	data, err := chart.targz(s.date)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dist, "undersong-"+string(version[1])+".tgz"), data, 0o644)
}

// namespaceOfSignatures keeps a signature of sums from being taken for one of
// something else by the same key.
const namespaceOfSignatures = "undersong-release"

// sums writes SHA256SUMS over all files of the folder, and signs it when there
// is a key: SHA256SUMS.sig, which ssh-keygen -Y verify reads.
func sums(ctx context.Context, dist, key string, out io.Writer) error {
	entries, err := os.ReadDir(dist)
	if err != nil {
		return err
	}
	path := filepath.Join(dist, "SHA256SUMS")
	if err := os.RemoveAll(path + ".sig"); err != nil { // an old one is of other sums
		return err
	}
	var text bytes.Buffer
	for _, entry := range entries {
		if !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), "SHA256SUMS") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dist, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(data), entry.Name())
	}
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "release: %s\n%s", path, text.String())
	if key == "" {
		_, _ = fmt.Fprintln(out, "release: not signed: there is no --sign-key (make release SIGN_KEY=...)")
		return nil
	}
	if _, err := command(ctx, dist, nil, "ssh-keygen", "-Y", "sign", "-n", namespaceOfSignatures, "-f", key, path); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "release: signed: %s.sig\n", path)
	return nil
}
