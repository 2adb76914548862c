package redact

import "bytes"

// Manifests of Kubernetes Secrets, as kubectl prints them: every value under
// data is a secret, whatever its name is. kind may stand before or behind data.

const (
	manifestRule = "kubernetes-secret"
	minData      = 4 // a shorter value keeps nothing secret
)

// manifest is what is known of a document while its lines are read.
type manifest struct {
	secret bool
	inside bool // under data
	depth  int  // how far data is indented
	values []span
}

// findManifests returns the values of Secrets in text, in YAML or in JSON with
// a line for each member.
func findManifests(text []byte) []span {
	if !bytes.Contains(text, []byte("Secret")) || !bytes.Contains(text, []byte("kind")) {
		return nil
	}
	var spans []span
	var m manifest
	for at := 0; at < len(text); {
		line := text[at:]
		if n := bytes.IndexByte(line, '\n'); n >= 0 {
			line = line[:n]
		}
		if m.line(line, at) {
			if m.secret {
				spans = append(spans, m.values...)
			}
			m = manifest{values: m.values[:0]}
			m.line(line, at)
		}
		at += len(line) + 1
	}
	if m.secret {
		spans = append(spans, m.values...)
	}
	return spans
}

// line reads a line that stands at a position. It reports whether the line
// begins a new document instead.
func (m *manifest) line(line []byte, at int) bool {
	indent := run(line, 0, blankSet)
	if indent == len(line) {
		return false
	}
	body := bytes.TrimRight(line[indent:], " \t\r,")
	if bytes.HasPrefix(line, []byte("---")) || bytes.HasPrefix(body, []byte("- apiVersion")) || bytes.Contains(body, []byte(`"apiVersion"`)) {
		if m.secret || len(m.values) > 0 {
			return true
		}
	}
	key, value := member(body)
	if string(key) == "kind" {
		if string(bytes.Trim(value, ` "'\`)) == "Secret" {
			m.secret = true
		}
		return false
	}
	if !m.inside || indent <= m.depth {
		m.inside = (string(key) == "data" || string(key) == "stringData") && (len(value) == 0 || string(value) == "{")
		if m.depth = indent; body[0] == '-' {
			m.depth++
		}
		return false
	}
	// A member, or a line of a value in several.
	v := bytes.Trim(value, ` "'\`)
	if len(key) == 0 {
		v = bytes.Trim(body, ` "'\`)
	}
	if len(v) < minData || isReference(v) || bytes.IndexByte([]byte("|>{"), v[0]) >= 0 {
		return false
	}
	last := indent + len(bytes.TrimRight(body, ` "'\`))
	first := last - len(v)
	m.values = append(m.values, span{from: at + first, to: at + last, rule: manifestRule, text: placeholder(manifestRule)})
	return false
}

// member splits a line into what stands before its colon, without list signs
// and quotes, and behind it. The key is empty if no name stands there.
func member(body []byte) (key, value []byte) {
	key, value, found := bytes.Cut(body, []byte(":"))
	if !found {
		return nil, body
	}
	key = bytes.Trim(key, `-? "'\`)
	if len(key) == 0 || count(key, wordDot) < len(key) {
		return nil, body
	}
	return key, bytes.TrimLeft(value, " \t")
}

var blankSet = newSet("", " \t")
