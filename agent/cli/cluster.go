package cli

import (
	"context"
	"time"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
)

// askWithin bounds what a command asks of the cluster.
const askWithin = 30 * time.Second

// cluster returns a client for the cluster that the configuration pins, with
// the user's own rights. Nothing is asked yet.
func (s *System) cluster(config note.Config) (*kube.Client, error) {
	rest, err := daemon.LoadREST(config.Kubeconfig, config.Context)
	if err != nil {
		return nil, explain(err)
	}
	if rest.Host != config.Server {
		return nil, daemon.ErrOtherServer
	}
	return kube.New(rest)
}

// configured returns the configuration and a client for its cluster.
func (s *System) configured() (note.Config, *kube.Client, error) {
	home, err := s.home()
	if err != nil {
		return note.Config{}, nil, err
	}
	config, err := note.LoadConfig(home)
	if err != nil {
		return note.Config{}, nil, err
	}
	c, err := s.cluster(config)
	return config, c, err
}

// asking bounds a context for one question.
func asking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, askWithin)
}
