package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// nobody is the user that images run as, by number: Kubernetes can see of
	// a number, and not of a name, that it is not root.
	nobody = "65532:65532"
	// authorities is where Go looks for certificate authorities first.
	authorities   = "etc/ssl/certs/ca-certificates.crt"
	rootsModule   = "golang.org/x/crypto/x509roots/fallback"
	cyclonedxJSON = "application/vnd.cyclonedx+json"
	nameOfImage   = "io.containerd.image.name"
)

// layout is an OCI image layout in memory.
type layout struct{ files *files }

func newLayout() *layout { return &layout{files: newFiles()} }

// put stores a blob and returns what describes it.
func (l *layout) put(mediaType string, data []byte) v1.Descriptor {
	d := digest.FromBytes(data)
	l.files.content["blobs/sha256/"+d.Encoded()] = data
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

func (l *layout) putJSON(mediaType string, object any) (v1.Descriptor, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return l.put(mediaType, data), nil
}

// layer stores files as a layer and returns also the digest of what is in it.
func (l *layout) layer(f *files, date time.Time) (v1.Descriptor, digest.Digest, error) {
	var plain, packed bytes.Buffer
	if err := f.tarred(&plain, date); err != nil {
		return v1.Descriptor{}, "", err
	}
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return v1.Descriptor{}, "", err
	}
	if _, err := z.Write(plain.Bytes()); err != nil {
		return v1.Descriptor{}, "", err
	}
	if err := z.Close(); err != nil {
		return v1.Descriptor{}, "", err
	}
	return l.put(v1.MediaTypeImageLayerGzip, packed.Bytes()), digest.FromBytes(plain.Bytes()), nil
}

// image stores an image of layers and returns its manifest's descriptor.
func (l *layout) image(p platform, entrypoint string, labels map[string]string, date time.Time, layers ...*files) (v1.Descriptor, error) {
	config := v1.Image{
		Created:  &date,
		Platform: v1.Platform{OS: p.os, Architecture: p.arch},
		Config:   v1.ImageConfig{User: nobody, Entrypoint: []string{entrypoint}, Env: []string{"PATH=/"}, WorkingDir: "/", Labels: labels},
		RootFS:   v1.RootFS{Type: "layers"},
	}
	manifest := v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Annotations: labels}
	for _, f := range layers {
		d, plain, err := l.layer(f, date)
		if err != nil {
			return d, err
		}
		manifest.Layers = append(manifest.Layers, d)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, plain)
		config.History = append(config.History, v1.History{Created: &date, CreatedBy: "hack/tools/release: " + strings.Join(f.names(), " ")})
	}
	var err error
	if manifest.Config, err = l.putJSON(v1.MediaTypeImageConfig, config); err != nil {
		return v1.Descriptor{}, err
	}
	d, err := l.putJSON(v1.MediaTypeImageManifest, manifest)
	d.Platform = &config.Platform
	return d, err
}

// attach stores an artifact that refers to an image. A registry that is given
// both lists it among the image's referrers; whoever runs the image passes it
// by, because its platform is nobody's.
func (l *layout) attach(to v1.Descriptor, mediaType, title string, data []byte) (v1.Descriptor, error) {
	blob := l.put(mediaType, data)
	blob.Annotations = map[string]string{v1.AnnotationTitle: title}
	config := l.put(v1.MediaTypeEmptyJSON, []byte("{}"))
	d, err := l.putJSON(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		ArtifactType: mediaType, Config: config, Layers: []v1.Descriptor{blob},
		Subject: &v1.Descriptor{MediaType: to.MediaType, Digest: to.Digest, Size: to.Size},
	})
	d.ArtifactType = mediaType
	d.Platform = &v1.Platform{OS: "unknown", Architecture: "unknown"}
	return d, err
}

// close makes one of the manifests the layout's only entry, so that no tool has
// to ask which of them is meant.
func (l *layout) close(entry v1.Descriptor, name string) error {
	tag := name[strings.LastIndex(name, ":")+1:]
	entry.Platform = nil
	entry.Annotations = map[string]string{v1.AnnotationRefName: tag, nameOfImage: name}
	top, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{entry}})
	if err != nil {
		return err
	}
	l.files.content[v1.ImageIndexFile] = top
	l.files.content[v1.ImageLayoutFile] = []byte(`{"imageLayoutVersion":"` + v1.ImageLayoutVersion + `"}`)
	return nil
}

// writeArchive writes the layout as one tar, for ctr, skopeo and podman.
func (l *layout) writeArchive(path string, date time.Time) error {
	var data bytes.Buffer
	if err := l.files.tarred(&data, date); err != nil {
		return err
	}
	return os.WriteFile(path, data.Bytes(), 0o644)
}

// writeFolder writes the layout as a folder, for crane.
func (l *layout) writeFolder(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for name, data := range l.files.content {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// makeImage builds the controller and writes its image.
func makeImage(ctx context.Context, s *source, repository string, platforms []platform, dist string, out io.Writer) error {
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "undersong-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // the system's own folder for such files

	const program = "undersong-controller"
	trust, err := trusted()
	if err != nil {
		return err
	}
	labels := map[string]string{
		v1.AnnotationTitle:         program,
		v1.AnnotationDescription:   "The operator of undersong, a team's shared memory for coding agents",
		v1.AnnotationVersion:       s.tag(),
		v1.AnnotationRevision:      s.revision,
		v1.AnnotationCreated:       s.date.Format(time.RFC3339),
		v1.AnnotationSource:        home,
		v1.AnnotationURL:           home,
		v1.AnnotationDocumentation: home + "/blob/main/docs/install.md",
		v1.AnnotationLicenses:      "Apache-2.0",
	}
	l := newLayout()
	index := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Annotations: labels}
	var attached []v1.Descriptor
	for _, p := range platforms {
		_, _ = fmt.Fprintf(out, "image: building for %s\n", p)
		dir := filepath.Join(work, p.os, p.arch)
		if err := s.build(ctx, p, dir, program); err != nil {
			return err
		}
		binary := filepath.Join(dir, program)
		if err := static(binary, p); err != nil {
			return err
		}
		own := newFiles()
		if err := own.add(program, binary, true); err != nil {
			return err
		}
		for name, path := range map[string]string{"LICENSE": "LICENSE"} {
			if err := own.add("licenses/"+name, filepath.Join(s.root, path), false); err != nil {
				return err
			}
		}
		if own.content["licenses/THIRD-PARTY-LICENSES"], err = s.notices(ctx, binary); err != nil {
			return err
		}
		d, err := l.image(p, "/"+program, labels, s.date, trust, own)
		if err != nil {
			return err
		}
		index.Manifests = append(index.Manifests, d)

		bom, err := s.sbom(binary, p, repository, d.Digest.String())
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%s_%s_%s_%s.cdx.json", program, s.tag(), p.os, p.arch)
		if err := os.WriteFile(filepath.Join(dist, name), bom, 0o644); err != nil {
			return err
		}
		a, err := l.attach(d, cyclonedxJSON, name, bom)
		if err != nil {
			return err
		}
		attached = append(attached, a)
	}
	index.Manifests = append(index.Manifests, attached...)
	entry, err := l.putJSON(v1.MediaTypeImageIndex, index)
	if err != nil {
		return err
	}
	name := repository + ":" + s.tag()
	if err := l.close(entry, name); err != nil {
		return err
	}
	archive := filepath.Join(dist, fmt.Sprintf("%s_%s_image.tar", program, s.tag()))
	if err := l.writeArchive(archive, s.date); err != nil {
		return err
	}
	folder := filepath.Join(dist, program+"_image")
	if err := l.writeFolder(folder); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `image: %s
image: digest %s
image: %s    the image as an archive: ctr images import, skopeo copy oci-archive:, podman load
image: %s    the same as a folder: crane push
image: %s    what is in it, for each platform
`, name, entry.Digest, archive, folder, filepath.Join(dist, fmt.Sprintf("%s_%s_*.cdx.json", program, s.tag())))
	return err
}

// trusted are the certificate authorities that Mozilla trusts, of the pinned
// module. An authority that is trusted only
// for some certificates cannot be written so in this file, and is left out.
func trusted() (*files, error) {
	var text bytes.Buffer
	version, err := rootsVersion()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&text, "# The certificate authorities of %s %s.\n", rootsModule, version)
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	f := newFiles()
	f.content[authorities] = text.Bytes()
	return f, nil
}

// rootsVersion is the version of the authorities that are linked here.
func rootsVersion() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, m := range info.Deps {
			if m.Path == rootsModule {
				return m.Version, nil
			}
		}
	}
	return "", fmt.Errorf("this program does not know its version of %s: build it as a module", rootsModule)
}

// static refuses what cannot run where nothing else is.
func static(path string, p platform) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w: images are for linux", path, err)
	}
	defer func() { _ = f.Close() }() // only read
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if f.Machine != machines[p.arch] {
		return fmt.Errorf("%s is for %s, not for %s", path, f.Machine, p.arch)
	}
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is linked dynamically: an image from scratch has no libraries; build it with CGO_ENABLED=0", path)
		}
	}
	return nil
}

// pack writes one binary as an image, for tests that need one of a program that
// is not ours to ship. A dynamic one brings its libraries, which keep their
// places.
func pack(name string, p platform, archive, binary string, libraries ...string) error {
	if len(libraries) == 0 {
		if err := static(binary, p); err != nil {
			return err
		}
	}
	trust, err := trusted()
	if err != nil {
		return err
	}
	own := newFiles()
	program := filepath.Base(binary)
	if err := own.add(program, binary, true); err != nil {
		return err
	}
	for _, library := range libraries {
		if err := own.add(strings.TrimPrefix(library, "/"), library, true); err != nil {
			return err
		}
	}
	date := time.Unix(0, 0).UTC()
	l := newLayout()
	entry, err := l.image(p, "/"+program, nil, date, trust, own)
	if err != nil {
		return err
	}
	if err := l.close(entry, name); err != nil {
		return err
	}
	return l.writeArchive(archive, date)
}

// sum is what a file's bytes are known by.
func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }
