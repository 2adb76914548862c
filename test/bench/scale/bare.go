package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/undersong-dev/undersong/api/v1alpha1"
)

// synced is what the bare process prints once its caches are full.
const synced = "synced"

// bareSync is the process that the controller's start is held against: it
// fills a cache of the same kinds and does nothing else.
func bareSync(ctx context.Context, kubeconfig string) error {
	ctrllog.SetLogger(logr.Discard())
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	all, err := cache.New(cfg, cache.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	for _, kind := range []client.Object{&v1alpha1.Session{}, &v1alpha1.TeamMemory{}, &v1alpha1.Workstation{}, &v1alpha1.MemoryBlock{}} {
		if _, err := all.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
	}
	go func() { _ = all.Start(ctx) }() // it ends with the process
	if !all.WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	fmt.Println(synced, peak(os.Getpid())) //nolint:forbidigo // the result
	return nil
}

// bare runs bareSync in a process of its own.
func bare(ctx context.Context, kubeconfig string) (time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	begun := now()
	out, err := exec.CommandContext(ctx, self, "-bare", kubeconfig).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("fill a bare cache: %w: %s", err, out)
	}
	return now().Sub(begun), nil
}

// loopFor is how long the bare loop writes.
const loopFor = 10 * time.Second

// bareLoop writes statuses as fast as the API server takes them, from as many
// workers as the controller has, and returns the writes per second, and what
// each process computed for one.
func bareLoop(ctx context.Context, c *company) (rate float64, cost string, _ error) {
	var sessions []*v1alpha1.Session
	for _, t := range c.teams {
		var list v1alpha1.SessionList
		if err := c.controller.List(ctx, &list, client.InNamespace(t.Namespace)); err != nil {
			return 0, "", err
		}
		for i := range list.Items {
			sessions = append(sessions, &list.Items[i])
		}
	}
	ctx, cancel := context.WithTimeout(ctx, loopFor)
	defer cancel()
	var writes atomic.Int64
	var failed atomic.Pointer[error]
	var workers sync.WaitGroup
	begun, before := now(), cpu()
	for w := range controllerWorkers {
		workers.Go(func() {
			for i := w; ctx.Err() == nil; i += controllerWorkers {
				s := sessions[i%len(sessions)]
				before := s.DeepCopy()
				s.Status.Usage.Tokens++
				err := c.controller.Status().Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner("undersong-controller"))
				if err != nil && ctx.Err() == nil {
					failed.Store(&err)
					cancel()
					return
				}
				writes.Add(1)
			}
		})
	}
	workers.Wait()
	if err := failed.Load(); err != nil {
		return 0, "", *err
	}
	return float64(writes.Load()) / now().Sub(begun).Seconds(), spent(before, int(writes.Load())), nil
}
