package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
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

// SegmentLines is the number of lines of a segment; what is no segment has
// none.
func SegmentLines(ctx context.Context, bucket *store.Bucket, key string) (int64, error) {
	if !strings.HasSuffix(key, ".jsonl.zst") {
		return 0, nil
	}
	_, lines, err := Segment(ctx, bucket, key)
	return int64(len(lines)), err
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
