package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/undersong-dev/undersong/test/tools"
)

// startWithin bounds one start. Three seconds are usual; a loaded machine with
// two cores may take a minute.
const startWithin = 3 * time.Minute

// Options say where a cluster lives.
type Options struct {
	// Dir keeps the cluster's data, certificate authority, keys and port, so
	// that a later Start continues it and kubeconfigs stay valid. Empty means
	// a temporary folder that Stop removes, without syncs to disk.
	Dir string
	// Logs takes what the two processes print. Nil means that only the end is
	// kept, for the error of a failed start.
	Logs io.Writer
	// Bare installs nothing of undersong: a chart will.
	Bare bool
}

// Cluster is a running API server.
type Cluster struct {
	dir       string
	temporary bool
	pki       *pki
	admin     *rest.Config
	etcd, api *process
}

// Start starts etcd and kube-apiserver and returns once undersong's CRDs are
// served and its policies refuse, unless nothing was to be installed. The context bounds the start alone; Stop
// ends the cluster.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	// Else controller-runtime complains after half a minute that nobody set it.
	log.SetLogger(logr.Discard())
	etcd, err := tools.Path("etcd")
	if err != nil {
		return nil, err
	}
	apiserver, err := tools.Path("kube-apiserver")
	if err != nil {
		return nil, err
	}
	if o.Logs != nil {
		o.Logs = &shared{w: o.Logs}
	}

	c := &Cluster{dir: o.Dir, temporary: o.Dir == ""}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.temporary {
		if c.dir, err = os.MkdirTemp("", "undersong-kube-"); err != nil {
			return nil, fmt.Errorf("make cluster folder: %w", err)
		}
	} else {
		if c.dir, err = filepath.Abs(o.Dir); err != nil {
			return nil, fmt.Errorf("find cluster folder: %w", err)
		}
		if err = os.MkdirAll(c.dir, 0o700); err != nil {
			return nil, fmt.Errorf("make cluster folder: %w", err)
		}
	}
	if c.pki, err = newPKI(filepath.Join(c.dir, "pki")); err != nil {
		return nil, err
	}
	if err = c.serve(ctx, etcd, apiserver, o.Logs); err != nil {
		return nil, err
	}
	if o.Bare {
		return c, nil
	}
	if err = c.install(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Stop ends both processes and removes a temporary folder. It may be called
// more than once.
func (c *Cluster) Stop() {
	if c.api != nil {
		c.api.kill() // it keeps nothing of its own: what it acknowledged is in etcd
		c.api = nil
	}
	if c.etcd != nil {
		if c.temporary {
			c.etcd.kill()
		} else {
			c.etcd.stop()
		}
		c.etcd = nil
	}
	if c.temporary && c.dir != "" {
		_ = os.RemoveAll(c.dir) // a leftover in the temporary folder harms nobody
	}
}

// serve starts both processes. A free port may be taken by somebody else
// before the child listens on it; then both start again on others.
func (c *Cluster) serve(ctx context.Context, etcd, apiserver string, logs io.Writer) error {
	const tries = 3
	var err error
	for range tries {
		if err = c.tryStart(ctx, etcd, apiserver, logs); err == nil || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
		for _, p := range []*process{c.api, c.etcd} {
			if p != nil {
				p.kill()
			}
		}
		c.api, c.etcd = nil, nil
	}
	return err
}

func (c *Cluster) tryStart(ctx context.Context, etcd, apiserver string, logs io.Writer) error {
	trust, err := c.pki.trust()
	if err != nil {
		return err
	}
	// Before etcd, which waits without a word for a folder that is in use.
	port, err := c.port()
	if err != nil {
		return err
	}
	store, err := freePort()
	if err != nil {
		return err
	}
	storeURL := "https://127.0.0.1:" + store
	args := []string{
		"--data-dir=" + filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=" + storeURL,
		"--advertise-client-urls=" + storeURL,
		"--listen-peer-urls=http://127.0.0.1:0", // there are no peers
		"--client-cert-auth",
		"--trusted-ca-file=" + c.pki.path("ca.crt"),
		"--cert-file=" + c.pki.path("etcd.crt"),
		"--key-file=" + c.pki.path("etcd.key"),
		"--log-level=warn",
	}
	if c.temporary {
		args = append(args, "--unsafe-no-fsync")
	}
	if c.etcd, err = run(etcd, args, logs); err != nil {
		return err
	}
	if err := c.etcd.ready(ctx, storeURL+"/readyz", trust); err != nil {
		return err
	}

	host := "https://127.0.0.1:" + port
	c.api, err = run(apiserver, []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + port,
		"--tls-cert-file=" + c.pki.path("server.crt"),
		"--tls-private-key-file=" + c.pki.path("server.key"),
		"--client-ca-file=" + c.pki.path("ca.crt"),
		"--etcd-servers=" + storeURL,
		"--etcd-cafile=" + c.pki.path("ca.crt"),
		"--etcd-certfile=" + c.pki.path("admin.crt"),
		"--etcd-keyfile=" + c.pki.path("admin.key"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.path("sa.key"),
		"--service-account-signing-key-file=" + c.pki.path("sa.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none", // loopback is no address for a Service
		"--profiling=false",
	}, logs)
	if err != nil {
		return err
	}
	if err := c.api.ready(ctx, host+"/readyz", trust); err != nil {
		return err
	}
	c.admin = &rest.Config{
		Host: host,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.pki.caPEM,
			CertData: c.pki.adminC,
			KeyData:  c.pki.adminK,
		},
		// Tests wait for the server, never for a client's own brake.
		QPS: 1000, Burst: 2000,
	}
	return nil
}

// port returns the port to serve on: the kept one, which kubeconfigs name, or
// a free one.
func (c *Cluster) port() (string, error) {
	if c.temporary {
		return freePort()
	}
	file := filepath.Join(c.dir, "port")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(file, []byte(port), 0o600); err != nil {
			return "", fmt.Errorf("keep port: %w", err)
		}
		return port, nil
	}
	if err != nil {
		return "", fmt.Errorf("read kept port: %w", err)
	}
	port := strings.TrimSpace(string(data))
	if err := free(port); err != nil {
		return "", fmt.Errorf("take port %s, kept in %s: %w: stop what listens there (the same cluster?), or delete the folder to start over", port, c.dir, err)
	}
	return port, nil
}

func free(port string) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)) //nolint:noctx // loopback answers at once
	if err != nil {
		return err
	}
	return listener.Close()
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback answers at once
	if err != nil {
		return "", fmt.Errorf("find free port: %w", err)
	}
	defer func() { _ = listener.Close() }() // nothing was accepted
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return "", errors.New("find free port: not TCP")
	}
	return strconv.Itoa(address.Port), nil
}
