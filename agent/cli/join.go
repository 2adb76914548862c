package cli

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/note"
)

// maxJoin bounds a join file.
const maxJoin = 256 << 10

// joinFile is what a platform team hands out. It holds no secret: who the user
// is, his own kubeconfig says.
type joinFile struct {
	Server    string `json:"server"`
	CAData    string `json:"caData"` // PEM, or PEM in base64
	Namespace string `json:"namespace"`
	Memory    string `json:"memory"`
	StoreHost string `json:"storeHost"`
}

// target returns what the flags and files name, without asking the cluster.
func (s *System) target(f initFlags) (note.Config, error) {
	path, err := s.kubeconfigPath(f.kubeconfig)
	if err != nil {
		return note.Config{}, err
	}
	file, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return note.Config{}, fmt.Errorf("there is no kubeconfig at %s: log in to your cluster first, or name one with --kubeconfig", path)
	}
	if err != nil {
		return note.Config{}, fmt.Errorf("%s is not a kubeconfig", path) // the cause may quote it
	}
	if f.join != "" {
		return joined(f.join, path, file)
	}
	c := note.Config{Kubeconfig: path, Context: f.context, Namespace: f.namespace, Memory: f.memory}
	if c.Context == "" {
		c.Context = file.CurrentContext
	}
	named := file.Contexts[c.Context]
	if named == nil {
		return note.Config{}, fmt.Errorf("%s has no context %q: name one with --context", path, safe(c.Context))
	}
	if c.Namespace == "" {
		c.Namespace = named.Namespace
	}
	if c.Namespace == "" {
		return note.Config{}, errors.New("which namespace is your team's? Name it with --namespace")
	}
	return c, nil
}

// kubeconfigPath returns the absolute path of the kubeconfig to pin.
func (s *System) kubeconfigPath(flag string) (string, error) {
	if flag != "" {
		return filepath.Abs(flag)
	}
	for _, path := range filepath.SplitList(s.Getenv("KUBECONFIG")) {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			return filepath.Abs(path)
		}
	}
	home, err := s.UserHome()
	if err != nil {
		return "", fmt.Errorf("find the user's folder: %w", err)
	}
	return filepath.Join(home, ".kube", "config"), nil
}

// joined finds the user's own context for the cluster that a join file names.
func joined(name, path string, file *clientcmdapi.Config) (note.Config, error) {
	data, err := durable.ReadFile(name, maxJoin)
	if err != nil {
		return note.Config{}, fmt.Errorf("read the join file: %w", err)
	}
	var j joinFile
	if err := yaml.UnmarshalStrict(data, &j); err != nil {
		return note.Config{}, fmt.Errorf("%s is not a join file", name)
	}
	if j.Server == "" || j.Namespace == "" || j.Memory == "" {
		return note.Config{}, fmt.Errorf("%s names no server, namespace or memory", name)
	}
	context, err := contextFor(file, j)
	if err != nil {
		return note.Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return note.Config{
		Kubeconfig: path, Context: context, Server: j.Server, Namespace: j.Namespace, Memory: j.Memory,
		StoreHost: strings.TrimSuffix(j.StoreHost, "/"),
	}, nil
}

// contextFor returns the context that leads to a join file's cluster: the
// current one if it does, else the first by name. A cluster of that address
// with another authority is another cluster.
func contextFor(file *clientcmdapi.Config, j joinFile) (string, error) {
	var names []string
	for name, context := range file.Contexts {
		cluster := file.Clusters[context.Cluster]
		if cluster != nil && cluster.Server == j.Server && sameAuthority(cluster, j.CAData) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("no context leads to %s with the join file's certificate authority: log in to that cluster first, or name another file with --kubeconfig", safe(j.Server))
	}
	if slices.Contains(names, file.CurrentContext) {
		return file.CurrentContext, nil
	}
	return slices.Min(names), nil
}

// sameAuthority compares the certificate authority, where the join file has
// one.
func sameAuthority(cluster *clientcmdapi.Cluster, caData string) bool {
	if caData == "" {
		return true
	}
	theirs := cluster.CertificateAuthorityData
	if len(theirs) == 0 && cluster.CertificateAuthority != "" {
		theirs, _ = durable.ReadFile(cluster.CertificateAuthority, maxJoin) // unreadable: not the same
	}
	ours := []byte(caData)
	if decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(caData)); err == nil {
		ours = decoded
	}
	return bytes.Equal(bytes.TrimSpace(theirs), bytes.TrimSpace(ours))
}
