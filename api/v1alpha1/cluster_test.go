//go:build envtest

package v1alpha1_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/test/kube"
)

// The team of these tests. The policies are in force: specs of Sessions and
// Workstations are ada's, the other specs lena's, statuses the controller's.
const (
	namespace = "api"
	owner     = "ada"
	lead      = "lena"
)

var (
	cluster    *kube.Cluster
	writerOf   map[string]client.Client // by kind: who writes specs
	controller client.Client            // who writes statuses
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(func() int {
		ctx := context.Background()
		var err error
		if cluster, err = kube.Start(ctx, kube.Options{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer cluster.Stop()
		if err := setUp(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func setUp(ctx context.Context) error {
	// The other two are the shortest and the longest owner's name.
	members := []string{owner, "a", strings.Repeat("a", 253)}
	if err := cluster.Team(ctx, namespace, members, []string{lead}); err != nil {
		return err
	}
	config, err := cluster.Controller(ctx)
	if err != nil {
		return err
	}
	var errs [4]error
	var ada, lena, admin client.Client
	controller, errs[0] = cluster.Client(config)
	ada, errs[1] = cluster.Client(cluster.User(owner))
	lena, errs[2] = cluster.Client(cluster.User(lead))
	// Whoever names Secrets in a TeamMemory must be allowed to read them.
	admin, errs[3] = cluster.Client(cluster.Admin())
	writerOf = map[string]client.Client{"Session": ada, "Workstation": ada, "TeamMemory": admin, "MemoryBlock": lena}
	return errors.Join(errs[:]...)
}

// chain returns a well-formed head of a chain.
func chain(c string) string { return strings.Repeat(c, 64) }

const key = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

const when = "2026-11-02T08:15:00Z"

type fields = map[string]any

// full returns an object of a kind with every field of the API filled, once
// where a list may be filled many times. Fields that exclude each other are
// the exception: see alternatives in bounds_test.go.
func full(kind, name string) *unstructured.Unstructured {
	conditions := []any{fields{
		"type": "Ready", "status": "True", "reason": "Succeeded", "message": "m",
		"lastTransitionTime": when, "observedGeneration": int64(1),
	}}
	cut := func() fields { return fields{"segments": int64(1), "lines": int64(1)} }
	delivery := func() fields {
		return fields{
			"id": "d", "workstation": "wks-a", "from": cut(), "to": cut(), "at": when, "maxEntryBytes": int64(1024),
			"renderVersion": int64(1), "phase": "Sending", "attempts": int64(1),
			"toolResults": "Local", "thinking": "Deny",
			"answer": "Publish", "corrections": []any{"0"},
		}
	}
	content := map[string]fields{
		"Session": {
			"spec": fields{
				"owner": owner, "sessionID": "s", "agent": "ClaudeCode", "forkedFrom": "p",
				"memoryRef": fields{"name": "m"},
				"project":   fields{"name": "shop", "remote": "github.com/example/shop"},
				"lines":     int64(30),
				"writers": []any{fields{
					"workstation": "wks-a", "state": "Active", "branch": "main",
					"segments": int64(3), "lines": int64(30), "bytes": int64(300),
					"chain": chain("3"), "previousChain": chain("2"),
					"slots": []any{fields{"seq": int64(3), "slot": int64(7)}},
					"gone":  []any{int64(1)},
				}},
				"requests": []any{fields{
					"id": "r", "kind": "Forget", "workstation": "wks-a", "whisper": "w",
					"fromLine": int64(1), "toLine": int64(2),
				}},
			},
			"status": fields{
				"observedGeneration": int64(1), "conditions": conditions,
				"state": "Active", "title": "t", "tag": "t", "pullRequest": "example/shop#1",
				"lastActivityTime": when, "lines": int64(30), "lag": int64(0), "lostLines": int64(0),
				"usage": fields{
					"turns": int64(1), "tokens": int64(1), "source": "Reported",
					"day": "2026-11-30", "dayTokens": int64(1), "dayImportTokens": int64(1),
				},
				"whispers": []any{fields{"id": "w", "at": when, "bytes": int64(1), "sealed": "c2VhbGVk", "text": "t"}}, "withdrawn": []any{"0"},
				"answered": []any{fields{"id": "r", "result": "Done", "message": "m"}},
				"syncState": fields{
					"conversationID": "c", "agentID": "a", "lastProcessedIndex": int64(1),
					"lastSeenMessageID": "m", "memoryRevision": "r", "seen": "s", "record": int64(1), "corrections": []any{"0"}, "abandoned": []any{"c"},
					"blocks":   []any{fields{"label": "brief", "digest": chain("a"), "bytes": int64(1)}},
					"delivery": delivery(),
					"parked": []any{fields{
						"delivery": delivery(), "lines": int64(1), "at": when, "memoryGeneration": int64(1),
					}},
					"writers": []any{fields{
						"workstation": "wks-a", "verified": fields{"segments": int64(1), "chain": chain("1")},
						"delivered": cut(), "lines": int64(1), "lastProcessedIndex": int64(1), "wanted": []any{int64(1)},
						"chapter": int64(1), "origin": "Archive", "held": []any{fields{"segment": int64(1), "fromLine": int64(1), "toLine": int64(1)}},
					}},
				},
			},
		},
		"Workstation": {
			"spec": fields{
				"owner": owner, "memoryRef": fields{"name": "m"}, "publicKey": key,
				"version": "v1", "os": "linux/amd64", "grantRequest": int64(1),
				"report": fields{"lastSeen": when, "backlogSegments": int64(1), "oldestBacklog": when, "lastError": "e"},
			},
			"status": fields{
				"observedGeneration": int64(1), "conditions": conditions,
				"grant": fields{"request": int64(1), "sealed": "c2VhbGVk", "fromSlot": int64(1), "toSlot": int64(32), "expiresAt": when},
			},
		},
		"TeamMemory": {
			"spec": fields{
				"letta": fields{
					"backend": "API", "baseURL": "https://letta.example.com", "insecure": "Deny",
					"credentialsSecretRef": fields{"name": "letta"},
				},
				"agent": fields{"template": fields{"name": "n", "model": "m", "embedding": "e"}},
				"scope": "Project",
				"store": fields{
					"endpoint": "https://s3.internal.example.com", "publicEndpoint": "https://s3.example.com", "insecure": "Deny",
					"region": "us-east-1", "bucket": "bucket", "prefix": "a/b", "credentialsSecretRef": fields{"name": "store"},
				},
				"capture": fields{
					"projects": fields{"include": []any{"**"}, "exclude": []any{"x/**"}},
					"headless": "Deny", "thinking": "Deny", "toolResults": "Local", "titles": "Show", "outsideGit": "Deny",
					"redact": []any{fields{"name": "ticket", "pattern": "T-[0-9]+", "effect": "Hide"}},
				},
				"recall": fields{"mode": "Whisper", "maxCharacters": int64(4000)},
				"delivery": fields{
					"maxBatchBytes": int64(32768), "maxConcurrentTurns": int64(4), "turnTimeoutSeconds": int64(600),
					"minIntervalSeconds": int64(0),
				},
				"budget":   fields{"dailyTokens": int64(2000000)},
				"onSecret": "Redact", "deletionPolicy": "Retain",
				"retention": fields{"sessionDays": int64(30), "transcriptDays": int64(90)},
				"suspend":   "None", "whispers": "Owner",
				"scrubs": []any{fields{"id": "s", "mode": "Look", "length": int64(8), "digest": strings.Repeat("a", 72), "sealedKey": "c2VhbGVk"}},
			},
			"status": fields{
				"observedGeneration": int64(1), "conditions": conditions,
				"agents":   []any{fields{"project": "github.com/example/shop", "agentID": "a"}},
				"sessions": int64(1), "lagging": int64(1), "segmentFormat": int64(1),
				"usage":    fields{"day": "2026-11-30", "tokens": int64(1), "importTokens": int64(1), "percent": int64(1)},
				"scrubKey": key,
				"scrubs": []any{fields{
					"id": "s", "mode": "Look", "phase": "Done", "finishedAt": when, "message": "m", "sessions": []any{"s"}, "notReached": []any{"n"},
					"found": []any{fields{"place": "Archive", "looked": int64(1), "found": int64(1), "changed": int64(0)}},
				}},
			},
		},
		"MemoryBlock": {
			"spec": fields{
				"memoryRef": fields{"name": "m"}, "project": "github.com/example/shop", "label": "brief", "mode": "Pinned",
				"value": "v", "description": "d",
			},
			"status": fields{
				"observedGeneration": int64(1), "conditions": conditions,
				"value": "v", "digest": chain("a"), "revision": "r", "bytes": int64(1), "updatedAt": when, "lastSession": "s",
				"extent": "Whole", "restored": "r", "putBackAt": when,
				"history": []any{fields{"revision": "r", "digest": chain("a"), "at": when, "session": "s", "bytes": int64(1), "change": "+v"}},
			},
		},
	}[kind]
	o := &unstructured.Unstructured{Object: fields{"spec": content["spec"], "status": content["status"]}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// live creates an object as its writer.
func live(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	created := o.DeepCopy()
	if err := writerOf[o.GetKind()].Create(t.Context(), created); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := writerOf[o.GetKind()].Delete(context.WithoutCancel(t.Context()), created); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return created
}

// causes returns what the API server found wrong, by field.
func causes(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}

// split cuts spec.writers[].branch into spec, writers, [] and branch.
func split(path string) []string {
	return strings.FieldsFunc(strings.ReplaceAll(path, "[]", ".[]"), func(r rune) bool { return r == '.' })
}

// get returns the value at a path; [] means the first item.
func get(o *unstructured.Unstructured, path string) (any, bool) {
	var at any = o.Object
	for _, part := range split(path) {
		switch parent := at.(type) {
		case map[string]any:
			value, ok := parent[part]
			if !ok {
				return nil, false
			}
			at = value
		case []any:
			if part != "[]" || len(parent) == 0 {
				return nil, false
			}
			at = parent[0]
		default:
			return nil, false
		}
	}
	return at, true
}

// set replaces the value at a path whose parent exists. Nil removes a field.
func set(o *unstructured.Unstructured, path string, value any) {
	parts := split(path)
	last := parts[len(parts)-1]
	at, ok := get(o, strings.Join(parts[:len(parts)-1], "."))
	if len(parts) == 1 {
		at, ok = o.Object, true
	}
	switch parent := at.(type) {
	case map[string]any:
		if value == nil {
			delete(parent, last)
		} else {
			parent[last] = value
		}
	case []any:
		parent[0] = value
	default:
		panic(fmt.Sprintf("set %s: no parent (%v)", path, ok))
	}
}

// fieldPath writes a path as the API server does, with the index n for the
// last [].
func fieldPath(path string, n int) string {
	var p *field.Path
	parts := split(path)
	for i, part := range parts {
		switch {
		case p == nil:
			p = field.NewPath(part)
		case part != "[]":
			p = p.Child(part)
		case slices.Contains(parts[i+1:], "[]"):
			p = p.Index(0)
		default:
			p = p.Index(n)
		}
	}
	return p.String()
}

// kinds in a stable order.
func kinds() []string { return slices.Sorted(maps.Keys(writerOf)) }
