package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/test/stack"
)

// checkStore: every line of every session is in the archive once, and no inbox
// holds anything.
func (d *demo) checkStore(ctx context.Context) error {
	d.head("Checking")
	bucket, err := d.team.Open() //nolint:contextcheck // opening reads no network
	if err != nil {
		return err
	}
	sessions, err := d.team.Sessions(ctx)
	if err != nil {
		return err
	}
	written := map[string]int64{}
	for i := range sessions {
		s := &sessions[i]
		written[segment.ArchivePrefix(s.Namespace, s.Spec.Owner, s.Name)] = s.Spec.Lines
	}
	if err := stack.CheckOnce(ctx, bucket, "", nil, written); err != nil {
		return err
	}
	err = stack.Eventually(ctx, processedWithin, func() error { return stack.CheckInbox(ctx, bucket) })
	if err == nil {
		d.line("  ok: %d sessions are in the archive, line for line; the inboxes are empty", len(sessions))
	}
	return err
}

// checkConversations: every word is in the conversations once, and the whisper
// is what the agent answered.
func (d *demo) checkConversations(ctx context.Context) error {
	conversations, err := d.stack.Conversations(ctx)
	if err != nil {
		return err
	}
	if err := stack.CheckTold(stack.Told(conversations, ""), d.said); err != nil {
		return err
	}
	replied := false
	for _, c := range conversations {
		for _, m := range c.Messages {
			replied = replied || (m.Role == "assistant" && strings.TrimSpace(m.Text) != "" && strings.Contains(html.UnescapeString(d.shown), strings.TrimSpace(m.Text)))
		}
	}
	if !replied {
		return errors.New("no answer of the agent equals the whisper that was shown")
	}
	d.line("  ok: %d prompts and answers are in the conversations, each once; the whisper is the agent's answer", len(d.said))
	return nil
}

// checkStateFiles: the two files have the names and shapes that the plugin
// reads, and say what the cluster says.
func (d *demo) checkStateFiles(ctx context.Context) error {
	return stack.Eventually(ctx, processedWithin, func() error {
		sessions, err := d.team.Sessions(ctx)
		if err != nil {
			return err
		}
		for i := range sessions {
			s := &sessions[i]
			for _, p := range d.sessions {
				if p.ID != s.Spec.SessionID {
					continue
				}
				if err := stack.CheckStateFiles(p.Cwd, p.ID, s); err != nil {
					return err
				}
			}
		}
		d.line("  ok: the state files of %d sessions say what the cluster says", len(sessions))
		return nil
	})
}

// checkSecrets: the planted credentials, and the keys of the store and of
// Letta, are nowhere they must not be.
func (d *demo) checkSecrets(ctx context.Context) error {
	planted := d.planted
	bucket, err := d.team.Open() //nolint:contextcheck // opening reads no network
	if err != nil {
		return err
	}
	if err := stack.SearchBucket(ctx, bucket, planted); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	objects, err := d.stack.Dump(ctx, d.team.Namespace)
	if err != nil {
		return err
	}
	if err := stack.Search("the API server", objects, planted); err != nil {
		return err
	}
	conversations, err := d.stack.Conversations(ctx)
	if err != nil {
		return err
	}
	talk, err := json.Marshal(conversations)
	if err != nil {
		return err
	}
	if err := stack.Search("the conversations", talk, planted); err != nil {
		return err
	}
	keys := slices.Concat(d.stack.Keys(), planted)
	for _, w := range []*stack.Workstation{d.ada, d.bob} {
		if err := searchFolder(w.State, keys); err != nil {
			return err
		}
	}
	if err := searchFolder(filepath.Join(d.stack.Dir, "logs"), planted); err != nil {
		return err
	}
	d.line("  ok: %d planted credentials are nowhere; the workstations have no key of the store or of Letta", len(planted))
	return nil
}

// searchFolder looks for strings in every file of a folder.
func searchFolder(dir string, secrets []string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return stack.Search(path, bytes.TrimSpace(data), secrets)
	})
}
