package cli

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/internal/durable"
	"github.com/undersong-dev/undersong/agent/internal/kube"
	"github.com/undersong-dev/undersong/agent/note"
)

func (s *System) adminCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "What a team's lead or platform engineer does",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(s.joinCommand(), s.scrubCommand())
	return cmd
}

func (s *System) joinCommand() *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Print the file with which a team's developers join",
		Long: `Print a join file: the cluster's address and certificate authority, the team's
namespace and memory, and the object store that workstations send to. Hand it out
to the team; it holds no secret. Each developer runs

  undersong init --join join.yaml

with a kubeconfig of his own that leads to this cluster.`,
		Example: `  undersong admin join --namespace alpha > join.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return s.printJoin(c.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, or .kube/config in your home)")
	flags.StringVar(&f.context, "context", "", "context of the kubeconfig (default its current one)")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "the team's namespace (default that of the context)")
	flags.StringVar(&f.memory, "memory", "", "name of the TeamMemory (default the only one of the namespace)")
	return cmd
}

func (s *System) printJoin(ctx context.Context, f initFlags) error {
	target, err := s.target(f)
	if err != nil {
		return err
	}
	p := &plan{config: target}
	if p.rest, err = daemon.LoadREST(target.Kubeconfig, target.Context); err != nil {
		return explain(err)
	}
	if p.client, err = kube.New(p.rest); err != nil {
		return err
	}
	if p.memory, err = s.findMemory(ctx, p); err != nil {
		return err
	}
	host, err := storeHost(p.memory)
	if err != nil {
		return err
	}
	authority, err := authorityOf(target)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(joinFile{
		Server: p.rest.Host, CAData: authority, Namespace: target.Namespace, Memory: p.memory.Name, StoreHost: host,
	})
	if err != nil {
		return err
	}
	return s.print("# For undersong init --join. It holds no secret.\n%s", text)
}

// authorityOf returns the certificate authority of the context's cluster, in
// base64. Empty where the system's own are trusted.
func authorityOf(c note.Config) (string, error) {
	file, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		return "", fmt.Errorf("%s is not a kubeconfig", c.Kubeconfig) // the cause may quote it
	}
	cluster := file.Clusters[file.Contexts[c.Context].Cluster]
	if cluster == nil {
		return "", fmt.Errorf("%s has no cluster for the context %s", c.Kubeconfig, safe(c.Context))
	}
	data := cluster.CertificateAuthorityData
	if len(data) == 0 && cluster.CertificateAuthority != "" {
		if data, err = durable.ReadFile(cluster.CertificateAuthority, maxJoin); err != nil {
			return "", fmt.Errorf("read the certificate authority that %s names: %w", c.Kubeconfig, err)
		}
	}
	return base64.StdEncoding.EncodeToString(data), nil
}
