package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
)

var (
	// ErrKubeconfig: the kubeconfig that init recorded cannot be used.
	ErrKubeconfig = errors.New("the kubeconfig recorded at init cannot be used")
	// ErrOtherServer: it now leads to another API server.
	ErrOtherServer = errors.New("the kubeconfig now names another API server than at init: run undersong init again if that is meant")
)

// LoadREST reads the kubeconfig and context that are pinned, and nothing else:
// no environment variable, no default path, no in-cluster account. Nobody is
// asked for a login.
func LoadREST(kubeconfig, kubeContext string) (*rest.Config, error) {
	if !filepath.IsAbs(kubeconfig) {
		return nil, fmt.Errorf("%w: its path is not absolute", ErrKubeconfig)
	}
	file, err := clientcmd.LoadFromFile(kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no file %s", ErrKubeconfig, kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not a kubeconfig", ErrKubeconfig, kubeconfig) // the cause may quote it
	}
	if kubeContext == "" {
		kubeContext = file.CurrentContext
	}
	if file.Contexts[kubeContext] == nil {
		return nil, fmt.Errorf("%w: it has no context %q", ErrKubeconfig, kubeContext)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*file, kubeContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: context %q is incomplete", ErrKubeconfig, kubeContext)
	}
	if config.ExecProvider != nil {
		config.ExecProvider.InteractiveMode = clientcmdapi.NeverExecInteractiveMode
		config.ExecProvider.StdinUnavailable = true
		config.ExecProvider.StdinUnavailableMessage = "undersong never asks for a login"
	}
	config.UserAgent = "undersong"
	config.WarningHandler = rest.NoWarnings{}
	// A laptop's few calls need no limiter; the default would delay a burst.
	config.QPS = -1
	return config, nil
}

// LoadLogin is LoadREST for a person at a terminal: a credential plugin may ask
// there for a login.
func LoadLogin(kubeconfig, kubeContext string) (*rest.Config, error) {
	config, err := LoadREST(kubeconfig, kubeContext)
	if err == nil && config.ExecProvider != nil {
		config.ExecProvider.InteractiveMode = clientcmdapi.IfAvailableExecInteractiveMode
		config.ExecProvider.StdinUnavailable = false
		config.ExecProvider.StdinUnavailableMessage = ""
	}
	return config, err
}

// pinned is LoadREST for a configuration.
func pinned(c note.Config) (*rest.Config, error) {
	config, err := LoadREST(c.Kubeconfig, c.Context)
	if err != nil {
		return nil, err
	}
	if config.Host != c.Server {
		return nil, ErrOtherServer
	}
	return config, nil
}

// WhoAmI returns the user's name as the API server knows it.
func WhoAmI(ctx context.Context, c *kube.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	review := &authenticationv1.SelfSubjectReview{ObjectMeta: metav1.ObjectMeta{}}
	if err := c.Create(ctx, review, ""); err != nil {
		return "", fmt.Errorf("ask who the user is: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// skewed measures how far the API server's clock is ahead of ours, from the
// Date of its answers.
type skewed struct {
	clock clock.PassiveClock
	next  http.RoundTripper
	skew  *atomic.Int64 // nanoseconds
}

// RoundTrip makes the call and looks at the answer's Date.
func (s skewed) RoundTrip(req *http.Request) (*http.Response, error) {
	began := s.clock.Now()
	resp, err := s.next.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if date, perr := http.ParseTime(resp.Header.Get("Date")); perr == nil {
		// Half the way is a good guess; the Date has whole seconds anyway.
		now := began.Add(s.clock.Since(began) / 2)
		s.skew.Store(int64(date.Sub(now).Truncate(time.Second)))
	}
	return resp, nil
}

// fileStamp tells whether a file was replaced or changed.
type fileStamp struct {
	size int64
	at   time.Time
}

func stampOf(path string) fileStamp {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{size: info.Size(), at: info.ModTime()}
}
