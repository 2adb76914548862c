package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/spool"
	"github.com/undersong-dev/undersong/agent/upload"
	"github.com/undersong-dev/undersong/api/v1alpha1"
)

func (s *System) resetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reset <session id>",
		Short: "Start a session's upload over, from what the cluster has",
		Long: `Forget what this workstation knows of one session, and go on from what the
cluster has: the transcript is read again from its beginning, and the memory
drops what it has already. What was withheld stays so. It is for a session of
which undersong status says that spool and cluster disagree, or that its local
state is damaged.

What was read, not uploaded, and is no longer in the transcript, is lost.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return s.reset(c.Context(), args[0]) },
	}
}

func (s *System) reset(ctx context.Context, id string) error {
	home, err := s.home()
	if err != nil {
		return err
	}
	config, err := note.LoadConfig(home)
	if err != nil {
		return err
	}
	id = strings.ToLower(id)
	entry, uid, err := s.clusterEntry(ctx, config, id)
	if err != nil {
		return err
	}
	if _, err := s.stop(ctx, home); err != nil {
		return err
	}
	held, err := daemon.Hold(ctx, home)
	if err != nil {
		return err
	}
	defer held()
	err = spool.Reset(spool.Options{
		Dir: filepath.Join(home, daemon.SessionsDir), Owner: config.Owner, Workstation: config.Workstation,
	}, id, uid, entry)
	if err != nil {
		return err
	}
	return s.print("Session %s starts over; the next hook starts the daemon.\n", safe(id))
}

// clusterEntry returns this workstation's entry of the Session, nil if there is
// none, and the Session's uid.
func (s *System) clusterEntry(ctx context.Context, config note.Config, id string) (*v1alpha1.Writer, string, error) {
	c, err := s.cluster(config)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := asking(ctx)
	defer cancel()
	live := &v1alpha1.Session{}
	err = c.Get(ctx, kube.Key{Namespace: config.Namespace, Name: v1alpha1.SessionName(id, config.Owner)}, live)
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", explain(err)
	}
	if live.Spec.Owner != config.Owner {
		return nil, "", upload.ErrNameTaken
	}
	for i := range live.Spec.Writers {
		if live.Spec.Writers[i].Workstation == config.Workstation {
			return &live.Spec.Writers[i], string(live.UID), nil
		}
	}
	if config.Workstation == "" {
		return nil, "", fmt.Errorf("reset: %w", errors.New("this workstation is not registered: run undersong init"))
	}
	return nil, string(live.UID), nil
}
