// Command release makes what people get of undersong without a Docker engine
// and without a registry: the controller's image, and archives for the
// workstations.
//
//	release image     an OCI layout and the same as one archive, and an SBOM for each platform
//	release archives  tar.gz and zip for each system, the chart, and SHA256SUMS
//	release pack      one binary as an image, for tests
//
// The same commit, version and Go make the same bytes, on any machine and in
// any folder: nothing of the clock, the user, the umask or the path goes in.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run is the command line.
func run(ctx context.Context, args []string, out io.Writer) error {
	const usage = "give image, archives or pack; each has --help"
	if len(args) == 0 {
		return errors.New(usage)
	}
	fs := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	s := source{}
	fs.StringVar(&s.root, "root", "../../..", "the repository")
	fs.StringVar(&s.version, "version", "", "what it is called, v1.2.3; empty asks git describe")
	fs.StringVar(&s.revision, "revision", "", "the commit; empty asks git")
	date := fs.String("date", os.Getenv("SOURCE_DATE_EPOCH"), "the time of all files, in seconds since 1970; empty is the commit's")
	dist := fs.String("out", "", "the folder to write into; empty means dist/ of the repository")

	switch args[0] {
	case "image":
		repository := fs.String("name", defaultRepository, "the image's name without a tag")
		platforms := fs.String("platforms", "linux/amd64,linux/arm64", "what to build for, with commas between")
		if err := fs.Parse(args[1:]); err != nil {
			return err
		}
		if err := s.fill(ctx, *date); err != nil {
			return err
		}
		list, err := parsePlatforms(*platforms)
		if err != nil {
			return err
		}
		return makeImage(ctx, &s, *repository, list, s.folder(*dist), out)
	case "archives":
		platforms := fs.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "what to build for, with commas between")
		key := fs.String("sign-key", "", "an SSH key, or its public half when an agent has it, that signs SHA256SUMS; empty signs nothing")
		if err := fs.Parse(args[1:]); err != nil {
			return err
		}
		if err := s.fill(ctx, *date); err != nil {
			return err
		}
		list, err := parsePlatforms(*platforms)
		if err != nil {
			return err
		}
		dir := s.folder(*dist)
		if err := makeArchives(ctx, &s, list, dir, out); err != nil {
			return err
		}
		return sums(ctx, dir, *key, out)
	case "pack":
		name := fs.String("name", "", "the image's name with its tag")
		platform := fs.String("platform", "linux/amd64", "what the binary is built for")
		if err := fs.Parse(args[1:]); err != nil {
			return err
		}
		if *name == "" || *dist == "" || fs.NArg() == 0 {
			return errors.New("pack: give --name REPOSITORY:TAG, --out ARCHIVE, the binary, and the libraries that it needs, if any")
		}
		list, err := parsePlatforms(*platform)
		if err != nil {
			return err
		}
		return pack(*name, list[0], *dist, fs.Arg(0), fs.Args()[1:]...)
	default:
		return fmt.Errorf("%q is unknown: %s", args[0], usage)
	}
}

// folder is where to write.
func (s *source) folder(dist string) string {
	if dist == "" {
		return filepath.Join(s.root, "dist")
	}
	return dist
}

// platform is a system and an architecture, in Go's words, which are OCI's.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

func parsePlatforms(list string) ([]platform, error) {
	var platforms []platform
	for name := range strings.SplitSeq(list, ",") {
		system, arch, ok := strings.Cut(name, "/")
		if !ok || system == "" || arch == "" {
			return nil, fmt.Errorf("%q is no platform: give for example linux/arm64", name)
		}
		platforms = append(platforms, platform{system, arch})
	}
	return platforms, nil
}
