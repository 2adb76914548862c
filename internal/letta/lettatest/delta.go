package lettatest

import (
	"html"
	"strings"
)

// delta is a piece of a session's transcript as it stands in a user message:
//
//	<transcript_delta id="…" session="…" project="…">
//	<message role="user">escaped text</message>
//	…
//	</transcript_delta>
type delta struct {
	id, session, project string
	messages             []spoken
}

type spoken struct{ role, text string }

// parseDeltas finds the deltas in a text. What is around them, and what does
// not have their form, is no delta and no error: a model would read on too.
func parseDeltas(text string) []delta {
	var out []delta
	for {
		attrs, body, rest, ok := element(text, "transcript_delta")
		if !ok {
			return out
		}
		d := delta{id: attrs["id"], session: attrs["session"], project: attrs["project"]}
		for {
			attrs, inner, after, ok := element(body, "message")
			if !ok {
				break
			}
			d.messages = append(d.messages, spoken{attrs["role"], html.UnescapeString(inner)})
			body = after
		}
		out = append(out, d)
		text = rest
	}
}

// element finds the first element of that name: its attributes, its raw
// content, and what follows it. The content is taken to the first end tag;
// text inside is escaped and holds none.
func element(text, name string) (attrs map[string]string, content, rest string, ok bool) {
	for {
		_, after, found := strings.Cut(text, "<"+name)
		if !found {
			return nil, "", "", false
		}
		text = after
		if after == "" || !strings.ContainsAny(after[:1], " \t\n>") {
			continue // a longer name
		}
		tag, after, found := cutTag(after)
		if !found {
			return nil, "", "", false
		}
		content, rest, found = strings.Cut(after, "</"+name+">")
		if !found {
			return nil, "", "", false
		}
		return attributes(tag), content, rest, true
	}
}

// cutTag cuts at the ">" that ends a tag, which is not one inside quotes.
func cutTag(s string) (tag, rest string, ok bool) {
	quoted := false
	for i := range len(s) {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '>' && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return "", "", false
}

// attributes reads name="value" pairs.
func attributes(tag string) map[string]string {
	out := map[string]string{}
	for {
		name, rest, ok := strings.Cut(tag, `="`)
		if !ok {
			return out
		}
		value, rest, ok := strings.Cut(rest, `"`)
		if !ok {
			return out
		}
		out[strings.TrimSpace(name)] = html.UnescapeString(value)
		tag = rest
	}
}
