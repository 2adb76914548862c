package redact

// RulesVersion names the set of rules. It goes into segment headers: a reader
// that knows newer rules scans again.
const RulesVersion = "1"

// Findings counts what was replaced, by name of the rule. It never holds a
// value.
type Findings map[string]int

// Redactor scans lines and texts. It is safe for concurrent use.
type Redactor struct{}

// New returns a Redactor with the built-in rules, compiled once.
func New() (*Redactor, error) { return &Redactor{}, nil }

// Line returns one transcript line, given without its LF, as it may leave the
// workstation. The result is one line of valid JSON.
func (r *Redactor) Line(raw []byte) (Redacted, Findings) {
	return Redacted{text: `{"type":"undersong-stub","of":"bad-line"}`}, nil
}

// Text returns free text, such as a title, a branch or a whisper, without the
// secrets in it.
func (r *Redactor) Text(s string) (Redacted, Findings) { return Redacted{}, nil }
