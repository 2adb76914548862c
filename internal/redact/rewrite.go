package redact

import (
	"github.com/undersong-dev/undersong/internal/redact/jsonline"
)

// rewriter copies a valid line, replacing parts of it on the way.
type rewriter struct {
	r       *Redactor
	in      []byte
	out     []byte // what stands for in[:copied]
	copied  int
	found   *report
	scratch []byte
	texts   seams          // between what people and tools said
	forced  map[int][]span // what must be replaced, by where its string begins
	ahead   int            // how many bytes were read ahead for what an object is
}

// replace puts text in the place of in[from:to].
func (w *rewriter) replace(from, to int, text string) {
	w.out = append(append(w.out, w.in[w.copied:from]...), text...)
	w.copied = to
}

// result returns the line with all replacements.
func (w *rewriter) result() []byte {
	if w.copied == 0 {
		return w.in
	}
	return append(w.out, w.in[w.copied:]...)
}

// place is where an object stands, if its members have a meaning there.
type place int

const (
	elsewhere place = iota
	ofLine
	ofAttachment
	ofSource // of an image or a document
)

// isCopy reports whether a member repeats the content of its record.
func isCopy(name []byte, at place) bool {
	switch string(name) {
	case "rendered":
		return at == ofLine || at == ofAttachment
	case "toolUseResult":
		return at == ofLine
	}
	return false
}

// value rewrites the value that begins at in[i] and returns where it ends.
func (w *rewriter) value(i int, ctx context, at place) int {
	if ctx.plural {
		if w.in[i] != '[' {
			ctx = context{}
		}
		ctx.plural = false
	}
	switch w.in[i] {
	case '"':
		v := jsonline.Next(w.in, i)
		w.string(v, ctx)
		return v.End
	case '{':
		return w.object(i, at, ctx)
	case '[':
		// What a name says of a list, it says of its elements.
		i = jsonline.SkipSpace(w.in, i+1)
		for w.in[i] != ']' {
			w.text(i)
			i = w.comma(w.value(i, ctx, elsewhere))
		}
		return i + 1
	}
	v := jsonline.Next(w.in, i)
	if v.Kind == jsonline.Number && ctx.class == passName && v.End-v.Start >= 6 {
		w.found.add(assignmentRule, v.Start)
		w.replace(v.Start, v.End, `"`+placeholder(assignmentRule)+`"`)
	}
	return v.End
}

// isManifest reports whether the object that begins at in[open] is a Secret of
// Kubernetes. Objects in objects make it read the same bytes over and over: when
// that was often enough, it takes them for Secrets.
func (w *rewriter) isManifest(open int) bool {
	if w.ahead > 2*len(w.in) {
		return true
	}
	found, end := false, open
	jsonline.Each(w.in, jsonline.Value{Start: open, Kind: jsonline.Object}, func(key, value jsonline.Value) {
		found = found || jsonline.Is(w.in, key, "kind") && jsonline.Is(w.in, value, "Secret")
		end = value.End
	})
	w.ahead += end - open
	return found
}

func isDataName(name []byte) bool { return string(name) == "data" || string(name) == "stringData" }

// text notes the string at in[i], if there is one, as one that may go on in the
// next.
func (w *rewriter) text(i int) {
	if w.in[i] == '"' {
		w.texts.add(w.r, newEdge(w.in, jsonline.Next(w.in, i)))
	}
}

func isTextName(name []byte) bool {
	switch string(name) {
	case "text", "content", "thinking", "prompt":
		return true
	}
	return false
}

// comma returns where the next member or element begins, or the bracket that
// closes them, behind the value that ends at in[i].
func (w *rewriter) comma(i int) int {
	i = jsonline.SkipSpace(w.in, i)
	if w.in[i] == ',' {
		i = jsonline.SkipSpace(w.in, i+1)
	}
	return i
}

// string rewrites a string. If it had to, it returns its inside as it is then.
func (w *rewriter) string(v jsonline.Value, ctx context) (inside []byte, changed bool) {
	in := w.in[v.Start+1 : v.End-1]
	forced := w.forced[v.Start]
	if len(in) < minText && ctx.class == plainName && forced == nil && len(w.r.team)+len(w.r.project)+len(w.r.known) == 0 {
		return nil, false
	}
	base := w.found.base
	if base >= 0 {
		w.found.base += v.Start + 1
	}
	in, w.scratch, changed = w.r.literal(in, v.Plain, ctx, forced, w.found, w.scratch)
	w.found.base = base
	if !changed {
		return nil, false
	}
	w.replace(v.Start+1, v.End-1, string(in))
	return in, true
}

// object rewrites the object that begins at in[open] and returns where it ends.
// ctx is what its own name says.
func (w *rewriter) object(open int, at place, ctx context) int {
	var (
		payload payload
		kept    bool       // some member is kept
		end     = open + 1 // of the last member, kept or not
		i       = jsonline.SkipSpace(w.in, open+1)
	)
	for w.in[i] != '}' {
		key := jsonline.Next(w.in, i)
		from := jsonline.SkipSpace(w.in, jsonline.SkipSpace(w.in, key.End)+1)
		name := w.in[key.Start+1 : key.End-1]
		if !key.Plain {
			name = unescape(nil, name)
		}
		if isCopy(name, at) {
			last := jsonline.Next(w.in, from).End
			next := w.comma(last)
			switch {
			case kept: // with the comma before it
				w.replace(end, last, "")
			case w.in[next] != '}': // with the comma behind it
				w.replace(key.Start, next, "")
			default:
				w.replace(key.Start, last, "")
			}
			end, i = last, next
			continue
		}
		kept = true
		if !structural[string(name)] {
			// A value is judged by the name that it has afterwards.
			if inside, changed := w.string(key, context{}); changed {
				name = unescape(nil, inside)
			}
		}
		if w.in[from] == '"' && isPayloadName(name) {
			end = w.payload(open, from, at, &payload)
		} else {
			if isTextName(name) {
				w.text(from)
			}
			below := contextOf(name)
			switch {
			case ctx.class == dataOfSecret, below.class == plainName && ctx.class != plainName && valueNames[string(name)]:
				below = ctx
			case w.in[from] == '{' && isDataName(name) && w.isManifest(open):
				below = context{class: dataOfSecret}
			}
			below.fixed = fixedNames[string(name)] && (at == ofLine || at == ofAttachment)
			end = w.value(from, below, placeOf(name, at))
		}
		i = w.comma(end)
	}
	return i + 1
}

// fixedNames are members of a record that machines read.
var fixedNames = newWords(`
	type subtype uuid parentUuid logicalParentUuid sessionId session_id agentId timestamp version userType entrypoint requestId promptId
	permissionMode promptSource rowSource leafUuid prNumber level
`)

// valueNames are names that leave it to the object's own name what stands there.
var valueNames = newWords("value val values data stringData raw plain current default text content secret")

func placeOf(name []byte, at place) place {
	switch {
	case at == ofLine && string(name) == "attachment":
		return ofAttachment
	case string(name) == "source":
		return ofSource
	}
	return elsewhere
}

func contextOf(name []byte) context {
	if structural[string(name)] {
		return context{}
	}
	c := classify(name)
	if c == plainName {
		// The plural of a name that says secret, whose value is a list.
		n := len(name) - 1
		if n < 4 || name[n] != 's' {
			return context{}
		}
		if c = classify(name[:n]); c == plainName {
			return context{}
		}
		return context{class: c, name: name[:n], plural: true}
	}
	return context{class: c, name: name}
}

// structural are the member names of which transcripts are made: looking them
// up is cheaper than looking at them.
var structural = newWords(`
	type subtype role content text message uuid parentUuid logicalParentUuid sessionId session_id agentId timestamp cwd gitBranch version
	userType entrypoint isSidechain isMeta requestId promptId id model stop_reason stop_sequence stop_details usage input_tokens
	output_tokens cache_creation_input_tokens cache_read_input_tokens cache_creation ephemeral_1h_input_tokens ephemeral_5m_input_tokens
	service_tier server_tool_use tool_use_id name input is_error thinking signature command description file_path pattern path url
	old_string new_string replace_all prompt attachment source media_type data permissionMode promptSource origin kind rowSource
	turnOrigin turnPosition promptIndex turnIndex sentAtMs sourceToolAssistantUUID apiBlockIndex caller iterations slug
`)

// payload is what an object says about its payload.
type payload struct {
	read  bool
	media string
	text  bool // it is a document in plain text
}

func isPayloadName(name []byte) bool {
	switch string(name) {
	case "data", "base64", "blob":
		return true
	}
	return false
}

// minPayload is the length from which a string of base64 under the name of a
// payload is one wherever it stands.
const minPayload = 64

// payload rewrites the string at in[from], a member of the object at in[open]
// under the name of a payload, and returns where it ends.
func (w *rewriter) payload(open, from int, at place, p *payload) int {
	v := jsonline.Next(w.in, from)
	if !p.read {
		p.read = true
		jsonline.Each(w.in, jsonline.Value{Start: open, Kind: jsonline.Object}, func(key, value jsonline.Value) {
			switch {
			case jsonline.Is(w.in, key, "media_type"), jsonline.Is(w.in, key, "mimeType"), jsonline.Is(w.in, key, "mediaType"):
				p.media = jsonline.Text(w.in, value)
			case jsonline.Is(w.in, key, "type"):
				p.text = jsonline.Is(w.in, value, "text")
			}
		})
	}
	in := w.in[v.Start+1 : v.End-1]
	if !v.Plain {
		w.scratch = unescape(w.scratch[:0], in)
		in = w.scratch
	}
	always := at == ofSource && !p.text && len(in) > 0
	if isWithheld(in) || !always && !looksEncoded(in, minPayload) {
		w.string(v, context{})
		return v.End
	}
	w.found.add(binaryRule, v.Start+1)
	w.replace(v.Start+1, v.End-1, withheld(mediaType(p.media), decodedSize(in)))
	return v.End
}
