package redact

import (
	"bytes"
	"math"
	"strings"
)

// Assignments: a name that says secret, a sign, and a value. Names are told by
// their words, values by how they are written down: the same letters are a
// secret in an .env file and a variable in source code.

const assignmentRule = "assignment"

// assignmentWords are what a name must hold to be looked at.
var assignmentWords = []string{
	"pass", "pwd", "secret", "token", "key", "credential", "_auth",
}

// class says what a name promises.
type class int

const (
	plainName    class = iota // nothing
	weakName                  // …_KEY: a secret if the value looks like one
	keyName                   // a token or key: no ordinary word
	passName                  // a password: any word may be one
	headerName                // an HTTP header with a scheme
	cookieHeader              // an HTTP header with cookies
	dataOfSecret              // it stands in the data of a Secret of Kubernetes
)

// Words of names. A name is judged by its last words: a tokenURL is no token.
var (
	passWords = map[string]bool{
		"password": true, "passwd": true, "passphrase": true, "pwd": true, "pass": true, "passcode": true, "passwort": true,
	}
	keyWords = map[string]bool{
		"secret": true, "token": true, "apikey": true, "credential": true, "credentials": true, "auth": true,
		"secretkey": true, "accesskey": true, "privatekey": true, "authkey": true, "accountkey": true, "sharedkey": true,
	}
	// A key of these is a secret; a cache key is not.
	keyOf = map[string]bool{
		"api": true, "access": true, "secret": true, "private": true, "auth": true, "encryption": true, "signing": true,
		"master": true, "account": true, "service": true, "session": true, "shared": true, "ssh": true, "deploy": true,
		"webhook": true, "license": true, "app": true, "application": true, "client": true, "consumer": true,
		"subscription": true, "hmac": true, "jwt": true, "aes": true, "storage": true,
	}
	// Words behind the one that counts which do not change what it is.
	afterName = map[string]bool{
		"value": true, "val": true, "str": true, "string": true, "b64": true, "base64": true, "raw": true, "plain": true,
		"plaintext": true, "encoded": true, "text": true, "prod": true, "production": true, "dev": true, "development": true,
		"staging": true, "test": true, "live": true, "default": true, "current": true, "old": true, "new": true,
		"data": true, "pem": true, "base": true,
	}
	// A name with one of these behind speaks of a secret without being one.
	aboutName = map[string]bool{
		"name": true, "id": true, "ids": true, "url": true, "uri": true, "path": true, "file": true, "filename": true, "dir": true, "type": true,
		"length": true, "len": true, "size": true, "count": true, "limit": true, "max": true, "min": true, "ttl": true, "expiry": true,
		"expires": true, "expiration": true, "age": true, "ref": true, "policy": true, "hash": true, "algorithm": true, "alg": true,
		"issuer": true, "enabled": true, "required": true, "header": true, "field": true, "endpoint": true, "host": true, "port": true,
		"region": true, "version": true, "user": true, "username": true, "email": true, "label": true, "index": true, "prefix": true,
		"suffix": true, "format": true, "manager": true, "store": true, "provider": true, "class": true, "kind": true, "status": true,
		"s": true, "usage": true, "budget": true, "cost": true, "code": true, "board": true, "frame": true, "word": true, "words": true,
		"space": true, "namespace": true, "set": true, "map": true, "list": true, "by": true, "at": true, "in": true, "on": true,
		"rotation": true, "rule": true, "rules": true, "checksum": true, "fingerprint": true, "mode": true, "scope": true, "scopes": true,
	}
	// A key of these is nobody's secret.
	openKey = map[string]bool{
		"public": true, "pub": true, "primary": true, "foreign": true, "cache": true, "sort": true, "partition": true, "unique": true,
		"hot": true, "shortcut": true, "idempotency": true, "object": true, "row": true, "map": true, "dict": true, "group": true,
		"publishable": true, "site": true, "translation": true, "i18n": true, "lookup": true, "registry": true, "event": true, "hash": true, "range": true,
		"dedup": true, "message": true, "file": true, "s3": true, "bucket": true, "index": true, "composite": true, "natural": true, "schema": true, "query": true, "item": true, "entry": true,
	}
)

// classify judges a name. Where the name's words end with the one that counts,
// or with that and words that change nothing, it is strong.
func classify(name []byte) class {
	var words nameWords
	words.split(name)
	for words.n > 1 {
		w := words.at(words.n - 1)
		if !afterName[string(w)] && count(w, digit) < len(w) {
			break
		}
		words.n--
	}
	if words.n == 0 {
		return plainName
	}
	last := words.at(words.n - 1)
	for len(last) > 0 && digit[last[len(last)-1]] {
		last = last[:len(last)-1]
	}
	var before []byte
	if words.n > 1 {
		before = words.at(words.n - 2)
	}
	switch {
	case passWords[string(last)] || hasAnySuffix(last, "password", "passwd", "passphrase"):
		if string(last) == "pass" && len(before) == 0 && !isUpper(name) {
			return plainName // the verb
		}
		return passName
	case string(last) == "auth":
		if bytes.HasPrefix(name, []byte("_auth")) {
			return keyName
		}
		return plainName
	case string(last) == "authorization":
		return headerName
	case string(last) == "cookie" && (len(before) == 0 || string(before) == "set"):
		return cookieHeader
	case keyWords[string(last)] || hasAnySuffix(last, "secret", "token", "apikey", "secretkey", "accesskey", "privatekey", "accountkey"):
		return keyName
	case string(last) == "key" && keyOf[string(before)]:
		return keyName
	case string(last) == "key" && len(before) > 0 && !openKey[string(before)]:
		return weakName
	}
	// The word stands further ahead: GITHUB_TOKEN_CI is one, TOKEN_URL is not.
	if !isUpper(name) {
		return plainName
	}
	for i := words.n - 2; i >= 0; i-- {
		if passWords[string(words.at(i))] || keyWords[string(words.at(i))] {
			for j := i + 1; j < words.n; j++ {
				if aboutName[string(words.at(j))] {
					return plainName
				}
			}
			return weakName
		}
	}
	return plainName
}

// nameWords are the words of a name, in lower case. Positions instead of slices
// keep it on the stack: names are looked at so often that allocations would be
// most of the work.
type nameWords struct {
	buf  [maxName]byte
	list [12]struct{ from, to uint8 }
	n    int
}

// at returns a word.
func (w *nameWords) at(i int) []byte { return w.buf[w.list[i].from:w.list[i].to] }

// split splits a name at signs and at changes of case. Of a longer name than
// any is it takes the end.
func (w *nameWords) split(name []byte) {
	name = name[max(0, len(name)-len(w.buf)):]
	from := 0
	for i, c := range name {
		w.buf[i] = c
		if upper[c] {
			w.buf[i] |= 0x20
		}
		switch {
		case !alnum[c]:
			w.cut(from, i)
			from = i + 1
		case i > from && upper[c] && (lower[name[i-1]] || i+1 < len(name) && lower[name[i+1]]):
			w.cut(from, i)
			from = i
		}
	}
	w.cut(from, len(name))
}

func (w *nameWords) cut(from, to int) {
	if to <= from {
		return
	}
	if w.n == len(w.list) { // the last ones count
		copy(w.list[:], w.list[1:])
		w.n--
	}
	w.list[w.n] = struct{ from, to uint8 }{uint8(from), uint8(to)} //nolint:gosec // a name is shorter than 256 bytes
	w.n++
}

func hasAnySuffix(s []byte, suffixes ...string) bool {
	for _, suffix := range suffixes {
		if len(s) >= len(suffix) && string(s[len(s)-len(suffix):]) == suffix {
			return true
		}
	}
	return false
}

func isUpper(name []byte) bool { return count(name, lower) == 0 }

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// writing says how a value is written down.
type writing int

const (
	bare    writing = iota // among other words: prose, or source code
	lined                  // name: value, and nothing else on the line
	ini                    // name = value, and nothing else on the line
	alone                  // NAME=value without blanks
	env                    // the same at the start of a line
	flag                   // --name value
	element                // <name>value</name>
	quoted                 // between quotes, or a value of JSON
	phrased                // the password is …
	section                // name = value, in a section of a file of settings
)

// Bounds of what is looked at before it is known to be a secret.
const (
	maxName  = 64
	maxValue = 96
)

// matchAssignment takes the value of a name that says secret.
func matchAssignment(text []byte, at, end int) (int, int, int) {
	from, to := at, end
	for from > 0 && at-from < maxName && wordDot[text[from-1]] {
		from--
	}
	for to < len(text) && to-end < maxName && wordDot[text[to]] {
		to++
	}
	if at-from == maxName || to-end == maxName {
		return none, 0, to // no name
	}
	name := bytes.TrimRight(text[from:to], ".-")
	if len(name) == 0 || from >= len(marker) && string(text[from-len(marker):from]) == marker {
		return none, 0, to
	}
	stop := from + len(name)
	if stop < len(text) && text[stop] == '.' {
		return none, 0, to // the end of a sentence
	}
	if first := spacedName(text, from, name); first < from {
		from, name = first, text[first:stop]
	}
	value, how := assigned(text, from, stop, name)
	if value < 0 {
		return none, 0, to
	}
	name = bytes.TrimLeft(name, "-.")
	kind := classify(name)
	if n := len(name) - 1; kind == plainName && n > 3 && name[n] == 's' && value < len(text) && text[value] == '[' {
		kind = classify(name[:n]) // of a list
	}
	if kind == plainName || how == phrased && kind == weakName {
		return none, 0, to
	}
	if value < len(text) && how != phrased && how != flag {
		if first, last := blockScalar(text, from, value); first < last {
			if !holdsSecret(text[first:last], kind, name) {
				return none, 0, max(to, value)
			}
			return first, last, last
		}
		if text[value] == '[' {
			if first, last := listed(text, value, kind, name); first < last {
				return first, last, last
			}
		}
	}
	first, last, how := valueOf(text, value, how)
	switch {
	case how == bare && last < len(text) && (text[last] == '(' || text[last] == '['):
		return none, 0, to // a call
	case how == element && !bytes.HasPrefix(text[last:], []byte("</")):
		return none, 0, to // a placeholder in angle brackets
	case how == quoted && first < last && bytes.IndexByte([]byte("+),;]} "), text[first]) >= 0:
		return none, 0, to // the quote closes what the name stands in
	}
	if how == flag && count(text[first:last], lower) == last-first && !endsCommand(text, last) {
		return none, 0, to // the words of a sentence
	}
	if !isSecret(text[first:last], kind, how, name) {
		return none, 0, to
	}
	if last-first == maxValue {
		last = first + valueRun(text[first:], stops(how))
	}
	return first, last, max(to, last)
}

// spacedName returns where the name "api key" begins whose last word begins at
// text[from].
func spacedName(text []byte, from int, name []byte) int {
	if len(name) != len("key") || !bytes.EqualFold(name, []byte("key")) || from < 4 || text[from-1] != ' ' {
		return from
	}
	first := from - 1
	for first > 0 && from-first < 16 && alnum[text[first-1]] {
		first--
	}
	if keyOf[string(bytes.ToLower(text[first:from-1]))] {
		return first
	}
	return from
}

// commands are what stands before a name and a value that a blank sets apart.
var commands = []string{"ENV ", "setx ", "set -x ", "set -gx ", "set -Ux ", "git config ", "git config --global ", "git config --local "}

// isCommand reports whether a command that takes a name and a value ends at
// text[i].
func isCommand(text []byte, i int) bool {
	for _, c := range commands {
		if n := i - len(c); n >= 0 && string(text[n:i]) == c && bounds(text, n) {
			return true
		}
	}
	return false
}

// blockScalar returns the lines of a value that YAML has below its name, which
// begins at text[name], 0, 0 if text[i] begins none.
func blockScalar(text []byte, name, i int) (first, last int) {
	if text[i] != '|' && text[i] != '>' {
		return 0, 0
	}
	i = blanks(text, run(text[:min(len(text), i+3)], i+1, blockSigns))
	if i < len(text) && text[i] == '\r' {
		i++
	}
	if i >= len(text) || text[i] != '\n' {
		return 0, 0
	}
	begin := name
	for begin > 0 && name-begin < maxName && text[begin-1] != '\n' {
		begin--
	}
	outer := run(text, begin, blankSet) - begin
	first = i + 1
	first = run(text, first, blankSet)
	for at := i + 1; at < len(text); {
		body := run(text, at, blankSet)
		end := len(text)
		if n := bytes.IndexByte(text[body:], '\n'); n >= 0 {
			end = body + n
		}
		if body < end && body-at <= outer {
			break
		}
		if body < end {
			last = end
		}
		at = end + 1
	}
	return first, last
}

var blockSigns = newSet("09", "+-")

// holdsSecret reports whether a line or a word of several is a secret.
func holdsSecret(text []byte, kind class, name []byte) bool {
	for line := range bytes.SplitSeq(text[:min(len(text), maxAhead)], []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) > 0 && isSecret(line, kind, element, name) {
			return true
		}
	}
	return false
}

// listed returns the elements of a list that begins at text[i], from the first
// that is a secret to the last.
func listed(text []byte, i int, kind class, name []byte) (first, last int) {
	limit := min(len(text), i+maxAhead)
	for i++; i < limit; i++ {
		switch text[i] {
		case ' ', '\t', '\n', '\r', ',', '\\':
			continue
		case '"', '\'':
		default:
			return first, last // the end of the list, or no list of texts
		}
		begin := i + 1
		escaped := text[i-1] == '\\'
		end := closing(text[:limit], begin, escaped)
		if isSecret(text[begin:end], kind, quoted, name) {
			if first == 0 {
				first = begin
			}
			last = end
		}
		if i = end; escaped {
			i++
		}
	}
	return first, last
}

// assigned returns where the value of a name text[from:to] begins, < 0 if
// nothing is assigned to it.
func assigned(text []byte, from, to int, name []byte) (int, writing) {
	i := closers(text, to)
	signed := blanks(text, i)
	if signed == len(text) {
		return none, bare
	}
	rest := text[signed:]
	switch c := rest[0]; {
	case c == '=' || c == ':':
		size := 1
		for size < len(rest) && size < 3 && bytes.IndexByte([]byte("=>:"), rest[size]) >= 0 {
			size++
		}
		value := blanks(text, signed+size)
		return value, lineForm(text, from, i, signed, signed+size, value, c)
	case c == '!' && len(rest) > 1 && rest[1] == '=':
		return blanks(text, signed+run(rest, 1, equalSigns)), bare
	case c == '>' && from > 0 && text[from-1] == '<' && i == signed: // an element
		return signed + 1, element
	case signed > to && bytes.HasPrefix(name, []byte("--")):
		return signed, flag
	case signed > to && i == to && isCommand(text, from):
		return signed, alone
	case signed > to+1 && passWords[strings.ToLower(string(name))] && inColumn(text, from, signed):
		return signed, ini
	case c == '|' && signed > to && from > 1 && bytes.IndexByte(text[max(0, from-8):from], '|') >= 0: // a row of a table
		return blanks(text, signed+1), bare
	case signed > to && (c == '\'' || c == '"') && i == to && passWords[strings.ToLower(string(name))]: // SQL
		return signed, quoted
	}
	return phrase(text, signed, signed > to)
}

// inColumn reports whether a name and the value at text[value] stand alone in a
// line, in two columns.
func inColumn(text []byte, name, value int) bool {
	begin := name
	for begin > 0 && name-begin < 32 && (text[begin-1] == ' ' || text[begin-1] == '\t') {
		begin--
	}
	if begin > 0 && text[begin-1] != '\n' {
		return false
	}
	to := plainWord(text, value)
	end := blanks(text, to)
	return to > value && (end == len(text) || text[end] == '\n' || text[end] == '\r')
}

// endsCommand reports whether what follows a word at text[i] is what may follow
// the value of an option, rather than the next word of a sentence.
func endsCommand(text []byte, i int) bool {
	i = closers(text, i)
	next := blanks(text, i)
	return next == len(text) || next > i && text[next] == '-' || bytes.IndexByte([]byte("\n\r|&;<>\\$#"), text[next]) >= 0
}

var equalSigns = newSet("==", "")

// lineForm tells assignments of configuration from those of source code.
func lineForm(text []byte, from, closed, signed, after, value int, sign byte) writing {
	begin := from
	for begin > 0 && (text[begin-1] == ' ' || text[begin-1] == '\t' || text[begin-1] == '-' || text[begin-1] == '"' || text[begin-1] == '\'') {
		begin--
	}
	dotted := bytes.IndexByte(text[from:closed], '.') >= 0 // a member, in source code
	if begin > 0 && (text[begin-1] == '+' || text[begin-1] == '>') {
		begin-- // a diff, a quotation
	}
	startsLine := begin == 0 || text[begin-1] == '\n' || begin >= 2 && text[begin-1] == 'n' && text[begin-2] == '\\'
	if sign == '=' && closed == signed && after == value && after == signed+1 {
		// No blanks: shells, queries, connection strings.
		if begin == from && startsLine {
			return env
		}
		return alone
	}
	if startsLine && (sign == ':' || after == signed+1) {
		line := text[value:min(len(text), value+maxValue)]
		for _, end := range []string{"\n", `\n`, `\r`} {
			line, _, _ = bytes.Cut(line, []byte(end))
		}
		line = bytes.TrimRight(line, " \t\r")
		if sign == ':' && len(line) > 1 && (line[0] == '&' || line[0] == '!') { // an anchor, a tag
			_, line, _ = bytes.Cut(line, []byte(" "))
		}
		if sign == '=' && !dotted && len(line) > 1 && (line[0] == '"' || line[0] == '\'') && inSection(text, begin) {
			return section
		}
		if !bytes.ContainsAny(line, " \t(){}[];,") {
			if sign == ':' {
				return lined
			}
			if !dotted {
				if inSection(text, begin) {
					return section
				}
				return ini
			}
		}
	}
	return bare
}

// inSection reports whether the line at text[begin] lies in a section of a file of
// settings: above it stand others like it, comments, and the head of the section.
// In source code such a line assigns one variable to another.
func inSection(text []byte, begin int) bool {
	const lines, width = 8, 96
	for n := 0; n < lines && begin > 0 && text[begin-1] == '\n'; n++ {
		end := begin - 1
		begin = lineStart(text, end, width)
		if end-begin >= width {
			return false
		}
		line := bytes.TrimSpace(text[begin:end])
		switch {
		case len(line) == 0 || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			last := len(line) - 1
			return last > 1 && line[last] == ']' && run(line, 1, sectionSet) == last
		default:
			name := run(line, 0, wordDot)
			if sign := blanks(line, name); name == 0 || sign == len(line) || line[sign] != '=' || bytes.ContainsAny(line[sign:], "(){};") {
				return false
			}
		}
	}
	return false
}

var sectionSet = newSet("09azAZ", "_-.: \"'/@*")

// phrase finds the value in "the password is …" and "the password for it is …",
// behind blanks.
func phrase(text []byte, i int, apart bool) (int, writing) {
	if !apart {
		return none, bare
	}
	line := text[i:min(len(text), i+64)]
	if n := bytes.IndexAny(line, "\n.;"); n >= 0 {
		line = line[:n+1]
	}
	at := 0
	if bytes.HasPrefix(line, []byte("for ")) || bytes.HasPrefix(line, []byte("of ")) || bytes.HasPrefix(line, []byte("to ")) {
		n := bytes.Index(line, []byte(" is "))
		if n < 0 {
			return none, bare
		}
		at = n + 1
	}
	for _, verb := range []string{"is ", "is: ", "was ", "will be ", "should be ", "ist "} {
		if bytes.HasPrefix(line[at:], []byte(verb)) {
			i = blanks(text, i+at+len(verb))
			for _, filler := range []string{"now ", "currently ", "still ", "just "} {
				if bytes.HasPrefix(text[i:], []byte(filler)) {
					i += len(filler)
				}
			}
			return i, phrased
		}
	}
	return none, bare
}

// valueOf returns where the value at text[i] begins and ends, and how it is
// written if its own form says more. A value that is not quoted ends after
// maxValue bytes at the latest.
func valueOf(text []byte, i int, how writing) (int, int, writing) {
	// b"…", r'…' and the like.
	if i+1 < len(text) && bytes.IndexByte([]byte("brfu@"), text[i]|0x20) >= 0 && (text[i+1] == '"' || text[i+1] == '\'') {
		i++
	}
	if how == lined && i < len(text) && (text[i] == '&' || text[i] == '!') { // an anchor, a tag
		if n := run(text[:min(len(text), i+32)], i+1, word); n < len(text) && (text[n] == ' ' || text[n] == '!') {
			i = blanks(text, run(text[:min(len(text), i+32)], n, tagSet))
		}
	}
	first := openers(text, i)
	if first > i && text[first-1] != '\\' {
		switch {
		case how == section: // any words
		case how != phrased || text[first-1] != '`':
			how = quoted
		}
		return first, closing(text, first, first-1 > i && text[first-2] == '\\'), how
	}
	last := first + valueRun(text[first:min(len(text), first+maxValue)], stops(how))
	trim := ""
	switch how {
	case bare, phrased:
		trim = ".,;:!?)]"
	case alone, lined, ini, env, flag, section:
		trim = ",;:)]}"
	case quoted, element:
	}
	for last > first && strings.IndexByte(trim, text[last-1]) >= 0 {
		last--
	}
	return first, last, how
}

var tagSet = newSet("azAZ", "!")

// closing returns the end of a value whose opening quote is text[first-1]:
// before the same quote, or at the end of the line. Where the quote is escaped,
// in text that was encoded twice, an escaped one closes it.
func closing(text []byte, first int, escaped bool) int {
	quote := text[first-1]
	for i := first; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n', c == quote && !escaped:
			return i
		case c == '\\':
			n := i
			for n < len(text) && text[n] == '\\' {
				n++
			}
			if escaped && n < len(text) && text[n] == quote {
				return i
			}
			if (n-i)%2 == 0 {
				n-- // a backslash that is itself escaped
			}
			i = n
		}
	}
	return len(text)
}

// Bytes that end a value which is not quoted.
var (
	envStops   = newSet("", " \t\r\n")
	aloneStops = newSet("", " \t\r\n\"'`<>&")
	bareStops  = newSet("", " \t\r\n\"'`,;<>&|)}](")
	lineStops  = newSet("", " \t\r\n\"'`,;<>")
)

func stops(how writing) *set {
	switch how {
	case env:
		return envStops
	case alone, flag, element:
		return aloneStops
	case bare:
		return bareStops
	case lined, ini, quoted, phrased, section:
	}
	return lineStops
}

func valueRun(text []byte, stops *set) int {
	i := 0
	for i < len(text) && !stops[text[i]] {
		if text[i] == '\\' && i+1 < len(text) && strings.IndexByte("nrt\"'", text[i+1]) >= 0 {
			break // encoded twice
		}
		i++
	}
	return i
}

// isSecret judges a value.
func isSecret(v []byte, kind class, how writing, name []byte) bool {
	if len(v) < 6 || kind == weakName && count(v, digit) == 0 || isReference(v) || isCommon(v) || isNumber(v) {
		return false
	}
	spaces := bytes.IndexByte(v, ' ') >= 0
	code := bytes.ContainsAny(v, "(){}[]")
	digits := count(v, digit)
	switch kind {
	case plainName, cookieHeader, dataOfSecret:
		return false
	case headerName:
		from, _ := credentials(v, 0)
		return from >= 0
	case weakName:
		if isExpression(v, how) || isDotted(v) {
			return false
		}
		if !isUpper(name) && (len(v) < 16 || !isRandom(v) && (count(v, hexDigit) < len(v) || len(v) != 32)) {
			return false // a name of source code
		}
		return !spaces && !code && (how == alone || how == env || how == flag || how == quoted || how == lined || how == ini || how == section || how == bare && len(v) >= 20 && isRandom(v)) && len(v) >= 12 && digits > 0 && digits < len(v) && !isPath(v) && entropy(v) >= 3
	case passName:
		// The working directory, and the verdict of a test.
		if v[0] == '/' && bytes.HasSuffix(bytes.ToLower(name), []byte("pwd")) {
			return false
		}
		if short := strings.ToLower(string(name)); (short == "pwd" || short == "pass") && (how == bare || how == lined || how == ini || how == phrased) {
			return false
		}
		switch how {
		case section:
			return !isPath(v) && !code && (!spaces || len(v) <= 64 && !bytes.ContainsAny(v, ".,:;?")) && !isExpression(v, alone)
		case quoted:
			return !isPath(v) && (!spaces || isPassphrase(v)) && !isExpression(v, how) && !bytes.Contains(squeeze(name), squeeze(v))
		case env, element:
			return !isPath(v) && !spaces && !isExpression(v, how)
		case alone:
			return !isPath(v) && !spaces && !isExpression(v, how) && (digits > 0 || !sayName(v, name))
		case flag:
			return v[0] != '-' && !isPath(v) && !isExpression(v, how) && (count(v, lower) < len(v) || endsSentence(v))
		case ini:
			// Source code assigns names like this; a name of one word is told by
			// its sound only.
			return isNoWord(v) && !code && !isPath(v) && !sayName(v, name) && !isDotted(v) || count(v, lower) == len(v) && len(v) >= 8 && endsSentence(v) && !sayName(v, name)
		case lined:
			return !isPath(v) && !spaces && !isExpression(v, how) && (digits > 0 || !sayName(v, name))
		case phrased:
			return isNoWord(v) || endsSentence(v)
		case bare:
			return !code && !isPath(v) && isNoWord(v) && !sayName(v, name) && !isDotted(v)
		}
	case keyName:
		if spaces || isPath(v) || digits == len(v) && len(v) < 20 || isDigest(v) || isVersion(v) {
			return false
		}
		switch how {
		case quoted, alone, env, flag, element:
			if how == quoted && code && digits > 1 && bytes.ContainsAny(v, "!#$%^&*@") && !isExpression(v, how) && entropy(v) >= 3.5 {
				return true // a generated one: signs of all kinds
			}
			if isExpression(v, how) || code {
				return false
			}
			if digits > 0 {
				return !sayName(v, name) || len(v) >= 20
			}
			return (len(v) >= 16 || mixed(v)) && !sayName(v, name) && !bytes.ContainsAny(v, "-_. ")
		case lined:
			return !isExpression(v, how) && !isDotted(v) && digits > 0 && count(v, alnum) > digits && (!sayName(v, name) || len(v) >= 20)
		case phrased, bare, ini, section:
			return !code && isNoWord(v) && mixed(v) && len(v) >= 8 && !sayName(v, name) && !isDotted(v)
		}
	}
	return false
}

// isReference reports whether a value names another place, or is a placeholder,
// ours included.
func isReference(v []byte) bool {
	switch {
	case len(v) == 0:
		return true
	case v[0] == '[' && (bytes.HasPrefix(v, []byte(marker)) || bytes.HasSuffix(v, []byte("withheld")) || bytes.HasSuffix(v, []byte("withheld]"))):
		return true
	case v[0] == '$' && len(v) > 1:
		return v[1] == '{' || v[1] == '(' || run(v, 1, underscore) == len(v)
	case v[0] == '%' && v[len(v)-1] == '%', v[0] == '<' && v[len(v)-1] == '>':
		return true
	case (v[0] == '&' || v[0] == '*') && count(v, lower) == len(v)-1:
		return true // an anchor
	case (v[0] == 'x' || v[0] == 'X') && len(v) > 4 && v[1] == '-' && bytes.Count(v, []byte("-")) > 1 && count(v, word) == len(v):
		return true // the name of a header
	case bytes.HasPrefix(v, []byte("{{")), bytes.HasPrefix(v, []byte("#{")), bytes.HasPrefix(v, []byte("%(")), v[0] == '{' && len(v) > 1 && underscore[v[1]]:
		return true
	}
	return bytes.Count(v, v[:1]) == len(v) // ******, xxxxxx
}

// common are values that are no secrets whatever their name is, in lower case
// and without signs.
var common = newWords(`
	string str bytes byte text number integer int float boolean bool true false null none nil undefined object array any unknown
	void const static public private protected readonly optional required default example sample placeholder changeme changeit
	redacted hidden masked removed omitted withheld secret secrets password passwords passwd token tokens apikey credential credentials
	replaceme passphrase passphrases yourpassword yoursecret yourtoken yourapikey yourkey yourapikeyhere yourtokenhere yoursecrethere yourpasswordhere insertyourkeyhere
	mypassword mysecret mytoken enter input value values empty missing invalid incorrect correct wrong expired expires valid needed
	stored rotated revoked encrypted hashed hidden shown printed logged leaked exposed changed reset updated deleted generated issued
	created refreshed cached used unused supported unsupported disabled enabled inherit bearer basic digest oauth oauth2 string[]
	please should cannot always longer shorter stronger weaker weakest strongest different another something nothing anything
	prompt getpass environ environment process config settings variable parameter argument option header cookie field column
	located defined provided specified available optional obvious important visible public written always strong simple short
	loaded hardcoded passed protected compared checked verified matched accepted rejected denied unset undefined tested
`)

func newWords(text string) map[string]bool {
	words := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		words[w] = true
	}
	return words
}

// isCommon reports whether a value is an ordinary word of its kind of text.
func isCommon(v []byte) bool {
	if len(v) > 32 {
		return false
	}
	var buf [32]byte
	w := buf[:0]
	for _, c := range v {
		if !wordSigns[c] {
			if upper[c] {
				c |= 0x20
			}
			w = append(w, c)
		}
	}
	return common[string(w)]
}

var wordSigns = newSet("", "-_ .:,")

// isNoWord reports whether a value that stands among words is none itself.
func isNoWord(v []byte) bool {
	if count(v, alnum) == 0 {
		return false
	}
	if count(v, digit) > 0 {
		return count(v, digit) < len(v) || len(v) >= 6
	}
	// A sign inside, other than those of words and of source code.
	return bytes.IndexAny(v[:len(v)-1], "!#$%^*+=~?|@") > 0
}

// endsSentence reports whether a word at the end of a phrase could be what the
// phrase gives away. Participles and the like cannot.
func endsSentence(v []byte) bool {
	return count(v, lower) == len(v) && len(v) >= 8 && !hasAnySuffix(v, "ed", "ing", "ly", "able", "ible", "ent", "ant", "ful", "ous", "er", "est", "ive", "al") ||
		count(v, upper) > 0 && count(v, lower) > 0 && count(v[1:], upper) > 0
}

// isExpression reports whether a value is a piece of source code or of a
// template rather than text. Text in quotes is not.
func isExpression(v []byte, how writing) bool {
	if how == quoted {
		return bytes.Contains(v, []byte("${")) || bytes.Contains(v, []byte("{{"))
	}
	if i := run(v, 0, wordDot); i > 0 && i < len(v) && (v[i] == '(' || v[i] == '[') {
		return true // a call, an element
	} else if i > 0 && i < len(v) {
		rest := v[i:]
		if bytes.HasPrefix(rest, []byte("||")) || bytes.HasPrefix(rest, []byte("&&")) || (rest[0] == ';' || rest[0] == '?') && isDotted(v[:i]) {
			return true // an expression without blanks
		}
	}
	for _, prefix := range []string{"process.env", "os.environ", "os.getenv", "env.", "secrets.", "vars.", "var.", "local.", "config.", "settings.", "self.", "this.", "req.", "request.", "ctx.", "args.", "opts.", "options.", "params.", "import."} {
		if bytes.HasPrefix(v, []byte(prefix)) {
			return true
		}
	}
	return false
}

// isPassphrase reports whether words in quotes may be a password rather than a
// sentence about one.
func isPassphrase(v []byte) bool {
	return len(v) <= 64 && v[0] != ' ' && v[len(v)-1] != ' ' && !bytes.ContainsAny(v, ".,:;?") && isNoWord(v)
}

// sayName reports whether a value speaks of what its name says: it is a name
// itself, such as that of a Kubernetes Secret.
func sayName(v, name []byte) bool {
	if count(v, wordDot) < len(v) {
		return false
	}
	var buf [maxValue]byte
	lowered := buf[:0]
	for _, c := range v {
		if upper[c] {
			c |= 0x20
		}
		lowered = append(lowered, c)
	}
	for _, w := range secretWords {
		if bytes.Contains(lowered, w) {
			return true
		}
	}
	return len(name) > 0 && bytes.Contains(squeeze(v), squeeze(name))
}

var secretWords = bytes.Split([]byte("passw passphrase secret token credential apikey api-key api_key -key _key"), []byte(" "))

// squeeze returns a name without its signs, in lower case.
func squeeze(name []byte) []byte {
	out := make([]byte, 0, len(name))
	for _, c := range name {
		if alnum[c] {
			out = append(out, c)
		}
	}
	return bytes.ToLower(out)
}

// isDotted reports whether a value is a path of names, as in source code.
func isDotted(v []byte) bool {
	if bytes.IndexByte(v, '.') < 0 {
		return false
	}
	for part := range bytes.SplitSeq(v, []byte(".")) {
		if len(part) == 0 || len(part) >= 24 || digit[part[0]] || count(part, underscore) < len(part) {
			return false
		}
	}
	return true
}

// isNumber reports whether a value is a colour, as themes give to tokens, or a
// number in hexadecimal.
func isNumber(v []byte) bool {
	if v[0] == '#' {
		return len(v) <= 9 && count(v, hexDigit) == len(v)-1
	}
	number, found := bytes.CutPrefix(bytes.TrimLeft(v, "-"), []byte("0x"))
	return found && len(number) <= 16 && count(number, hexDigit) == len(number)
}

// isPath reports whether a value is a path or an address.
func isPath(v []byte) bool {
	if bytes.IndexByte(v, '/') < 0 && bytes.IndexByte(v, ':') < 0 && bytes.IndexByte(v, '\\') < 0 {
		return false
	}
	for _, prefix := range []string{"./", "../", "~/", "file:", "http://", "https://", "arn:", "c:\\", "C:\\", "vault:", "op://", "sm://", "ssm:"} {
		if bytes.HasPrefix(v, []byte(prefix)) {
			return true
		}
	}
	if v[0] != '/' {
		return false
	}
	parts := bytes.Split(v[1:], []byte("/"))
	words := 0
	for _, p := range parts {
		if count(p, digit) == 0 && !bytes.ContainsAny(p, "+=") && len(p) < 24 && bytes.Equal(p, bytes.ToLower(p)) {
			words++
		}
	}
	return 2*words > len(parts)
}

// isDigest reports whether a value is a checksum that says so.
func isDigest(v []byte) bool {
	if v[0] != 's' && v[0] != 'm' && v[0] != 'h' {
		return false
	}
	for _, prefix := range []string{"sha1-", "sha256-", "sha384-", "sha512-", "sha256:", "sha512:", "md5:", "h1:"} {
		if bytes.HasPrefix(v, []byte(prefix)) {
			return true
		}
	}
	return false
}

// isVersion reports whether a value is a version or a range of them.
func isVersion(v []byte) bool {
	v = v[run(v, 0, versionSigns):]
	i := run(v, 0, digit)
	return i > 0 && i < len(v) && v[i] == '.' && len(v) < 24 && i+1 < len(v) && digit[v[i+1]]
}

func logOf(n int) float64 { return math.Log2(float64(n)) }

var versionSigns = newSet("", "^~>=<v")

// entropy returns the bits per byte of a value by the counts of its bytes.
func entropy(v []byte) float64 {
	var counts [256]int
	for _, c := range v {
		counts[c]++
	}
	bits := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(v))
			bits -= p * math.Log2(p)
		}
	}
	return bits
}
