package memoryblock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/internal/text"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/store"
)

const (
	// maxHistory bounds status.history.
	maxHistory = 10
	// maxChange bounds the change of one revision, in bytes and so in
	// characters.
	maxChange = 2048
	// maxCompared bounds the work of comparing two texts: the product of their
	// lines that differ.
	maxCompared = 4 << 20
)

// plain makes a text fit to be shown.
func (s *scope) plain(said string) string {
	clean, _ := s.redactor.Text(said)
	return text.Plain(clean, maxBytes)
}

// digest names a text.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// record writes a new text into the store and then into status, with what
// changed. The text that status has already is no news.
func (r *Reconciler) record(ctx context.Context, s *scope, value, revision, session string) error {
	st := &s.block.Status
	if st.Digest == digest(value) {
		return nil
	}
	bucket, err := r.Connect.Store(ctx, s.mem)
	if err != nil {
		return err
	}
	if value != "" { // nothing need not be kept
		if err := bucket.Put(ctx, segment.BlockKey(s.block.Namespace, digest(value)), []byte(value)); err != nil {
			return r.Connect.StoreError(s.mem, err)
		}
	}
	old := st.Value
	if st.Extent == v1alpha1.ExtentTruncated {
		old, err = r.stored(ctx, s, st.Digest)
		if err != nil && !errors.Is(err, store.ErrNotExist) {
			return r.Connect.StoreError(s.mem, err)
		}
	}
	at := r.now()
	first := st.Digest == ""
	st.Value, st.Extent = cut(value)
	st.Digest, st.Bytes, st.Revision, st.UpdatedAt, st.LastSession = digest(value), int64(len(value)), revision, &at, session
	if revision == "" || (first && value == "") {
		return nil // nobody has written anything yet
	}
	st.History = append([]v1alpha1.BlockRevision{{
		Revision: revision, Digest: st.Digest, At: at, Session: session, Bytes: st.Bytes, Change: change(s.plain(old), value),
	}}, st.History...)
	for i := len(st.History) - 1; i >= 0 && len(st.History) > maxHistory; i-- {
		if h := st.History[i]; !names(s.block.Spec.Restore, h.Revision) || s.block.Spec.Restore == st.Restored { // one that is to be restored stays
			st.History = slices.Delete(st.History, i, i+1)
		}
	}
	return nil
}

// cut bounds a text to maxValue characters, of which none takes more than one
// place as the API server counts.
func cut(s string) (string, v1alpha1.Extent) {
	if utf8.RuneCountInString(s) <= maxValue {
		return s, v1alpha1.ExtentWhole
	}
	return string([]rune(s)[:maxValue]), v1alpha1.ExtentTruncated
}

// change says what lines went and came between two texts, without those that
// stayed: a minus before each that went, a plus before each that came.
func change(before, after string) string {
	a, b := lines(before), lines(after)
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var out strings.Builder
	say := func(mark, line string) bool {
		out.WriteString(mark + line + "\n")
		return out.Len() <= maxChange
	}
	// common[i][j] is how many lines a[i:] and b[j:] have in common. Where that
	// would cost too much, all of a went and all of b came.
	var common [][]int32
	if len(a)*len(b) <= maxCompared {
		common = make([][]int32, len(a)+1)
		for i := range common {
			common[i] = make([]int32, len(b)+1)
		}
		for i, went := range slices.Backward(a) {
			for j, came := range slices.Backward(b) {
				if went == came {
					common[i][j] = common[i+1][j+1] + 1
				} else {
					common[i][j] = max(common[i+1][j], common[i][j+1])
				}
			}
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		more := true
		switch {
		case common != nil && i < len(a) && j < len(b) && a[i] == b[j]:
			i++
			j++
		case i < len(a) && (j == len(b) || common == nil || common[i+1][j] >= common[i][j+1]):
			more = say("-", a[i])
			i++
		default:
			more = say("+", b[j])
			j++
		}
		if !more {
			break
		}
	}
	said := strings.TrimSuffix(out.String(), "\n")
	if len(said) <= maxChange {
		return said
	}
	const mark = "…"
	end := maxChange - len(mark)
	for end > 0 && !utf8.RuneStart(said[end]) {
		end--
	}
	return said[:end] + mark
}

// lines of a text; none of an empty one.
func lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}
