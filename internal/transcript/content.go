package transcript

import (
	"bytes"

	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// message is what is needed of the message of a record.
type message struct {
	id, model, usage jsonline.Value
	blocks           []block
	bare             bool // the content is a string, not an array of blocks
}

// blockKind is the kind of a content block.
type blockKind uint8

const (
	otherBlock  blockKind = iota
	stringBlock           // no block, but a bare string: text
	textBlock
	thinkingBlock
	toolUseBlock
	toolResultBlock
	imageBlock
	documentBlock
)

var blockKinds = map[string]blockKind{
	"text": textBlock, "thinking": thinkingBlock, "image": imageBlock, "document": documentBlock,
	"tool_use": toolUseBlock, "server_tool_use": toolUseBlock, "mcp_tool_use": toolUseBlock, "tool_result": toolResultBlock,
}

// block is one block of a content. Its values are those of the block's own
// members, of no Kind where it has none.
type block struct {
	kind     blockKind
	text     jsonline.Value
	thinking jsonline.Value
	id, call jsonline.Value // of a tool's call, and of the call that a result belongs to
	name     jsonline.Value // of a tool
	input    jsonline.Value // what a call asks
	content  jsonline.Value // what a result gives
	hasError bool
}

// walker goes through a line that Parse has found valid. So it looks at each
// byte once where jsonline, which trusts nothing, must look as often as values
// are nested: that made half the time of reading words.
type walker struct{ b []byte }

// read finds what is needed of the record's message. The blocks are appended
// to space, which may be a caller's on the stack.
func (r Record) read(space []block) (m message) {
	if r.message.Kind != jsonline.Object {
		return m
	}
	w := walker{r.raw}
	for i, key := w.first(r.message.Start); i > 0; i, key = w.next(i) {
		v := w.value(i)
		switch string(key) {
		case "content":
			if v.Kind == jsonline.Array {
				m.blocks, i = w.blocks(i, space[:0])
				m.bare = false
				continue
			}
			m.blocks, m.bare = space[:0], v.Kind == jsonline.String
			if v.Kind == jsonline.String {
				v = w.whole(v)
				m.blocks = append(m.blocks, block{kind: stringBlock, text: v})
			}
		case "model":
			m.model = w.whole(v)
		case "id":
			m.id = w.whole(v)
		case "usage":
			m.usage = w.whole(v)
		}
		i = w.skip(i)
	}
	return m
}

// blocks reads the array at i and returns the position behind it.
func (w walker) blocks(i int, blocks []block) ([]block, int) {
	for i = w.space(i + 1); w.b[i] != ']'; {
		if w.b[i] == ',' {
			i = w.space(i + 1)
			continue
		}
		switch v := w.value(i); v.Kind {
		case jsonline.String:
			v = w.whole(v)
			blocks = append(blocks, block{kind: stringBlock, text: v})
			i = w.space(v.End)
		case jsonline.Object:
			var b block
			b, i = w.block(i)
			blocks = append(blocks, b)
			i = w.space(i)
		default: // nothing that anybody says
			i = w.space(w.skip(i))
		}
	}
	return blocks, i + 1
}

// block reads the object at i and returns the position behind it.
func (w walker) block(i int) (block, int) {
	var b block
	end := w.space(i+1) + 1 // of an empty one
	for j, key := w.first(i); j > 0; j, key = w.next(j) {
		v := w.value(j)
		j = w.skip(j)
		v.End = j
		end = w.space(j) + 1
		switch string(key) {
		case "type":
			b.kind = w.kind(v)
		case "text":
			b.text = v
		case "thinking":
			b.thinking = v
		case "id":
			b.id = v
		case "tool_use_id":
			b.call = v
		case "name":
			b.name = v
		case "input":
			b.input = v
		case "content":
			b.content = v
		case "is_error":
			b.hasError = v.Kind == jsonline.True
		}
	}
	return b, end
}

func (w walker) kind(v jsonline.Value) blockKind {
	if v.Kind != jsonline.String {
		return otherBlock
	}
	name := w.b[v.Start+1 : v.End-1]
	if kind, ok := blockKinds[string(name)]; ok || bytes.IndexByte(name, '\\') < 0 {
		return kind
	}
	return blockKinds[jsonline.Text(w.b, v)]
}

// first returns the position of the first member's value in the object at i, and
// the member's name; 0 if it has none.
func (w walker) first(i int) (int, []byte) {
	return w.member(w.space(i + 1))
}

// next returns the position of the value and the name of the member behind the
// value that ends at i, 0 if that was the last.
func (w walker) next(i int) (int, []byte) {
	i = w.space(i)
	if w.b[i] != ',' {
		return 0, nil
	}
	return w.member(w.space(i + 1))
}

func (w walker) member(i int) (int, []byte) {
	if w.b[i] == '}' {
		return 0, nil
	}
	end := w.str(i)
	name := w.b[i+1 : end-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = jsonline.AppendText(nil, w.b, jsonline.Value{Start: i, End: end, Kind: jsonline.String})
	}
	return w.space(w.space(end) + 1), name
}

// value returns the value at i, without its end.
func (w walker) value(i int) jsonline.Value {
	v := jsonline.Value{Start: i}
	switch w.b[i] {
	case '"':
		v.Kind = jsonline.String
	case '{':
		v.Kind = jsonline.Object
	case '[':
		v.Kind = jsonline.Array
	case 't':
		v.Kind = jsonline.True
	case 'f':
		v.Kind = jsonline.False
	case 'n':
		v.Kind = jsonline.Null
	default:
		v.Kind = jsonline.Number
	}
	return v
}

// whole returns the value with its end.
func (w walker) whole(v jsonline.Value) jsonline.Value {
	v.End = w.skip(v.Start)
	return v
}

// skip returns the position behind the value at i.
func (w walker) skip(i int) int {
	switch w.b[i] {
	case '"':
		return w.str(i)
	case '{', '[':
		for depth := 0; ; {
			switch w.b[i] {
			case '"':
				i = w.str(i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i < len(w.b) { // a number or a word
		switch w.b[i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return i
		}
		i++
	}
	return i
}

// str returns the position behind the string at i.
func (w walker) str(i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(w.b[i:], '"')
		n := i
		for w.b[n-1] == '\\' {
			n--
		}
		if (i-n)%2 == 0 {
			return i + 1
		}
	}
}

func (w walker) space(i int) int {
	for i < len(w.b) && w.b[i] <= ' ' {
		i++
	}
	return i
}
