package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/upload"
)

func (s *System) loginCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "login",
		Short: "Renew your login to the cluster, when status says it has expired",
		Long: `Ask the cluster who you are, and let the credential plugin of your kubeconfig ask
you for a login if it must. undersong keeps no login of its own: it uses what
kubectl uses, and the daemon, which never asks anybody, goes on with what the
plugin then has.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.login(c.Context()) },
	}
}

func (s *System) login(ctx context.Context) error {
	home, err := s.home()
	if err != nil {
		return err
	}
	config, err := note.LoadConfig(home)
	if err != nil {
		return err
	}
	rest, err := daemon.LoadLogin(config.Kubeconfig, config.Context)
	if err != nil {
		return explain(err)
	}
	if rest.Host != config.Server {
		return daemon.ErrOtherServer
	}
	c, err := kube.New(rest)
	if err != nil {
		return err
	}
	who, err := daemon.WhoAmI(ctx, c)
	switch {
	case upload.LoginNeeded(err):
		return fmt.Errorf("the login is not good: log in as you do for kubectl (kubectl --kubeconfig %s --context %s auth whoami shows when it is)", config.Kubeconfig, safe(config.Context))
	case err != nil:
		return explain(err)
	case who != config.Owner:
		return fmt.Errorf("you are logged in as %s, and this workstation is %s's: log in as that user, or run undersong init", safe(who), safe(config.Owner))
	}
	return s.print("You are %s at %s. The daemon goes on by itself within a minute.\n", safe(who), safe(config.Server))
}
