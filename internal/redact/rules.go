package redact

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// set is a set of bytes.
type set [256]bool

func newSet(ranges string, others string) *set {
	var s set
	for i := 0; i+1 < len(ranges); i += 2 {
		for c := int(ranges[i]); c <= int(ranges[i+1]); c++ {
			s[c] = true
		}
	}
	for i := range len(others) {
		s[others[i]] = true
	}
	return &s
}

var (
	digit      = newSet("09", "")
	lower      = newSet("az", "")
	upper      = newSet("AZ", "")
	alnum      = newSet("09azAZ", "")
	upperDigit = newSet("09AZ", "")
	hexDigit   = newSet("09afAF", "")
	word       = newSet("09azAZ", "_-")
	wordDot    = newSet("09azAZ", "_-.")
	underscore = newSet("09azAZ", "_")
	base64Set  = newSet("09azAZ", "+/=_-")
	tokenSet   = newSet("09azAZ", "+/=_-.~")
)

// run returns the position after the bytes of s that begin at text[i].
func run(text []byte, i int, s *set) int {
	for i < len(text) && s[text[i]] {
		i++
	}
	return i
}

// token returns the matcher of secrets that begin with a fixed prefix, as the
// word is written, and go on with at least size bytes of body. bounded asks
// that no letter or digit stands before the prefix: a short prefix occurs
// inside of words and of encoded bytes. more must refuse every part of a body
// that it refuses.
func token(prefix string, body *set, size int, bounded bool, more func(body []byte) bool) func([]byte, int, int) (int, int, int) {
	// Where the prefix may stand inside a body, the body is left for good once
	// it was looked at. Where it may not, the next prefix ends this body.
	inside := count([]byte(prefix), body) == len(prefix)
	return func(text []byte, at, end int) (int, int, int) {
		if string(text[at:end]) != prefix || bounded && !bounds(text, at) {
			return none, 0, end
		}
		to := run(text, end, body)
		if to-end < size {
			return none, 0, end
		}
		next := end
		if inside {
			next = to
		}
		if more != nil && !more(text[end:to]) {
			return none, 0, next
		}
		return at, to, next
	}
}

// bounds reports whether a word may begin at text[at]. The letter of an escape
// such as \n in text that was encoded twice, and the digits of %20, belong to no
// word.
func bounds(text []byte, at int) bool {
	if at == 0 || !underscore[text[at-1]] {
		return true
	}
	if at >= 2 && text[at-2] == '\\' && bytes.IndexByte([]byte("nrtbf"), text[at-1]) >= 0 {
		return true
	}
	if at >= 3 && text[at-3] == '%' && hexDigit[text[at-2]] && hexDigit[text[at-1]] {
		return true
	}
	return at >= 6 && text[at-6] == '\\' && text[at-5] == 'u' && hexDigit[text[at-1]]
}

func count(b []byte, s *set) (n int) {
	for _, c := range b {
		if s[c] {
			n++
		}
	}
	return n
}

// mixed reports whether b does not look like words: it has a digit and a
// letter, or letters of both cases in disorder.
func mixed(b []byte) bool {
	if count(b, digit) > 0 {
		return count(b, alnum) > count(b, digit)
	}
	changes := 0
	for i := 1; i < len(b); i++ {
		if lower[b[i-1]] && upper[b[i]] {
			changes++
		}
	}
	return changes >= 3
}

// Bounds of what a rule looks at.
const (
	minText  = 8    // no secret with its sign is shorter
	maxRules = 320  // asserted by New
	maxAhead = 1024 // how far a match that fails may have looked
	maxUser  = 256  // of what may stand before the host of an address
	// maxPassword is how far the password of an address may go on behind a slash.
	maxPassword = 128
)

const privateRule = "private"

// builtin returns the rules. Their order decides nothing; names go into
// placeholders and findings and must not change their meaning.
func builtin() []rule {
	rules := []rule{
		{privateRule, []string{"<private"}, matchPrivate},
		{"private-key", []string{"-----begin ", "-----end "}, matchPEM},
		{"jwt", []string{"eyj"}, matchJWT},
		{"uri-password", []string{"://"}, matchURI},
		{"authorization", []string{"authorization"}, matchAuthorization},
		{"bearer", []string{"bearer"}, matchBearer},
		{"basic-auth", []string{"basic"}, matchBasic},
		{"basic-auth", []string{" -u", "--user"}, matchUserFlag},
		{"signed-url", []string{"x-amz-signature=", "x-goog-signature=", "?sig=", "&sig=", "x-amz-security-token="}, matchSignature},
		{"aws-access-key", []string{"akia", "asia", "abia", "acca"}, matchAWS},
		{"slack-webhook", []string{"hooks.slack.com/"}, matchSlackWebhook},
		{"cookie", []string{"cookie"}, matchCookie},
		{"option-password", []string{"sshpass -p", "mysql", "mariadb", "redis-cli"}, matchOption},
		{assignmentRule, assignmentWords, matchAssignment},
	}
	add := func(name string, body *set, size int, bounded bool, more func([]byte) bool, prefixes ...string) {
		for _, p := range prefixes {
			rules = append(rules, rule{name, []string{strings.ToLower(p)}, token(p, body, size, bounded, more)})
		}
	}
	add("github-token", alnum, 20, false, nil, "ghp_", "gho_", "ghu_", "ghs_", "ghr_")
	add("github-token", underscore, 20, false, nil, "github_pat_")
	add("gitlab-token", wordDot, 16, false, mixed, "glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-", "glagent-")
	add("anthropic-key", word, 8, true, nil, "sk-ant-")
	add("openai-key", word, 16, true, mixed, "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-")
	add("openai-key", alnum, 20, true, nil, "sk-")
	add("slack-token", word, 10, true, func(b []byte) bool { return count(b, digit) > 0 }, "xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxe.xox", "xoxo-", "xoxc-", "xoxd-", "xapp-")
	add("google-key", word, 30, true, mixed, "AIza")
	add("google-key", word, 20, true, mixed, "GOCSPX-", "ya29.")
	add("npm-token", alnum, 30, true, nil, "npm_")
	add("pypi-token", word, 30, true, mixed, "pypi-")
	add("stripe-key", alnum, 10, true, nil, "sk_live_", "sk_test_", "rk_live_", "rk_test_", "pk_live_")
	add("stripe-key", base64Set, 20, true, mixed, "whsec_")
	add("age-key", upperDigit, 20, false, nil, "AGE-SECRET-KEY-1")
	add("age-key", alnum, 20, false, nil, "age-secret-key-1")
	add("age-key", newSet("09AZ", "-"), 20, false, nil, "AGE-SECRET-KEY-PQ-1")
	add("huggingface-token", alnum, 30, true, nil, "hf_")
	add("vault-token", word, 20, true, mixed, "hvs.", "hvb.")
	add("digitalocean-token", alnum, 40, true, nil, "dop_v1_", "doo_v1_", "dor_v1_")
	add("atlassian-token", word, 40, true, mixed, "ATATT3", "ATCTT3")
	add("docker-token", word, 20, true, nil, "dckr_pat_")
	return rules
}

// matchPrivate takes what a person marked as private. What is not closed is
// private to its end.
func matchPrivate(text []byte, at, end int) (int, int, int) {
	i := end
	for i < len(text) && i-end < 64 && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n') {
		i++
	}
	if i == len(text) || text[i] != '>' {
		return none, 0, end
	}
	if at > 0 && text[at-1] == '`' && i+1 < len(text) && text[i+1] == '`' {
		return none, 0, end // it is spoken of
	}
	const closing = "</private"
	for i++; i < len(text); i++ {
		n := bytes.IndexByte(text[i:], '<')
		if n < 0 {
			break
		}
		i += n
		if len(text)-i > len(closing) && bytes.EqualFold(text[i:i+len(closing)], []byte(closing)) {
			to := i + len(closing)
			for to < len(text) && to-i < 64 && (text[to] == ' ' || text[to] == '\t' || text[to] == '\n') {
				to++
			}
			if to < len(text) && text[to] == '>' {
				return at, to + 1, to + 1
			}
		}
	}
	return at, len(text), len(text)
}

// matchPEM takes private keys in their armour. A head without its tail means
// that the key goes on to the end; a tail without a head, that it began before.
// Source code that only speaks of the armour stays.
func matchPEM(text []byte, at, end int) (int, int, int) {
	label := armour(text, end)
	if !bytes.Contains(bytes.ToUpper(text[end:label]), []byte("PRIVATE KEY")) {
		return none, 0, end
	}
	label = min(label+len("-----"), len(text))
	if text[at+5]|0x20 == 'e' {
		if from := keyBefore(text, at); from < at {
			return from, label, label
		}
		return none, 0, label
	}
	// A head without a key behind it is not worth looking for its tail: there
	// may be a thousand more of them before that.
	if !keyFollows(text[label:min(len(text), label+192)]) {
		return none, 0, label
	}
	const tail = "-----end "
	to := len(text)
	for i := label; i < len(text); i += 5 {
		n := bytes.Index(text[i:], []byte("-----"))
		if n < 0 {
			break
		}
		i += n
		if len(text)-i >= len(tail) && bytes.EqualFold(text[i:i+len(tail)], []byte(tail)) {
			to = min(armour(text, i+len(tail))+len("-----"), len(text))
			break
		}
	}
	return at, to, to
}

// armour returns where the label that begins at text[i] ends.
func armour(text []byte, i int) int {
	for n := 0; n < 64 && i < len(text) && text[i] != '-' && text[i] != '\n'; n++ {
		i++
	}
	return i
}

// keyFollows reports whether what follows a head is a key: one long run of
// base64 near to it, maybe behind line numbers, or nothing but short ones.
func keyFollows(text []byte) bool {
	headless := true // no other armour begins before this one ends
	if i := bytes.Index(text, []byte("-----")); i >= 0 {
		headless = len(text)-i >= 8 && bytes.EqualFold(text[i+5:i+8], []byte("end"))
		text = text[:i]
	}
	for i := 0; i < len(text); i++ {
		from := i
		if i = run(text, i, stdBase64); i-from >= 24 {
			return true
		}
	}
	return headless && count(text, keyText) == len(text)
}

var (
	stdBase64 = newSet("09azAZ", "+/=")
	keyText   = newSet("09azAZ", "+/=\r\n\t \\-")
)

// keyBefore returns where the lines of base64 begin that end before text[at].
func keyBefore(text []byte, at int) int {
	from := at
	for {
		i := from
		for i > 0 && (text[i-1] == '\n' || text[i-1] == '\r') {
			i--
		}
		if i >= 2 && text[i-2] == '\\' && text[i-1] == 'n' {
			i -= 2 // encoded twice
		}
		line := i
		for line > 0 && stdBase64[text[line-1]] {
			line--
		}
		switch {
		case line == i || i == from:
			return from
		case line == 0 || text[line-1] == '\n':
			from = line
		case text[line-1] == '\\' && text[line] == 'n':
			from = line + 1
		default:
			if i-line < 24 {
				return from
			}
			from = line // behind a line number
		}
	}
}

// matchJWT takes three parts in base64 of which the first two are JSON objects.
// The signature may be missing.
func matchJWT(text []byte, at, end int) (int, int, int) {
	if string(text[at:end]) != "eyJ" {
		return none, 0, end
	}
	head := run(text, end, word)
	if head-end < 6 || len(text)-head < 4 || string(text[head:head+4]) != ".eyJ" {
		return none, 0, head
	}
	body := run(text, head+4, word)
	if body-head < 8 {
		return none, 0, body
	}
	to := body
	if to < len(text) && text[to] == '.' {
		to = run(text, to+1, wordDot)
	}
	return at, to, to
}

// matchAWS takes access key ids, whose length is fixed.
func matchAWS(text []byte, at, end int) (int, int, int) {
	if count(text[at:end], upper) < 4 || !bounds(text, at) {
		return none, 0, end
	}
	if to := end + 16; to <= len(text) && run(text[:to], end, upperDigit) == to && (to == len(text) || !underscore[text[to]]) {
		return at, to, to
	}
	return none, 0, end
}

func matchSlackWebhook(text []byte, _, end int) (int, int, int) {
	to := run(text, end, slackPath)
	if to-end < 20 {
		return none, 0, to
	}
	return end, to, to
}

var slackPath = newSet("09azAZ", "/_-")

// matchSignature takes what makes a URL open a door for whoever holds it.
func matchSignature(text []byte, _, end int) (int, int, int) {
	to := run(text, end, signatureSet)
	if to-end < 20 {
		return none, 0, to
	}
	return end, to, to
}

var signatureSet = newSet("09azAZ", "%+/=_-.~")

var uriStops = newSet("\x00 ", "\"'`<>\\")

// matchURI takes the password between scheme://user: and @host, and a token
// that stands in the place of the user.
func matchURI(text []byte, at, end int) (int, int, int) {
	if at == 0 || !alnum[text[at-1]] {
		return none, 0, end
	}
	if end < len(text) && text[end] == '[' {
		return none, 0, end // an address whose colons are no user's
	}
	// The last @ of the authority ends the user's part. A slash ends the
	// authority, unless what follows a colon is no port: then it belongs to a
	// password that was not encoded.
	colon, sign, slash := -1, -1, -1
	port := false // what follows the colon is one
	limit := min(len(text), end+maxUser)
	if bytes.IndexByte(text[end:limit], '@') < 0 {
		return none, 0, end
	}
	for i := end; i < limit && !uriStops[text[i]]; i++ {
		switch text[i] {
		case ':':
			if colon < 0 && slash < 0 {
				colon = i
			}
		case '@':
			sign = i
		case '/', '?', '#':
			if slash < 0 {
				slash = i
				limit = min(limit, i+maxPassword)
				port = colon < 0 || run(text, colon+1, digit) == slash
			}
		}
		if slash >= 0 && (sign >= 0 || port) {
			break
		}
	}
	switch {
	case sign < 0:
		return none, 0, end
	case colon >= 0 && colon < sign:
		if isReference(text[colon+1 : sign]) {
			return none, 0, sign
		}
		return colon + 1, sign, sign
	case sign-end >= 20 && (slash < 0 || slash > sign) && mixed(text[end:sign]):
		return end, sign, sign
	}
	return none, 0, sign
}

// matchAuthorization takes the credentials of a header, in any notation.
func matchAuthorization(text []byte, _, end int) (int, int, int) {
	i := closers(text, end)
	i = blanks(text, i)
	if i == len(text) || text[i] != ':' && text[i] != '=' && text[i] != ',' {
		return none, 0, end
	}
	i = blanks(text, i+1)
	i = openers(text, i)
	from, to := credentials(text, i)
	if from < 0 {
		return none, 0, end
	}
	return from, to, to
}

// schemes are the words that stand before credentials in a header.
var schemes = map[string]bool{
	"basic": true, "bearer": true, "token": true, "digest": true, "apikey": true, "api-key": true, "key": true,
	"jwt": true, "oauth": true, "negotiate": true, "ntlm": true, "ssws": true, "splunk": true, "geniekey": true,
}

// credentials finds what follows a scheme, or stands alone, at text[i].
func credentials(text []byte, i int) (from, to int) {
	from = i
	if n := run(text, i, word); n < len(text) && text[n] == ' ' && n-i <= 20 && schemes[strings.ToLower(string(text[i:n]))] {
		from = blanks(text, n)
	}
	to = from
	for to < len(text) && to-from < 1<<16 && text[to] > ' ' && bytes.IndexByte([]byte("\"'`\\<>,;"), text[to]) < 0 {
		to++
	}
	value := text[from:to]
	switch {
	case len(value) < 6 || isReference(value) || isPath(value) || bytes.HasPrefix(value, []byte("realm=")) || bytes.IndexByte(value, '(') >= 0 || count(value, lower) == len(value):
		return none, 0
	case from == i && (len(value) < 8 || count(value, digit) == 0 || !mixed(value)):
		return none, 0
	}
	return from, to
}

// matchBearer takes a token that follows its scheme outside of a header.
func matchBearer(text []byte, at, end int) (int, int, int) {
	i := blanks(text, end)
	if i == end || !bounds(text, at) {
		return none, 0, end
	}
	to := run(text, i, tokenSet)
	if value := text[i:to]; len(value) < 12 || !mixed(value) {
		return none, 0, to
	}
	return i, to, to
}

// matchBasic takes a user and password in base64 that follow their scheme.
func matchBasic(text []byte, at, end int) (int, int, int) {
	i := blanks(text, end)
	if i == end || !bounds(text, at) {
		return none, 0, end
	}
	to := min(run(text, i, base64Set), i+maxAhead)
	plain, err := base64.RawStdEncoding.DecodeString(string(bytes.TrimRight(text[i:to], "=")))
	if err != nil || len(plain) < 4 || bytes.IndexByte(plain, ':') < 1 || bytes.IndexFunc(plain, func(r rune) bool { return r < ' ' }) >= 0 {
		return none, 0, to
	}
	return i, to, to
}

// matchUserFlag takes the password that curl gets with its user.
func matchUserFlag(text []byte, at, end int) (int, int, int) {
	i := end
	if i < len(text) && text[i] == '=' {
		i++
	}
	i = openers(text, blanks(text, i))
	to, colon := i, -1
	for to < len(text) && to-i < maxAhead && text[to] > ' ' && bytes.IndexByte([]byte("\"'`\\"), text[to]) < 0 {
		if text[to] == ':' && colon < 0 {
			colon = to
		}
		to++
	}
	if colon <= i || to-colon < 4 || isReference(text[colon+1:to]) {
		return none, 0, end
	}
	line := text[max(0, at-192):at]
	if i := bytes.LastIndexByte(line, '\n'); i >= 0 {
		line = line[i+1:]
	}
	if !bytes.Contains(line, []byte("curl")) && !bytes.Contains(line, []byte("wget")) {
		return none, 0, end
	}
	return colon + 1, to, to
}

// matchCookie takes the cookies of a header, or of an option of curl. Of one
// that a server sets, the attributes stay.
func matchCookie(text []byte, at, end int) (int, int, int) {
	i := blanks(text, closers(text, end))
	set := at >= 4 && bytes.EqualFold(text[at-4:at], []byte("set-"))
	option := at >= 2 && string(text[at-2:at]) == "--"
	switch {
	case i == len(text):
		return none, 0, end
	case option && (text[i] == '=' || i > end):
		if text[i] == '=' {
			i++
		}
	case text[i] == ':' || text[i] == ',' && i > end:
		i++
	default:
		return none, 0, end
	}
	from, to, secret := cookies(text, openers(text, blanks(text, i)), set)
	if !secret {
		return none, 0, max(end, to)
	}
	return from, to, max(end, to)
}

// cookies returns the bounds of the cookies that begin at text[i], the value
// of the first if a server sets them, and whether one is a secret.
func cookies(text []byte, i int, set bool) (from, to int, secret bool) {
	from, to = i, i
	for to < len(text) && to-from < 1<<14 {
		name := run(text, to, cookieName)
		if name == to || name == len(text) || text[name] != '=' {
			break
		}
		value := run(text, name+1, cookieValue)
		v := text[min(name+1, value):value]
		named := classify(text[to:name]) != plainName || isSession(text[to:name])
		secret = secret || len(v) >= 6 && !isReference(v) && !isCommon(v) && (named || len(v) >= 12 && mixed(v) && entropy(v) >= 2.5)
		to = value
		if set {
			from = name + 1
			break
		}
		if value+1 >= len(text) || text[value] != ';' {
			break
		}
		to = blanks(text, value+1)
	}
	if to > from && text[to-1] == ' ' {
		to--
	}
	return from, to, secret
}

var (
	cookieName  = newSet("09azAZ", "_-.~!#$%&*+^|")
	cookieValue = newSet("09azAZ", "_-.~!#$%&*+^|/:=@?()[]{}")
)

// isSession reports whether a cookie's name says that it lets its bearer in.
func isSession(name []byte) bool {
	name = bytes.ToLower(name)
	for _, w := range []string{"sess", "sid", "auth", "csrf", "xsrf", "jwt", "remember", "login"} {
		if bytes.Contains(name, []byte(w)) {
			return true
		}
	}
	return false
}

// matchOption takes the passwords that some programs get with short options.
func matchOption(text []byte, at, end int) (int, int, int) {
	if !bounds(text, at) {
		return none, 0, end
	}
	var from int
	switch string(bytes.ToLower(text[at:end])) {
	case "sshpass -p":
		from = openers(text, blanks(text, end))
	default: // … -pPASSWORD, redis-cli … -a PASSWORD
		sign, apart := " -p", false
		if text[at]|0x20 == 'r' {
			sign, apart = " -a ", true
		}
		line := text[end:min(len(text), end+maxValue)]
		i := bytes.Index(line, []byte(sign))
		if i < 0 || run(line, 0, optionLine) < i {
			return none, 0, end
		}
		from = openers(text, end+i+len(sign))
		if !apart && from < len(text) && text[from] == ' ' {
			return none, 0, end
		}
	}
	to := from + valueRun(text[from:min(len(text), from+maxValue)], aloneStops)
	if v := text[from:to]; len(v) < 4 || isReference(v) || isCommon(v) || v[0] == '-' || isDigits(string(v)) && len(v) < 6 || bytes.ContainsAny(v, "(){}[],") {
		return none, 0, end
	}
	return from, to, to
}

// optionLine is what may stand between a program and its option.
var optionLine = func() *set {
	s := newSet("\x20\x7e", "")
	s['|'], s[';'] = false, false
	return s
}()

// blanks returns the position after blanks, at most 32, that begin at text[i].
func blanks(text []byte, i int) int {
	for n := 0; n < 32 && i < len(text) && (text[i] == ' ' || text[i] == '\t'); n++ {
		i++
	}
	return i
}

// closers returns the position after what may close a key that ends at text[i].
func closers(text []byte, i int) int {
	for n := 0; n < 8 && i < len(text) && bytes.IndexByte([]byte("\"'`\\])*_"), text[i]) >= 0; n++ {
		i++
	}
	return i
}

// openers returns the position after what may open a value at text[i].
func openers(text []byte, i int) int {
	for n := 0; n < 8 && i < len(text) && bytes.IndexByte([]byte("\"'`\\"), text[i]) >= 0; n++ {
		i++
	}
	return i
}
