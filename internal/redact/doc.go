// Package redact turns raw transcript bytes and free text into Redacted, the
// only string type that leaves a workstation.
//
// A transcript line enters as bytes and leaves as one line of JSON: records of
// a type on the allow-list stay, without second copies, binary payloads,
// secrets and private spans; every other line becomes a stub that says what
// stood there, not what it said. Bytes that need not change do not change, so
// that archived lines can be compared with their source.
//
// Rules are of three kinds: those of this package, which judge names and values
// and know what a key looks like without its head; gitleaks' expressions, run by
// this package's own matcher; and what a team or a project adds. A text is read
// as it stands, without what no reader sees, with its pieces joined, and with
// what it encodes decoded, a bounded number of times.
//
// The package finds what its rules know. It promises that nothing it found is
// still in its result, that its result is valid JSON, that redacting a result
// again changes nothing, and that its running time grows linearly with its
// input, whatever the input says. It does not promise that a secret in a form
// no rule describes is found.
package redact
