package session

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/internal/redact"
)

// Bounds of what is kept between the reconciles of a delivery. What falls out
// is read again.
const (
	// maxMemos is the number of batches, and of seen-sets.
	maxMemos = 64
	// maxMemo is the size of the words of one batch, and of one seen-set as it
	// is stored, in bytes.
	maxMemo = 128 << 10
)

// memos keeps what the steps of a delivery, the ledger, the turn and its
// answer, would each read from the store. It dies with the process.
type memos struct {
	once sync.Once
	// batches by session.
	batches *lru.Cache
	// sets are seen-sets as they are stored, by their digest.
	sets *lru.Cache
}

func (m *memos) made() *memos {
	m.once.Do(func() { m.batches, m.sets = lru.New(maxMemos), lru.New(maxMemos) })
	return m
}

// recipe is what the text of a delivery is made by, besides the archive. Where
// the archive is rewritten it is another: what is forgotten goes into the
// seen-set, and what is scrubbed is in the memory's spec before.
type recipe struct {
	session    types.UID
	delivery   string // its cuts
	seen       string
	maxEntry   int32
	results    v1alpha1.ToolResults
	thinking   v1alpha1.Allowance
	version    int32
	memory     types.UID
	generation int64            // of the memory, whose rules and scrubs change the words
	redactor   *redact.Redactor // made anew until all scrubs can be opened
}

func recipeOf(s *scope, d *v1alpha1.Delivery) recipe {
	return recipe{
		session: s.ses.UID, delivery: d.ID, seen: s.ses.Status.SyncState.Seen, maxEntry: d.MaxEntryBytes,
		results: d.ToolResults, thinking: d.Thinking, version: d.RenderVersion, memory: s.mem.UID, generation: s.mem.Generation, redactor: s.redactor,
	}
}

// memo is a batch and where it came from.
type memo struct {
	from  recipe
	batch *batch
}

// put keeps the batch of a delivery, unless it is large.
func (m *memos) put(s *scope, d *v1alpha1.Delivery, b *batch) {
	if bytesOf(b.entries) <= maxMemo {
		m.made().batches.Add(s.key, memo{recipeOf(s, d), b})
	}
}

// get returns the batch of a delivery, nil where it is not kept, or would be
// another now.
func (m *memos) get(s *scope, d *v1alpha1.Delivery) *batch {
	if kept, ok := m.made().batches.Get(s.key); ok {
		if kept, ok := kept.(memo); ok && kept.from == recipeOf(s, d) {
			return kept.batch
		}
	}
	return nil
}

// drop forgets the batch of a session.
func (m *memos) drop(session types.NamespacedName) { m.made().batches.Remove(session) }

// putSet keeps an encoded seen-set, unless it is large.
func (m *memos) putSet(digest string, data []byte) {
	if len(data) <= maxMemo {
		m.made().sets.Add(digest, data)
	}
}

// set returns an encoded seen-set, nil where it is not kept.
func (m *memos) set(digest string) []byte {
	kept, _ := m.made().sets.Get(digest)
	data, _ := kept.([]byte)
	return data
}
