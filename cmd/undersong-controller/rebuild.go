package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/controllers/session"
)

// rebuild makes the Sessions again that the archive knows and the cluster does
// not. It runs with a lead's kubeconfig, not with the controller's rights: a
// lead may create Sessions for their owners and read the store's Secret.
func rebuild(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("undersong-controller rebuild", flag.ContinueOnError)
	namespace := fs.String("namespace", "", "the team's namespace")
	memory := fs.String("memory", "", "the name of its TeamMemory")
	if kubeconfig := flag.Lookup("kubeconfig"); kubeconfig != nil {
		fs.Var(kubeconfig.Value, kubeconfig.Name, kubeconfig.Usage)
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *namespace == "" || *memory == "" {
		return errors.New("rebuild: give --namespace and --memory")
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w; give --kubeconfig", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	mem := &v1alpha1.TeamMemory{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: *namespace, Name: *memory}, mem); err != nil {
		return fmt.Errorf("get TeamMemory: %w", err)
	}
	bucket, err := connect.New(c, nil, clock.RealClock{}).Store(ctx, mem)
	if err != nil {
		return err
	}
	var made, there, failed int
	err = session.Rebuild(ctx, c, bucket, mem, func(one session.Rebuilt) {
		switch {
		case one.Err != nil:
			failed++
			_, _ = fmt.Fprintf(os.Stdout, "%s: %v\n", one.Name, one.Err) // nobody left to tell
		case one.Created:
			made++
			_, _ = fmt.Fprintf(os.Stdout, "%s: created\n", one.Name) // nobody left to tell
		default:
			there++
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%d created, %d were there, %d failed\n", made, there, failed)
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("rebuild: %d sessions could not be made", failed))
	}
	return err
}
