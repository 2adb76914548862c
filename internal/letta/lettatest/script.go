package lettatest

import (
	"html"
	"strings"

	"github.com/undersong-dev/undersong/internal/letta/modelstub"
)

// Script is the rules of this package as a model behind a real server: what
// teaches is written with the agent's own tool, memory, and what a colleague's
// session taught is said. It is an [modelstub.Options.Respond].
//
// A model has no state. What it knows is the request: the memory in the system
// prompt, this conversation's earlier messages, and what a tool answered.
func Script(r modelstub.Request) modelstub.Step {
	var prompt, last string
	var before []string // what users said in this conversation until now
	tool := false
	for _, m := range r.Messages {
		switch tool = m.Role == "tool"; m.Role {
		case "system":
			prompt += m.Text() + "\n"
		case "user":
			if last != "" {
				before = append(before, last)
			}
			last = m.Text()
		}
	}
	a := remembered(prompt)
	c := &conversation{ID: "this", Deltas: map[string]bool{}}
	for _, text := range before {
		for _, d := range parseDeltas(text) {
			c.Deltas[d.id] = true
		}
	}
	mine := html.UnescapeString(strings.Join(append(before, last), "\n"))
	for _, label := range labels {
		for _, l := range lines(a.block(label).Value) {
			// A line that was said here was taught here.
			if strings.Contains(mine, l) {
				a.Teachers[label+"\n"+l] = session(last, c.ID)
			}
		}
	}
	known := map[string]string{}
	for _, label := range labels {
		known[label] = a.block(label).Value
	}
	reply, changed := a.hear(c, last)
	if tool || len(changed) == 0 {
		// After a call of the tool the memory in the prompt may or may not be
		// new. Either way there was one call, and now there is the answer.
		return modelstub.Step{Text: reply}
	}
	var calls []modelstub.Call
	for _, label := range labels {
		added := strings.TrimPrefix(a.block(label).Value, known[label])
		if added == "" {
			continue
		}
		calls = append(calls, modelstub.Call{Name: "memory", Arguments: map[string]any{
			"command": "insert", "reason": "a session taught it", "file_path": "system/" + label + ".md",
			"insert_line": 1 << 20, "insert_text": strings.TrimSpace(added),
		}})
	}
	return modelstub.Step{Calls: calls}
}

// session is the session of a text's deltas.
func session(text, fallback string) string {
	for _, d := range parseDeltas(text) {
		if d.session != "" {
			return d.session
		}
	}
	return fallback
}

// remembered reads the blocks out of a system prompt: the lines that begin with
// a bullet, of the last element that is named like the block.
func remembered(prompt string) *agent {
	a := &agent{Teachers: map[string]string{}}
	for _, label := range labels {
		b := newBlock(block{Label: label})
		rest := prompt
		for {
			_, content, after, ok := element(rest, label)
			if !ok {
				break
			}
			b.Value, rest = "", after
			for l := range strings.Lines(content) {
				if l = strings.TrimSpace(l); strings.HasPrefix(l, "- ") {
					b.Value += html.UnescapeString(l) + "\n"
				}
			}
		}
		a.Blocks = append(a.Blocks, b)
	}
	return a
}
