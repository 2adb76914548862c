package transcript

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
)

// Scratch is a new file of the caller's, where what does not fit in memory lies
// until Close drops it.
type Scratch interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// Room makes scratch files. What has one keeps a few megabytes in memory however
// many records it has seen; without, all of it.
type Room func() (Scratch, error)

const pageSize = 4096

// maxPages of one store are in memory: most records look at those right before
// them. Tests make it less.
var maxPages = 512

// paged are bytes by position, zero where nothing was written. The first error
// of its scratch file stands, and nothing it holds counts then.
type paged struct {
	room    Room
	scratch Scratch
	pages   map[int64]*page
	ring    []*page // all pages in memory, in the order in which they are let go
	hand    int
	last    *page
	err     error
}

type page struct {
	n           int64
	dirty, used bool
	data        [pageSize]byte
}

// at returns the page that holds the byte at a position.
func (p *paged) at(pos int64) *page {
	n := pos / pageSize
	if p.last != nil && p.last.n == n {
		return p.last
	}
	found := p.pages[n]
	if found == nil {
		found = p.load(n)
	}
	found.used, p.last = true, found
	return found
}

// read returns some bytes that lie in one page, valid until the next call.
func (p *paged) read(pos int64, size int) []byte {
	from := pos % pageSize
	return p.at(pos).data[from : from+int64(size)]
}

// write is read for a caller that changes the bytes.
func (p *paged) write(pos int64, size int) []byte {
	found := p.at(pos)
	found.dirty = true
	from := pos % pageSize
	return found.data[from : from+int64(size)]
}

func (p *paged) load(n int64) *page {
	if p.pages == nil {
		p.pages = map[int64]*page{}
	}
	if p.room == nil || len(p.ring) < maxPages {
		fresh := &page{n: n} // nothing was let go so far: it was never written
		p.ring, p.pages[n] = append(p.ring, fresh), fresh
		return fresh
	}
	for p.ring[p.hand].used {
		p.ring[p.hand].used = false
		p.hand = (p.hand + 1) % len(p.ring)
	}
	old := p.ring[p.hand]
	p.hand = (p.hand + 1) % len(p.ring)
	delete(p.pages, old.n)
	if p.err == nil {
		p.err = p.swap(old, n)
	}
	old.n, old.dirty = n, false
	p.pages[n] = old
	return old
}

// swap writes a page out and reads another one in its place.
func (p *paged) swap(old *page, n int64) (err error) {
	if p.scratch == nil {
		if p.scratch, err = p.room(); err != nil {
			return fmt.Errorf("make scratch file: %w", err)
		}
	}
	if old.dirty {
		if _, err := p.scratch.WriteAt(old.data[:], old.n*pageSize); err != nil {
			return fmt.Errorf("write scratch file: %w", err)
		}
	}
	got, err := p.scratch.ReadAt(old.data[:], n*pageSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read scratch file: %w", err)
	}
	clear(old.data[got:])
	return nil
}

// append writes bytes behind what ends at a position, and returns its new end.
func (p *paged) append(end int64, b []byte) int64 {
	for len(b) > 0 {
		n := min(len(b), int(pageSize-end%pageSize))
		copy(p.write(end, n), b[:n])
		end, b = end+int64(n), b[n:]
	}
	return end
}

// next returns the size bytes that begin at a position.
func (p *paged) next(pos int64, size int) []byte {
	b := make([]byte, 0, size)
	for len(b) < size {
		n := min(size-len(b), int(pageSize-pos%pageSize))
		b = append(b, p.read(pos, n)...)
		pos += int64(n)
	}
	return b
}

func (p *paged) close() error {
	scratch := p.scratch
	*p = paged{room: p.room, err: errors.Join(p.err, errClosed)}
	if scratch == nil {
		return nil
	}
	return scratch.Close()
}

var errClosed = errors.New("scratch file is closed")

// table maps hashes to numbers. A slot is found by the first bits of a hash, so
// that a table which grows is read and written from its beginning to its end.
type table struct {
	slots paged
	bits  uint // of the number of slots
	n     int64
	seed  maphash.Seed
}

// slotSize is that of a hash, never 0 where there is one, and a number.
const slotSize = 16

// start readies a table for its first use.
func (t *table) start() {
	if t.bits == 0 {
		t.bits = 8 // one page
		t.seed = maphash.MakeSeed()
	}
}

// key returns the hash of a name. Nobody who writes a transcript knows the seed:
// no two names meet on purpose.
func (t *table) key(name string) uint64 {
	t.start()
	return max(1, maphash.String(t.seed, name))
}

func (t *table) seedOf() maphash.Seed {
	t.start()
	return t.seed
}

// find returns the position of a key's slot, or of the one where it belongs.
func (t *table) find(key uint64) (pos int64, there bool) {
	for slot := key >> (64 - t.bits); t.slots.err == nil; slot = (slot + 1) & (1<<t.bits - 1) {
		pos = int64(slot) * slotSize //nolint:gosec // far below
		switch binary.LittleEndian.Uint64(t.slots.read(pos, slotSize)) {
		case key:
			return pos, true
		case 0:
			return pos, false
		}
	}
	return 0, false
}

// get returns the number of a name.
func (t *table) get(name string) (value uint64, there bool) {
	if t.n == 0 {
		return 0, false
	}
	pos, there := t.find(t.key(name))
	if !there {
		return 0, false
	}
	return binary.LittleEndian.Uint64(t.slots.read(pos, slotSize)[8:]), true
}

// set gives a name a number.
func (t *table) set(name string, value uint64) { t.put(t.key(name), value) }

func (t *table) put(key, value uint64) {
	pos, there := t.find(key)
	if t.slots.err != nil {
		return
	}
	if !there {
		if t.n++; t.n > 3<<t.bits/4 {
			t.grow()
			pos, _ = t.find(key)
			if t.slots.err != nil {
				return
			}
		}
	}
	slot := t.slots.write(pos, slotSize)
	binary.LittleEndian.PutUint64(slot, key)
	binary.LittleEndian.PutUint64(slot[8:], value)
}

// grow moves all into a table of twice the size.
func (t *table) grow() {
	old, bits := t.slots, t.bits
	t.slots, t.bits = paged{room: old.room}, bits+1
	for slot := range int64(1) << bits {
		entry := old.read(slot*slotSize, slotSize)
		key, value := binary.LittleEndian.Uint64(entry), binary.LittleEndian.Uint64(entry[8:])
		if key == 0 {
			continue
		}
		pos, _ := t.find(key)
		if t.slots.err != nil {
			break
		}
		slot := t.slots.write(pos, slotSize)
		binary.LittleEndian.PutUint64(slot, key)
		binary.LittleEndian.PutUint64(slot[8:], value)
	}
	t.slots.err = errors.Join(t.slots.err, old.err)
	if err := old.close(); err != nil && t.slots.err == nil {
		t.slots.err = fmt.Errorf("drop scratch file: %w", err)
	}
}
