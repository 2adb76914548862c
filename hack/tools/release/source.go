package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	defaultRepository = "ghcr.io/undersong-dev/undersong-controller"
	home              = "https://github.com/undersong-dev/undersong"
)

// source says what is built: everything that goes into the bytes besides the
// files themselves and Go.
type source struct {
	root     string
	version  string
	revision string
	date     time.Time
}

// fill asks git for what was not given.
func (s *source) fill(ctx context.Context, date string) error {
	root, err := filepath.Abs(s.root)
	if err != nil {
		return err
	}
	s.root = root
	if s.version == "" {
		if s.version, err = s.git(ctx, "describe", "--tags", "--match", "v[0-9]*", "--always", "--dirty"); err != nil {
			return fmt.Errorf("%w; outside git give --version, --revision and --date", err)
		}
	}
	if s.revision == "" {
		if s.revision, err = s.git(ctx, "rev-parse", "HEAD"); err != nil {
			return fmt.Errorf("%w; outside git give --revision", err)
		}
	}
	if date == "" {
		if date, err = s.git(ctx, "log", "-1", "--format=%ct"); err != nil {
			return fmt.Errorf("%w; outside git give --date", err)
		}
	}
	seconds, err := strconv.ParseInt(date, 10, 64)
	if err != nil || seconds < 0 {
		return fmt.Errorf("--date or SOURCE_DATE_EPOCH: %q is no number of seconds since 1970", date)
	}
	s.date = time.Unix(seconds, 0).UTC()
	if !tagged.MatchString(s.tag()) {
		return fmt.Errorf("--version: %q does not make a tag of an image", s.version)
	}
	return s.agrees()
}

var (
	tagged  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	release = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)
)

// tag is the version as images, files and charts have it: without the v.
func (s *source) tag() string {
	name := s.version
	if strings.HasPrefix(name, "v") && len(name) > 1 && name[1] >= '0' && name[1] <= '9' {
		name = name[1:]
	}
	return strings.ReplaceAll(name, "+", "_")
}

// agrees stops a release whose chart would pull another image.
func (s *source) agrees() error {
	if !release.MatchString(s.version) {
		return nil
	}
	chart, err := os.ReadFile(filepath.Join(s.root, "charts", "undersong", "Chart.yaml"))
	if err != nil {
		return err
	}
	for _, field := range []string{"version", "appVersion"} {
		if !bytes.Contains(chart, []byte("\n"+field+": "+s.tag()+"\n")) {
			return fmt.Errorf("the version is %s, and %s of charts/undersong/Chart.yaml is not %s: change it, commit and move the tag", s.version, field, s.tag())
		}
	}
	return nil
}

func (s *source) git(ctx context.Context, args ...string) (string, error) {
	out, err := command(ctx, s.root, nil, "git", args...)
	return strings.TrimSpace(string(out)), err
}

// goFlags make the same binary of the same files, wherever they are. What the
// environment says of code generation is not taken over. Go's own stamp of the
// commit is off: what it says depends on how much of the history is there.
var goFlags = []string{
	"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off",
	"GOFLAGS=-trimpath -buildvcs=false", "GOWORK=off",
}

// build builds commands of cmd/ into a folder.
func (s *source) build(ctx context.Context, p platform, dir string, names ...string) error {
	args := []string{"build", "-ldflags", "-s -w -X main.version=" + s.version, "-o", dir + string(filepath.Separator)}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	_, err := command(ctx, s.root, append([]string{"GOOS=" + p.os, "GOARCH=" + p.arch}, goFlags...), "go", args...)
	return err
}

// command runs a program and returns what it prints.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s %s: %w", name, args[0], err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return out, nil
}
