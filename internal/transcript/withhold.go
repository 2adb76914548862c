package transcript

import "github.com/undersong-dev/undersong/internal/redact/jsonline"

// Withheld stands for what a team's policy does not hear.
const Withheld = "[withheld by the team's policy]"

// Without returns the line of a record without the thinking and the results of
// tools that the policy does not hear: Withheld stands in their place, all other
// bytes are unchanged. It says how many places these are. called says whether a
// call, by its id, was one of a tool that is local.
func (r Record) Without(policy Policy, called func(id string) bool) (line []byte, thoughts, results int) {
	if r.Type != "assistant" && r.Type != "user" {
		return r.raw, 0, 0
	}
	var (
		out    []byte
		copied int
		space  [8]block
	)
	replace := func(v jsonline.Value) {
		out = append(append(out, r.raw[copied:v.Start]...), `"`+Withheld+`"`...)
		copied = v.End
	}
	for _, b := range r.read(space[:]).blocks {
		switch {
		case b.kind == thinkingBlock && !policy.Thinking && b.thinking.Kind == jsonline.String && b.thinking.End-b.thinking.Start > 2:
			replace(b.thinking)
			thoughts++
		case b.kind == toolResultBlock && b.content.End > b.content.Start && !policy.hearsResult(func() bool { return called(r.text(b.call)) }):
			replace(b.content)
			results++
		}
	}
	if copied == 0 {
		return r.raw, 0, 0
	}
	return append(out, r.raw[copied:]...), thoughts, results
}

// hearsResult says whether the result of a tool is heard.
func (p Policy) hearsResult(local func() bool) bool {
	switch p.ToolResults {
	case AllResults:
		return true
	case NoResults:
		return false
	case LocalResults:
	}
	return local()
}

// LocalCalls returns the ids of the record's calls of tools whose results are
// the workstation's own.
func (r Record) LocalCalls() (ids []string) {
	if r.Type != "assistant" {
		return nil
	}
	var space [8]block
	for _, b := range r.read(space[:]).blocks {
		if b.kind == toolUseBlock && local[r.text(b.name)] {
			ids = append(ids, r.text(b.id))
		}
	}
	return ids
}

// Results returns the ids of the calls whose results the record holds.
func (r Record) Results() (ids []string) {
	if r.Type != "user" {
		return nil
	}
	var space [8]block
	for _, b := range r.read(space[:]).blocks {
		if b.kind == toolResultBlock {
			ids = append(ids, r.text(b.call))
		}
	}
	return ids
}
