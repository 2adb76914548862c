package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var product = flag.Bool("product", false, "build undersong itself, twice, and not a small program in its place: minutes")

const repository = "/../../.."

// tree makes a repository that is small and has what a release needs. With
// -product it is a copy of this one, as git has it.
func tree(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "some", "where")
	here, err := os.Getwd()
	must(t, err)
	must(t, os.MkdirAll(root, 0o755))
	if *product {
		list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
		list.Dir = here + repository
		out, err := list.Output()
		must(t, err)
		for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			data, err := os.ReadFile(filepath.Join(here+repository, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed, and not yet committed
			}
			must(t, err)
			write(t, filepath.Join(root, name), string(data))
		}
		return root
	}
	const program = `package main

import ("fmt"; "os")

var version = "dev"

func main() {
	if len(os.Args) == 3 && os.Args[1] == "completion" { fmt.Println("# for", os.Args[2]); return }
	fmt.Println(version)
}
`
	for name, text := range map[string]string{
		"go.mod": "module example.test/small\n\ngo 1.26.0\n", "LICENSE": "yours", "README.md": "# Small\n[a](docs/a.md#b) [c](https://example.com/c) [d](#small)\n",
		"cmd/undersong/main.go": program, "cmd/undersong-hook/main.go": program, "cmd/undersong-controller/main.go": program,
		"plugin/README.md": "# Plugin\n", "charts/undersong/values.yaml": "{}\n", "charts/undersong/.helmignore": "",
		"charts/undersong/Chart.yaml": "name: undersong\nversion: 1.2.3\nappVersion: 1.2.3\n",
	} {
		write(t, filepath.Join(root, name), text)
	}
	must(t, os.MkdirAll(filepath.Join(root, "hack", "tools"), 0o755))
	must(t, os.Symlink(here, filepath.Join(root, "hack", "tools", "release")))
	return root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

const (
	wantVersion  = "v1.2.3-rc.1+7"
	wantTag      = "1.2.3-rc.1_7"
	wantRevision = "0123456789abcdef0123456789abcdef01234567"
	wantDate     = "2026-01-02T03:04:05Z"
)

// produce runs the command line in a repository of its own.
func produce(t *testing.T, args ...string) (root, dist string) {
	t.Helper()
	root = tree(t)
	dist = filepath.Join(root, "dist")
	date, err := time.Parse(time.RFC3339, wantDate)
	must(t, err)
	var out bytes.Buffer
	if err := run(t.Context(), append(args, "-root", root, "-version", wantVersion, "-revision", wantRevision, "-date", fmt.Sprint(date.Unix())), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Logf("%s", out.String())
	return root, dist
}

// digests are the sums of all files below a folder.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir)] = fmt.Sprintf("%x", sha256.Sum256(data))
		return err
	}))
	if len(all) == 0 {
		t.Fatalf("%s is empty", dir)
	}
	return all
}

// elsewhere changes what must not matter: umask, time zone and user's settings
// of Go.
func elsewhere(t *testing.T) {
	t.Helper()
	old := syscall.Umask(0o077)
	t.Cleanup(func() { syscall.Umask(old) })
	t.Setenv("TZ", "Pacific/Auckland")
	t.Setenv("GOAMD64", "v2")
	t.Setenv("GOFLAGS", "-buildvcs=auto")
	t.Setenv("USER", "somebody")
}

// TestTheSameSourceMakesTheSameBytes is what lets a stranger check that an
// image or an archive is of the commit that it names.
func TestTheSameSourceMakesTheSameBytes(t *testing.T) {
	platforms := "linux/amd64,windows/amd64"
	if *product {
		platforms = runtime.GOOS + "/" + runtime.GOARCH
	}
	images, archives := []string{"image"}, []string{"archives", "-platforms", platforms}
	if *product {
		images = append(images, "-platforms", "linux/"+runtime.GOARCH)
	}
	_, firstImage := produce(t, images...)
	_, firstArchives := produce(t, archives...)
	elsewhere(t)
	_, secondImage := produce(t, images...)
	_, secondArchives := produce(t, archives...)
	if diff := cmp.Diff(digests(t, firstImage), digests(t, secondImage)); diff != "" {
		t.Errorf("two images of the same source differ (-one +other):\n%s", diff)
	}
	if diff := cmp.Diff(digests(t, firstArchives), digests(t, secondArchives)); diff != "" {
		t.Errorf("two releases of the same source differ (-one +other):\n%s", diff)
	}
}

// TestImage pushes the image to a registry, as crane does, and looks at what
// comes back for each platform.
func TestImage(t *testing.T) {
	args := []string{"image"}
	arches := []string{"amd64", "arm64"}
	if *product {
		args, arches = append(args, "-platforms", "linux/"+runtime.GOARCH), []string{runtime.GOARCH}
	}
	root, dist := produce(t, args...)
	path, err := ocilayout.FromPath(filepath.Join(dist, "undersong-controller_image"))
	must(t, err)
	top, err := path.ImageIndex()
	must(t, err)
	manifest, err := top.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %d entries; want one, or tools ask which", len(manifest.Manifests))
	}
	if got, want := manifest.Manifests[0].Annotations, map[string]string{"org.opencontainers.image.ref.name": wantTag, "io.containerd.image.name": defaultRepository + ":" + wantTag}; !cmp.Equal(got, want) {
		t.Errorf("the entry's names:\n%s", cmp.Diff(want, got))
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)

	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	t.Cleanup(server.Close)
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/undersong-controller:" + wantTag)
	must(t, err)
	must(t, remote.WriteIndex(ref, index))

	for _, arch := range arches {
		img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		must(t, err)
		if err := validate.Image(img); err != nil {
			t.Errorf("%s: %v", arch, err)
		}
		config, err := img.ConfigFile()
		must(t, err)
		if config.Architecture != arch || config.OS != "linux" {
			t.Errorf("asked for %s, got %s/%s", arch, config.OS, config.Architecture)
		}
		if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/undersong-controller"}) {
			t.Errorf("%s: runs %v as %q", arch, config.Config.Entrypoint, config.Config.User)
		}
		for label, want := range map[string]string{
			"version": wantTag, "revision": wantRevision, "source": home, "created": wantDate, "licenses": "Apache-2.0",
		} {
			if got := config.Config.Labels["org.opencontainers.image."+label]; got != want {
				t.Errorf("%s: label %s is %q, want %q", arch, label, got, want)
			}
		}
		binary := inside(t, root, img, arch)
		referrer(t, ref, img, arch, binary)
	}
}

// inside checks the files of an image and returns the binary.
func inside(t *testing.T, root string, img v1.Image, arch string) []byte {
	t.Helper()
	flat := mutate.Extract(img)
	defer func() { _ = flat.Close() }()
	found := unpack(t, flat)
	var names []string
	for name, f := range found {
		if f.folder {
			continue
		}
		names = append(names, name)
		if f.mode&0o022 != 0 {
			t.Errorf("%s: others may write %s", arch, name)
		}
	}
	slices.Sort(names)
	want := []string{"etc/ssl/certs/ca-certificates.crt", "licenses/LICENSE", "licenses/THIRD-PARTY-LICENSES", "undersong-controller"}
	if !slices.Equal(names, want) {
		t.Errorf("%s: has the files %v; want %v and nothing else", arch, names, want)
	}
	pool := x509.NewCertPool()
	if n := bytes.Count(found[authorities].data, []byte("BEGIN CERTIFICATE")); n < 50 || !pool.AppendCertsFromPEM(found[authorities].data) {
		t.Errorf("%s: %d certificate authorities; want those of the web", arch, n)
	}
	program := found["undersong-controller"]
	if program.mode != 0o755 {
		t.Errorf("%s: the program's mode is %o", arch, program.mode)
	}
	path := filepath.Join(t.TempDir(), "undersong-controller")
	must(t, os.WriteFile(path, program.data, 0o700))
	must(t, static(path, platform{"linux", arch}))
	if arch == runtime.GOARCH && runtime.GOOS == "linux" {
		// Nothing of the system is there, as in the image.
		cmd := exec.CommandContext(t.Context(), path, "--version")
		cmd.Env = []string{}
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != wantVersion {
			t.Errorf("its version is %q, %v; want %s", out, err, wantVersion)
		}
	}
	if bytes.Contains(program.data, []byte(root)) {
		t.Errorf("%s: the program has the path of its source in it", arch)
	}
	return program.data
}

// referrer checks the SBOM that a registry has of an image.
func referrer(t *testing.T, ref name.Reference, img v1.Image, arch string, binary []byte) {
	t.Helper()
	digest, err := img.Digest()
	must(t, err)
	list, err := remote.Referrers(ref.Context().Digest(digest.String()))
	must(t, err)
	manifest, err := list.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) != 1 {
		t.Fatalf("%s: the registry lists the referrers %v; want one SBOM", arch, manifest.Manifests)
	}
	artifact, err := remote.Image(ref.Context().Digest(manifest.Manifests[0].Digest.String()))
	must(t, err)
	about, err := artifact.Manifest()
	must(t, err)
	if about.ArtifactType != cyclonedxJSON || about.Subject.Digest != digest {
		t.Fatalf("%s: the referrer is %q of %v", arch, about.ArtifactType, about.Subject)
	}
	layers, err := artifact.Layers()
	must(t, err)
	text, err := layers[0].Compressed()
	must(t, err)
	defer func() { _ = text.Close() }()
	var bom cyclonedx.BOM
	must(t, cyclonedx.NewBOMDecoder(text, cyclonedx.BOMFileFormatJSON).Decode(&bom))
	if bom.SpecVersion != cyclonedx.SpecVersion1_6 {
		t.Errorf("%s: the SBOM is CycloneDX %s; scanners read 1.6", arch, bom.SpecVersion)
	}
	path := filepath.Join(t.TempDir(), "binary")
	must(t, os.WriteFile(path, binary, 0o600))
	info, err := buildinfo.ReadFile(path)
	must(t, err)
	named := map[string]string{}
	for _, c := range *bom.Components {
		named[c.Name] = c.Version
		if c.BOMRef == "binary" && (*c.Hashes)[0].Value != sum(binary) {
			t.Errorf("%s: the SBOM is of another binary", arch)
		}
	}
	if named["std"] != strings.TrimPrefix(info.GoVersion, "go") || named[rootsModule] == "" {
		t.Errorf("%s: the SBOM does not name Go or the authorities: %v", arch, named)
	}
	for _, m := range info.Deps {
		if named[m.Path] != m.Version {
			t.Errorf("%s: the SBOM has %s %q; linked is %s", arch, m.Path, named[m.Path], m.Version)
		}
	}
}

type file struct {
	data   []byte
	mode   int64
	folder bool
}

func unpack(t *testing.T, r io.Reader) map[string]file {
	t.Helper()
	found := map[string]file{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		must(t, err)
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" {
			t.Errorf("%s belongs to %d:%d %s; want nobody of this machine", header.Name, header.Uid, header.Gid, header.Uname)
		}
		data, err := io.ReadAll(archive)
		must(t, err)
		found[strings.TrimSuffix(header.Name, "/")] = file{data: data, mode: header.Mode, folder: header.Typeflag == tar.TypeDir}
	}
}

// TestArchives unpacks what a developer downloads, and runs it.
func TestArchives(t *testing.T) {
	here := runtime.GOOS + "/" + runtime.GOARCH
	platforms := []string{here}
	if !*product {
		platforms = append(platforms, "windows/amd64")
	}
	_, dist := produce(t, "archives", "-platforms", strings.Join(platforms, ","))

	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dist
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("the sums: %v\n%s", err, out)
	}
	listed, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	must(t, err)
	entries, err := os.ReadDir(dist)
	must(t, err)
	if lines := bytes.Count(listed, []byte("\n")); lines != len(entries)-1 {
		t.Errorf("SHA256SUMS has %d files of %d", lines, len(entries)-1)
	}

	top := fmt.Sprintf("undersong_%s_%s_%s", wantTag, runtime.GOOS, runtime.GOARCH)
	found := untar(t, filepath.Join(dist, top+".tar.gz"))
	for _, name := range []string{
		"LICENSE", "README.md", "THIRD-PARTY-LICENSES", "undersong", "undersong-hook", "plugin/README.md",
		"completions/undersong.bash", "completions/_undersong", "completions/undersong.fish", "completions/undersong.ps1",
	} {
		if len(found[top+"/"+name].data) == 0 {
			t.Errorf("%s lacks %s", top, name)
		}
	}
	if readme := string(found[top+"/README.md"].data); strings.Contains(readme, "](docs/") || !*product &&
		!strings.HasSuffix(readme, "[a](https://github.com/undersong-dev/undersong/blob/"+wantRevision+"/docs/a.md#b) [c](https://example.com/c) [d](#small)\n") {
		t.Errorf("the README's links lead nowhere: %s", readme)
	}
	if !bytes.Contains(found[top+"/THIRD-PARTY-LICENSES"].data, []byte("The Go Authors")) {
		t.Error("the license of Go is missing")
	}
	for name, args := range map[string][]string{"undersong": {"version"}, "undersong-hook": {"--version"}} {
		runs(t, found[top+"/"+name], args)
	}
	controller := fmt.Sprintf("undersong-controller_%s_%s_%s", wantTag, runtime.GOOS, runtime.GOARCH)
	runs(t, untar(t, filepath.Join(dist, controller+".tar.gz"))[controller+"/undersong-controller"], []string{"--version"})

	if !*product {
		windows(t, dist)
	}
	chart := untar(t, chartIn(t, dist))
	if !bytes.Contains(chart["undersong/Chart.yaml"].data, []byte("appVersion: \""+wantTag+"\"\n")) {
		t.Errorf("the chart does not pull the image of this version:\n%s", chart["undersong/Chart.yaml"].data)
	}
}

func chartIn(t *testing.T, dist string) string {
	t.Helper()
	charts, err := filepath.Glob(filepath.Join(dist, "undersong-[0-9]*.tgz"))
	must(t, err)
	if len(charts) != 1 {
		t.Fatalf("charts: %v; want one", charts)
	}
	return charts[0]
}

func windows(t *testing.T, dist string) {
	t.Helper()
	top := "undersong_" + wantTag + "_windows_amd64"
	z, err := zip.OpenReader(filepath.Join(dist, top+".zip"))
	must(t, err)
	defer func() { _ = z.Close() }()
	for _, name := range []string{"undersong.exe", "undersong-hook.exe", "completions/undersong.ps1"} {
		if f, err := z.Open(top + "/" + name); err != nil {
			t.Errorf("%s: %v", top, err)
		} else {
			_ = f.Close()
		}
	}
}

func untar(t *testing.T, path string) map[string]file {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	z, err := gzip.NewReader(bytes.NewReader(data))
	must(t, err)
	return unpack(t, z)
}

// runs checks a program by what it says and by what Go wrote into it.
func runs(t *testing.T, program file, args []string) {
	t.Helper()
	if program.mode != 0o755 {
		t.Errorf("the program's mode is %o", program.mode)
	}
	path := filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(path, program.data, 0o700))
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), wantVersion) {
		t.Errorf("its version is %q, %v; want %s", out, err, wantVersion)
	}
	info, err := buildinfo.ReadFile(path)
	must(t, err)
	for _, s := range info.Settings {
		want, ok := map[string]string{"-trimpath": "true", "CGO_ENABLED": "0", "GOAMD64": "v1", "GOARM64": "v8.0"}[s.Key]
		if ok && s.Value != want {
			t.Errorf("%s was built with %s=%s; want %s", info.Path, s.Key, s.Value, want)
		}
	}
}

// TestSignature: what is signed is checked by what every developer has, and a
// changed archive is noticed.
func TestSignature(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("no ssh-keygen here")
	}
	home := t.TempDir()
	key := filepath.Join(home, "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("make a key: %v: %s", err, out)
	}
	public, err := os.ReadFile(key + ".pub")
	must(t, err)
	signers := filepath.Join(home, "signers")
	write(t, signers, "releases@example.test "+string(public))
	dist := filepath.Join(home, "dist")
	write(t, filepath.Join(dist, "one.tar.gz"), "one")
	must(t, sums(t.Context(), dist, key, io.Discard))

	verify := func() error {
		text, err := os.Open(filepath.Join(dist, "SHA256SUMS"))
		must(t, err)
		defer func() { _ = text.Close() }()
		cmd := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", signers, "-I", "releases@example.test", "-n", "undersong-release", "-s", filepath.Join(dist, "SHA256SUMS.sig"))
		cmd.Stdin = text
		return cmd.Run()
	}
	must(t, verify())
	write(t, filepath.Join(dist, "one.tar.gz"), "other")
	must(t, sums(t.Context(), dist, "", io.Discard))
	if _, err := os.Stat(filepath.Join(dist, "SHA256SUMS.sig")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a signature of other sums is left")
	}
	must(t, sums(t.Context(), dist, key, io.Discard))
	listed, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	must(t, err)
	write(t, filepath.Join(dist, "SHA256SUMS"), strings.Replace(string(listed), "one", "two", 1))
	if verify() == nil {
		t.Error("changed sums pass for signed ones")
	}
}

// TestWrongWords: what cannot become a release says so before anything is built.
func TestWrongWords(t *testing.T) {
	root := tree(t)
	for reason, c := range map[string]struct {
		args []string
		want string
	}{
		"no command":          {nil, "give image, archives or pack"},
		"a version":           {[]string{"image", "-version", "v1 2", "-revision", "x", "-date", "1"}, "does not make a tag"},
		"a time":              {[]string{"image", "-version", "v1", "-revision", "x", "-date", "yesterday"}, "no number of seconds"},
		"a platform":          {[]string{"image", "-version", "v1", "-revision", "x", "-date", "1", "-platforms", "linux"}, "no platform"},
		"a chart left behind": {[]string{"archives", "-version", "v9.9.9", "-revision", "x", "-date", "1"}, "Chart.yaml is not 9.9.9"},
		"no git":              {[]string{"image"}, "outside git give --version"},
	} {
		args := c.args
		if len(args) > 0 {
			args = append(args, "-root", root)
		}
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want %q", reason, err, c.want)
		}
	}
}

// TestDynamicIsRefused: a binary that needs a loader would never start.
func TestDynamicIsRefused(t *testing.T) {
	dynamic := ""
	for _, path := range []string{"/bin/sh", "/usr/bin/env"} {
		if _, err := os.Stat(path); err == nil {
			dynamic = path
		}
	}
	if dynamic == "" || runtime.GOOS != "linux" {
		t.Skip("no dynamic binary here")
	}
	if err := static(dynamic, platform{"linux", runtime.GOARCH}); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("got %v; want it refused", err)
	}
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	if err := static(dynamic, platform{"linux", other}); err == nil || !strings.Contains(err.Error(), "not for "+other) {
		t.Errorf("got %v; want it refused", err)
	}
}

// TestTheChartPullsThisImage: the name is written in two places.
func TestTheChartPullsThisImage(t *testing.T) {
	values, err := os.ReadFile(filepath.Join(".", repository, "charts", "undersong", "values.yaml"))
	must(t, err)
	if !bytes.Contains(values, []byte("\n  repository: "+defaultRepository+"\n")) {
		t.Errorf("the chart's image.repository is not %s", defaultRepository)
	}
}

// TestPack: an image of any static program, for tests.
func TestPack(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "main.go"), "package main\n\nfunc main() {}\n")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "small", "main.go")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	archive := filepath.Join(dir, "small.tar")
	must(t, run(t.Context(), []string{"pack", "-name", "example.test/small:1", "-platform", "linux/arm64", "-out", archive, filepath.Join(dir, "small")}, io.Discard))
	f, err := os.Open(archive)
	must(t, err)
	defer func() { _ = f.Close() }()
	found := unpack(t, f)
	var index v1.IndexManifest
	must(t, json.Unmarshal(found["index.json"].data, &index))
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations[nameOfImage] != "example.test/small:1" {
		t.Errorf("the entries are %v", index.Manifests)
	}
}
