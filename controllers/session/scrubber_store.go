package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/internal/text"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

// archive looks at what is kept of each session.
func (s *scrubRun) archive(ctx context.Context) error {
	one := &keptSession{}
	for info, err := range s.bucket.List(ctx, segment.ArchiveOf(s.mem.Namespace)) {
		if err != nil {
			return s.w.Connect.StoreError(s.mem, err)
		}
		prefix := sessionPrefix(info.Key, segment.ArchiveOf(s.mem.Namespace))
		if prefix != one.prefix {
			if err := s.keptSession(ctx, one); err != nil {
				return err
			}
			one = &keptSession{prefix: prefix}
		}
		if prefix > s.Cursor {
			one.keys = append(one.keys, info.Key)
		}
	}
	return s.keptSession(ctx, one)
}

// sessionPrefix is what the keys of all that is kept of a session begin with.
func sessionPrefix(key, archive string) string {
	rest := strings.TrimPrefix(key, archive)
	owner, rest, _ := strings.Cut(rest, "/")
	name, _, _ := strings.Cut(rest, "/")
	return archive + owner + "/" + name + "/"
}

// keptSession is what the archive has of one session.
type keptSession struct {
	prefix string
	keys   []string

	rec  *record
	live *v1alpha1.Session
	// hits by key, and by segment.
	keyed map[string]bool
	hits  map[segmentID][]int
	// named means that the record says the text.
	named bool
}

// keptSession looks at one session's archive.
func (s *scrubRun) keptSession(ctx context.Context, k *keptSession) error {
	if len(k.keys) == 0 {
		return nil
	}
	k.keyed, k.hits = map[string]bool{}, map[segmentID][]int{}
	return s.thing(ctx, k.prefix, func() ([]v1alpha1.ScrubFound, error) {
		ours, err := s.whose(ctx, k)
		if err != nil || !ours {
			return nil, err
		}
		var found []v1alpha1.ScrubFound
		for _, key := range k.keys {
			switch {
			case strings.HasSuffix(key, ".jsonl.zst"):
				hit, err := s.kept(ctx, k, key)
				if err != nil {
					return nil, err
				}
				found = append(found, looked(v1alpha1.ScrubArchive, hit))
			case strings.HasPrefix(strings.TrimPrefix(key, k.prefix), "parked-"):
				s.leave("the segment %s, which was set aside unopened: delete it from the bucket", key)
			}
		}
		if k.rec != nil {
			if data, err := json.Marshal(k.rec); err == nil {
				k.named = s.has(string(data))
			}
			found = append(found, looked(v1alpha1.ScrubRecords, k.named))
		}
		if s.removes() && k.live != nil && told(k.live, k.hits) { // it goes before it is looked at
			found = append(found, looked(v1alpha1.ScrubConversations, true))
		}
		return found, nil
	}, func() (bool, error) {
		if k.live != nil {
			if spec, err := json.Marshal(recordOf(k.live).Spec); err == nil && k.named && s.has(string(spec)) {
				s.leave("the record of Session %s in the bucket, which repeats its spec: delete that Session and scrub again", k.live.Name)
				s.stays = append(s.stays, v1alpha1.ScrubRecords)
			}
			return s.ask(ctx, client.ObjectKeyFromObject(k.live), &scrubTask{hits: k.hits, named: k.named})
		}
		return true, s.rewrite(ctx, k)
	})
}

// record is the key of the session's record.
func (k *keptSession) record() string { return strings.TrimSuffix(k.prefix, "/") + recordName }

// whose reads the record of a session and looks whether it is still there. It
// reports whether it is of this memory.
func (s *scrubRun) whose(ctx context.Context, k *keptSession) (bool, error) {
	data, err := s.bucket.Get(ctx, k.record(), maxRecord)
	switch {
	case err == nil:
		if k.rec, err = parseRecord(data); err != nil {
			s.leave("the record %s, which cannot be read", k.record())
		} else if k.rec.Spec.MemoryRef.Name != s.mem.Name {
			return false, nil
		}
	case !errors.Is(err, store.ErrNotExist):
		return false, s.w.Connect.StoreError(s.mem, err)
	}
	parts := strings.Split(strings.TrimSuffix(k.prefix, "/"), "/")
	live := &v1alpha1.Session{}
	err = s.w.Live.Get(ctx, types.NamespacedName{Namespace: s.mem.Namespace, Name: parts[len(parts)-1]}, live)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read a Session: %w", err)
	}
	if segment.ArchivePrefix(live.Namespace, live.Spec.Owner, live.Name) == k.prefix {
		k.live = live
		return live.Spec.MemoryRef.Name == s.mem.Name, nil
	}
	return true, nil
}

// kept looks at one segment.
func (s *scrubRun) kept(ctx context.Context, k *keptSession, key string) (bool, error) {
	h, lines, _, err := s.open(ctx, key)
	if err != nil || lines == nil {
		return false, err
	}
	for i, line := range lines {
		if _, found := s.only.Line(line); found[s.rule] > 0 {
			id := segmentID{h.Workstation, chapterOf(k.prefix, key), h.Seq}
			k.hits[id] = append(k.hits[id], i)
			k.keyed[key] = true
		}
	}
	if k.keyed[key] {
		s.in(h.Session)
	}
	return k.keyed[key], nil
}

// chapterOf is the chapter of a segment with this key, below its session's prefix.
func chapterOf(prefix, key string) int32 {
	_, rest, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/~")
	number, _, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return 0 // the first is not written down
	}
	return int32(n)
}

// open reads a segment; it has no lines if it cannot be read.
func (s *scrubRun) open(ctx context.Context, key string) (h segment.Header, lines [][]byte, raw []byte, err error) {
	packed, err := s.bucket.Get(ctx, key, segment.MaxPacked)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return h, nil, nil, nil // it went meanwhile
	case err != nil && !errors.Is(err, store.ErrTooLarge):
		return h, nil, nil, s.w.Connect.StoreError(s.mem, err)
	case err == nil:
		if raw, err = segment.Unpack(packed); err == nil {
			h, lines, err = segment.Decode(raw)
		}
	}
	if err != nil {
		s.leave("%s in the bucket, which cannot be read: %s", key, errors.Unwrap(err))
		return h, nil, nil, nil
	}
	return h, lines, raw, nil
}

// rewrite takes the text out of the archive of a session whose Session is gone.
func (s *scrubRun) rewrite(ctx context.Context, k *keptSession) error {
	for _, key := range k.keys {
		if !k.keyed[key] {
			continue
		}
		_, lines, raw, err := s.open(ctx, key)
		if err != nil {
			return err
		}
		if lines == nil {
			continue
		}
		clean, _ := s.full.Lines(lines)
		if raw, err = segment.Rewrite(raw, clean); err != nil {
			return fmt.Errorf("rewrite %s: %w", key, err)
		}
		if err := s.bucket.Put(ctx, key, segment.Pack(raw)); err != nil {
			return s.w.Connect.StoreError(s.mem, err)
		}
	}
	if k.rec == nil {
		return nil
	}
	// Written although it says nothing new: a sweep that went by meanwhile has left
	// what was rewritten behind, and finds it again by the record.
	label := func(of *string, n int) {
		clean, _ := s.full.Text(*of)
		*of = text.Label(clean, n)
	}
	st, spec := &k.rec.Status, &k.rec.Spec
	label(&st.Title, 60)
	label(&st.Tag, 60)
	label(&st.PullRequest, 200)
	for i := range spec.Writers {
		label(&spec.Writers[i].Branch, 200)
	}
	label(&spec.Project.Name, 100)
	data, err := json.Marshal(k.rec)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if s.has(string(data)) {
		s.leave("the record %s: what stands in it names the session", k.record())
		s.stays = append(s.stays, v1alpha1.ScrubRecords)
	}
	return s.w.Connect.StoreError(s.mem, s.bucket.Put(ctx, k.record(), data))
}

// texts looks at the texts of blocks that the store has. A text keeps its name,
// which is the digest of what it was: a revision is restored without the text.
func (s *scrubRun) texts(ctx context.Context) error {
	for info, err := range s.bucket.List(ctx, segment.BlocksOf(s.mem.Namespace)) {
		if err != nil {
			return s.w.Connect.StoreError(s.mem, err)
		}
		if info.Key <= s.Cursor {
			continue
		}
		var value string
		err := s.thing(ctx, info.Key, func() ([]v1alpha1.ScrubFound, error) {
			data, err := s.bucket.Get(ctx, info.Key, maxBlockBytes)
			if err != nil && !errors.Is(err, store.ErrNotExist) {
				return nil, s.w.Connect.StoreError(s.mem, err)
			}
			value = string(data)
			hit := s.has(value)
			if digest := info.Key[strings.LastIndex(info.Key, "/")+1:]; hit && len(s.Texts) < maxTexts && !slices.Contains(s.Texts, digest) {
				s.Texts = append(s.Texts, digest)
			}
			return []v1alpha1.ScrubFound{looked(v1alpha1.ScrubBlockTexts, hit)}, nil
		}, func() (bool, error) {
			clean, _ := s.full.Text(value)
			return true, s.w.Connect.StoreError(s.mem, s.bucket.Put(ctx, info.Key, []byte(clean.String())))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// uploads looks at what is sent and not verified. It is not changed: the chain
// must fit when it is verified, and then the text is taken out.
func (s *scrubRun) uploads(ctx context.Context) error {
	var list v1alpha1.WorkstationList
	if err := s.w.Client.List(ctx, &list, client.InNamespace(s.mem.Namespace)); err != nil {
		return fmt.Errorf("list Workstations: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Workstation) int { return strings.Compare(string(a.UID), string(b.UID)) })
	for i := range list.Items {
		for info, err := range s.bucket.List(ctx, segment.InboxPrefix(string(list.Items[i].UID))) {
			if err != nil {
				return s.w.Connect.StoreError(s.mem, err)
			}
			err := s.thing(ctx, info.Key, func() ([]v1alpha1.ScrubFound, error) {
				_, lines, _, err := s.open(ctx, info.Key)
				hit := slices.ContainsFunc(lines, func(line []byte) bool {
					_, found := s.only.Line(line)
					return found[s.rule] > 0
				})
				if hit {
					s.leave("what workstation %s has sent and nobody has verified yet: it is taken out when it is verified", list.Items[i].Name)
				}
				return []v1alpha1.ScrubFound{looked(v1alpha1.ScrubUploads, hit)}, err
			}, func() (bool, error) { return false, nil })
			if err != nil {
				return err
			}
		}
	}
	return nil
}
