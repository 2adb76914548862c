// Package tools finds the real parts that tests and the demo start:
// kube-apiserver, etcd, kubectl, versitygw. It starts nothing itself.
package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Root returns the folder of this repository.
func Root() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		// Built with -trimpath: fall back to the module the caller stands in.
		out, err := exec.Command("go", "env", "GOMOD").Output() //nolint:noctx // answers at once and reads no network
		if err != nil {
			return "."
		}
		return filepath.Dir(strings.TrimSpace(string(out)))
	}
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Path returns the path of a tool. KUBEBUILDER_ASSETS wins where it has the
// tool; otherwise it is the git-ignored folder that make tools fills.
func Path(name string) (string, error) {
	dirs := []string{filepath.Join(Root(), ".tools", "bin")}
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		dirs = append([]string{assets}, dirs...)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %s in %s: not built yet; run: make tools", name, strings.Join(dirs, ", "))
}

// ReadFile reads a file of this repository that a part is started with, as the
// policies are. Where the go command was told by -overlay in GOFLAGS to take
// another file in its place, that one is read: the go command does so for the
// code alone.
func ReadFile(path string) ([]byte, error) {
	for flag := range strings.FieldsSeq(os.Getenv("GOFLAGS")) {
		overlay, is := strings.CutPrefix(flag, "-overlay=")
		if !is {
			continue
		}
		data, err := os.ReadFile(overlay)
		if err != nil {
			return nil, fmt.Errorf("read the overlay in GOFLAGS: %w", err)
		}
		var files struct{ Replace map[string]string }
		if err := json.Unmarshal(data, &files); err != nil {
			return nil, fmt.Errorf("read the overlay in GOFLAGS: %w", err)
		}
		if other := files.Replace[filepath.Clean(path)]; other != "" {
			path = other
		}
	}
	return os.ReadFile(path)
}
