package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// Segment reads one segment of the bucket.
func Segment(ctx context.Context, bucket *store.Bucket, key string) (segment.Header, [][]byte, error) {
	packed, err := bucket.Get(ctx, key, segment.MaxPacked)
	if err != nil {
		return segment.Header{}, nil, err
	}
	raw, err := segment.Unpack(packed)
	if err != nil {
		return segment.Header{}, nil, err
	}
	return segment.Decode(raw)
}

// ArchiveLines is the number of lines in the archive below a prefix.
func ArchiveLines(ctx context.Context, bucket *store.Bucket, prefix string) (int64, error) {
	var lines int64
	for info, err := range bucket.List(ctx, prefix) {
		if err != nil {
			return 0, err
		}
		if !strings.HasSuffix(info.Key, ".jsonl.zst") {
			continue // no segment
		}
		_, its, err := Segment(ctx, bucket, info.Key)
		if err != nil {
			return 0, err
		}
		lines += int64(len(its))
	}
	return lines, nil
}

// Told is all that a namespace's conversations were told, of all namespaces if it
// is empty, without the escapes of the rendering.
func Told(conversations []lettatest.Conversation, namespace string) string {
	var told strings.Builder
	for _, c := range conversations {
		if namespace != "" && !strings.Contains(c.Summary, namespace+"/") {
			continue
		}
		for _, m := range c.Messages {
			if m.Role == "user" {
				told.WriteString(html.UnescapeString(m.Text))
			}
		}
	}
	return told.String()
}

// CheckTold fails unless Letta was told each of the words once.
func CheckTold(told string, said []string) error {
	var wrong []error
	for _, words := range said {
		if n := strings.Count(told, words); n != 1 {
			wrong = append(wrong, fmt.Errorf("Letta has %d times: %s", n, words)) //nolint:staticcheck // it begins with a name
		}
	}
	return errors.Join(wrong...)
}

// CheckOnce fails unless Letta was told each of the words once, and the archive
// has, below each prefix, as many lines as were written. All that is wrong is said.
func CheckOnce(ctx context.Context, bucket *store.Bucket, told string, said []string, written map[string]int64) error {
	wrong := []error{CheckTold(told, said)}
	for _, prefix := range slices.Sorted(maps.Keys(written)) {
		lines, err := ArchiveLines(ctx, bucket, prefix)
		if err == nil && lines != written[prefix] {
			err = fmt.Errorf("the archive has %d lines below %s, %d were written", lines, prefix, written[prefix])
		}
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// CheckInbox fails while something lies in the inbox.
func CheckInbox(ctx context.Context, bucket *store.Bucket) error {
	for info, err := range bucket.List(ctx, "inbox/") {
		if err != nil {
			return err
		}
		return fmt.Errorf("%s is still in the inbox", info.Key)
	}
	return nil
}

// SearchBucket looks for strings in every object, segments unpacked.
func SearchBucket(ctx context.Context, bucket *store.Bucket, secrets []string) error {
	for info, err := range bucket.List(ctx, "") {
		if err != nil {
			return err
		}
		data, err := bucket.Get(ctx, info.Key, segment.MaxPacked)
		if err != nil {
			return err
		}
		if raw, err := segment.Unpack(data); err == nil {
			data = raw
		}
		if err := Search(info.Key, data, secrets); err != nil {
			return err
		}
	}
	return nil
}

// Search fails if data holds one of the strings. It does not repeat it.
func Search(where string, data []byte, secrets []string) error {
	for i, secret := range secrets {
		if bytes.Contains(data, []byte(secret)) {
			return fmt.Errorf("%s holds the planted credential number %d", where, i+1)
		}
	}
	return nil
}

// Keys are the credentials of the store and of Letta.
func (s *Stack) Keys() []string {
	keys := []string{s.S3.SecretAccessKey}
	for _, key := range s.LettaServer().Secret {
		keys = append(keys, key)
	}
	return keys
}

// Dump returns all of our objects and the events of a namespace, as JSON.
func (s *Stack) Dump(ctx context.Context, namespace string) ([]byte, error) {
	lists := []client.ObjectList{
		&v1alpha1.SessionList{}, &v1alpha1.WorkstationList{}, &v1alpha1.TeamMemoryList{}, &v1alpha1.MemoryBlockList{},
		&corev1.EventList{}, &eventsv1.EventList{},
	}
	var all []byte
	for _, list := range lists {
		if err := s.Admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		data, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		all = append(all, data...)
	}
	return all, nil
}

// CheckStateFiles compares the two files that letta-ai/claude-subconscious
// reads with a Session's status: names, shapes and values.
func CheckStateFiles(cwd, sessionID string, s *v1alpha1.Session) error {
	dir := filepath.Join(cwd, ".letta", "claude")
	var entry map[string]map[string]string
	if err := readJSON(filepath.Join(dir, "conversations.json"), &entry); err != nil {
		return err
	}
	sync := s.Status.SyncState
	if sync == nil {
		return errors.New("the Session has no syncState")
	}
	got := entry[sessionID]
	if len(got) != 2 || got["conversationId"] != sync.ConversationID || got["agentId"] != sync.AgentID {
		return fmt.Errorf("conversations.json has %v for session %s", got, sessionID)
	}
	var state map[string]any
	if err := readJSON(filepath.Join(dir, "session-"+sessionID+".json"), &state); err != nil {
		return err
	}
	index, isNumber := state["lastProcessedIndex"].(float64)
	switch {
	case state["sessionId"] != sessionID, state["conversationId"] != sync.ConversationID:
		return fmt.Errorf("session-%s.json has sessionId %v, conversationId %v", sessionID, state["sessionId"], state["conversationId"])
	case !isNumber:
		return fmt.Errorf("session-%s.json: lastProcessedIndex is %v", sessionID, state["lastProcessedIndex"])
	case len(sync.Writers) == 1 && int64(index) != sync.Writers[0].LastProcessedIndex:
		return fmt.Errorf("session-%s.json: lastProcessedIndex is %v, the cluster's %d", sessionID, index, sync.Writers[0].LastProcessedIndex)
	case sync.LastSeenMessageID != "" && state["lastSeenMessageId"] != sync.LastSeenMessageID:
		return fmt.Errorf("session-%s.json: lastSeenMessageId is %v, the cluster's %s", sessionID, state["lastSeenMessageId"], sync.LastSeenMessageID)
	}
	return nil
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	return nil
}
