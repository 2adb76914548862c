package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// sbom says what a binary is made of, by what Go wrote into the binary itself,
// as CycloneDX. Versions are those that were linked, not those that go.mod
// allows; sums are those of go.sum.
func (s *source) sbom(binary string, p platform, repository, image string) ([]byte, error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read what %s is made of: %w", binary, err)
	}
	version, err := rootsVersion()
	if err != nil {
		return nil, err
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	main := cyclonedx.Component{
		BOMRef: "image", Type: cyclonedx.ComponentTypeContainer, Name: repository, Version: s.tag(),
		PackageURL: fmt.Sprintf("pkg:oci/%s@%s?repository_url=%s&tag=%s&arch=%s", filepath.Base(repository), strings.ReplaceAll(image, ":", "%3A"), repository, s.tag(), p.arch),
		Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}
	controller := cyclonedx.Component{
		BOMRef: "binary", Type: cyclonedx.ComponentTypeApplication, Name: info.Path, Version: s.tag(),
		PackageURL: fmt.Sprintf("pkg:golang/%s@%s#%s", info.Main.Path, s.version, strings.TrimPrefix(info.Path, info.Main.Path+"/")),
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: sum(data)}},
		Properties: &[]cyclonedx.Property{{Name: "vcs.revision", Value: s.revision}, {Name: "platform", Value: p.String()}},
	}
	components := []cyclonedx.Component{controller, {
		BOMRef: "roots", Type: cyclonedx.ComponentTypeData, Name: rootsModule, Version: version,
		PackageURL: "pkg:golang/" + rootsModule + "@" + version, Description: "the certificate authorities in /" + authorities,
	}, {
		BOMRef: "std", Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: goVersion, PackageURL: "pkg:golang/std@" + goVersion,
	}}
	under := []string{"std"}
	for _, m := range info.Deps {
		for m.Replace != nil {
			m = m.Replace
		}
		c := cyclonedx.Component{
			BOMRef: m.Path, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
			PackageURL: "pkg:golang/" + m.Path + "@" + m.Version,
		}
		if m.Sum != "" {
			c.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: m.Sum}}
		}
		components = append(components, c)
		under = append(under, m.Path)
	}
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceOID, []byte(image)).String()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: s.date.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{
		{Ref: "image", Dependencies: &[]string{"binary", "roots"}},
		{Ref: "binary", Dependencies: &under},
	}
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// notices are the licenses of everything that is linked into binaries: whoever
// hands out a binary hands out those, too.
func (s *source) notices(ctx context.Context, binaries ...string) ([]byte, error) {
	linked := map[string]bool{}
	for _, binary := range binaries {
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return nil, fmt.Errorf("read what %s is made of: %w", binary, err)
		}
		for _, m := range info.Deps {
			linked[m.Path] = true
		}
	}
	modules, err := s.modules(ctx)
	if err != nil {
		return nil, err
	}
	version, err := rootsVersion()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "What is linked into this program besides undersong itself, and its licenses.\n")
	write := func(name, dir string) error {
		found, err := licenses(dir)
		if err != nil {
			return fmt.Errorf("find the license of %s: %w", name, err)
		}
		for _, file := range slices.Sorted(maps.Keys(found)) {
			fmt.Fprintf(&text, "\n%s\n%s: %s\n%s\n\n%s\n", strings.Repeat("=", 72), name, file, strings.Repeat("=", 72), bytes.TrimSpace(found[file]))
		}
		return nil
	}
	if err := write("Go "+runtime.Version(), goRoot(ctx, s.root)); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(linked)) {
		m, ok := modules[name]
		if !ok || m.Dir == "" {
			return nil, fmt.Errorf("find the license of %s: the module cache does not have it: run go mod download", name)
		}
		if err := write(name+" "+m.Version, m.Dir); err != nil {
			return nil, err
		}
	}
	roots, err := command(ctx, filepath.Join(s.root, "hack", "tools", "release"), goFlags, "go", "list", "-m", "-f", "{{.Dir}}", rootsModule)
	if err != nil {
		return nil, err
	}
	if err := write(rootsModule+" "+version+" (its data in an image)", strings.TrimSpace(string(roots))); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

type module struct{ Path, Version, Dir string }

// modules are those that the product's go.mod selects, with their folders.
func (s *source) modules(ctx context.Context) (map[string]module, error) {
	out, err := command(ctx, s.root, goFlags, "go", "list", "-m", "-json=Path,Version,Dir", "all")
	if err != nil {
		return nil, err
	}
	all := map[string]module{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var m module
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[m.Path] = m
	}
}

func goRoot(ctx context.Context, dir string) string {
	out, err := command(ctx, dir, nil, "go", "env", "GOROOT")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// licenses are the files of a module that must go along with it.
func licenses(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	for _, entry := range entries {
		name := strings.ToUpper(entry.Name())
		if !entry.Type().IsRegular() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		if found[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, errors.New("it has none")
	}
	return found, nil
}
