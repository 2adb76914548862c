package redact

import (
	"bytes"
)

// Secrets that only their place tells: behind an option of a program, in a row of
// a table, in the path of a webhook, a random word beside the word token.

const placeRule = "secret"

// places returns the rules of this file.
func places() []rule {
	return []rule{
		{"option-password", []string{"docker login", "podman login", "nerdctl login", "registry login"}, optionOf(" -p ", true)},
		{"option-password", []string{"zip ", "unzip "}, optionOf("-P ", true)},
		{"option-password", []string{"7z "}, optionOf(" -p", false)},
		{"option-password", []string{"ldapsearch", "ldapadd", "ldapmodify", "ldapwhoami", "ldapdelete", "ldappasswd"}, optionOf(" -w ", true)},
		{"option-password", []string{"smbclient", "rpcclient", "mount.cifs"}, optionOf("%", false)},
		{"option-password", []string{" pass:"}, matchOpenSSLPass},
		{"option-password", []string{"--password-stdin", "--passphrase-fd", "sudo -s", "sudo --stdin"}, matchPiped},
		{"option-password", []string{"--from-literal"}, matchLiteral},
		{assignmentRule, []string{"machine "}, matchNetrc},
		{assignmentRule, []string{"identified by "}, matchQuotedAfter},
		{assignmentRule, []string{"securestring "}, matchQuotedAfter},
		{assignmentRule, []string{"requirepass ", "masterauth ", "> auth "}, matchWordAfter},
		{assignmentRule, []string{"pw:", "pw=", "pw =", "psk:", "psk=", "psk ="}, matchShortName},
		{assignmentRule, []string{"mot de passe", "contrase", "kennwort", "wachtwoord", "senha"}, matchForeign},
		{assignmentRule, []string{"value", "default"}, matchValueOfNamed},
		{assignmentRule, []string{"user/pass", "login/pass", "username/pass", "login:"}, matchPair},
		{"pgpass", []string{":5432:", ":*:"}, matchPgpass},
		{"webhook", []string{"/api/webhooks/", "webhook.office.com/", "api.telegram.org/bot", "hooks.zapier.com/hooks/catch/"}, matchWebhook},
		{"private-key", []string{"private-lines:"}, matchPuTTY},
		{"private-key", []string{`"d":`}, matchJWK},
		{"basic-auth", []string{`"auth"`}, matchDockerAuth},
		{"cookie", []string{"sessionid=", "phpsessid=", "sessid=", "connect.sid="}, matchSessionCookie},
		{"seed-phrase", []string{"seed phrase", "mnemonic", "recovery phrase"}, matchSeedPhrase},
		{"recovery-codes", []string{"recovery codes", "backup codes"}, matchCodes},
		{placeRule, []string{"token", "secret", "credential", "password", "passphrase", "key"}, matchNamedRandom},
	}
}

// lineEnd returns the end of the line at text[i], at most limit bytes on.
func lineEnd(text []byte, i, limit int) int {
	rest := text[i:min(len(text), i+limit)]
	if n := bytes.IndexByte(rest, '\n'); n >= 0 {
		return i + n
	}
	return i + len(rest)
}

// lineStart returns the start of the line with text[i], at most limit bytes back.
func lineStart(text []byte, i, limit int) int {
	from := max(0, i-limit)
	return from + bytes.LastIndexByte(text[from:i], '\n') + 1
}

// plainWord returns the end of the value at text[i], which goes on to a blank, a
// quote or a sign of the shell.
func plainWord(text []byte, i int) int {
	return i + valueRun(text[i:min(len(text), i+maxValue)], aloneStops)
}

// isGiven reports whether a value that is given as a password may be one.
func isGiven(v []byte) bool {
	return len(v) >= 4 && v[0] != '-' && !isReference(v) && !isCommon(v) && !isPath(v) && !bytes.ContainsAny(v, "(){}[]|;")
}

// optionOf takes the value of an option of a program. apart says that a blank
// stands between.
func optionOf(sign string, apart bool) func([]byte, int, int) (int, int, int) {
	return func(text []byte, at, end int) (int, int, int) {
		if !bounds(text, at) {
			return none, 0, end
		}
		line := text[end:lineEnd(text, end, maxValue)]
		i := bytes.Index(line, []byte(sign))
		if i < 0 || run(line, 0, optionLine) < i {
			return none, 0, end
		}
		from := openers(text, end+i+len(sign))
		to := plainWord(text, from)
		if !isGiven(text[from:to]) || !apart && count(text[from:to], alnum) == 0 {
			return none, 0, end
		}
		return from, to, to
	}
}

// matchOpenSSLPass takes what openssl gets as pass:….
func matchOpenSSLPass(text []byte, _, end int) (int, int, int) {
	to := plainWord(text, end)
	if v := text[end:to]; !isGiven(v) || !isNoWord(v) {
		return none, 0, end
	}
	return end, to, to
}

// matchPiped takes what is piped into a program that reads a password from its
// input.
func matchPiped(text []byte, at, end int) (int, int, int) {
	from := lineStart(text, at, 256)
	line := text[from:at]
	pipe := bytes.LastIndexByte(line, '|')
	if pipe < 0 {
		return none, 0, end
	}
	echo := bytes.LastIndex(line[:pipe], []byte("echo "))
	size := len("echo ")
	if echo < 0 {
		echo, size = bytes.LastIndex(line[:pipe], []byte("printf ")), len("printf ")
	}
	if echo < 0 {
		return none, 0, end
	}
	i := blanks(text, from+echo+size)
	for i+3 < at && text[i] == '-' && text[i+2] == ' ' { // -n
		i = blanks(text, i+2)
	}
	i = openers(text, i)
	to := min(plainWord(text, i), from+pipe)
	if to <= i { // an option that ends in the pipe
		return none, 0, end
	}
	if !isGiven(text[i:to]) || text[i] == '%' {
		return none, 0, end
	}
	return i, to, end
}

// matchLiteral takes the value that kubectl puts into a Secret.
func matchLiteral(text []byte, _, end int) (int, int, int) {
	if end == len(text) || text[end] != '=' && text[end] != ' ' {
		return none, 0, end
	}
	i := openers(text, end+1)
	name := run(text[:min(len(text), i+maxName)], i, wordDot)
	if name == i || name == len(text) || text[name] != '=' {
		return none, 0, end
	}
	from := openers(text, name+1)
	to := from + valueRun(text[from:min(len(text), from+maxValue)], aloneStops)
	if v := text[from:to]; len(v) < 4 || isReference(v) {
		return none, 0, end
	}
	return from, to, to
}

// matchNetrc takes the password of machine, login, password.
func matchNetrc(text []byte, at, end int) (int, int, int) {
	if !bounds(text, at) {
		return none, 0, end
	}
	words := 0
	for i := end; i < len(text) && i-end < 256; {
		i = run(text[:min(len(text), end+256)], i, blankSet)
		for i < len(text) && (text[i] == '\n' || text[i] == '\r') {
			i = run(text, i+1, blankSet)
		}
		to := plainWord(text, i)
		if to == i {
			return none, 0, end
		}
		switch w := string(text[i:to]); {
		case words == 1 && w != "login", words > 6:
			return none, 0, end
		case words >= 3 && w == "password":
			for to < len(text) && text[to] <= ' ' {
				to++
			}
			last := plainWord(text, to)
			if last-to < 4 || isReference(text[to:last]) {
				return none, 0, end
			}
			return to, last, last
		}
		words++
		i = to
	}
	return none, 0, end
}

// matchQuotedAfter takes what stands in quotes behind the words.
func matchQuotedAfter(text []byte, _, end int) (int, int, int) {
	if end == len(text) || text[end] != '\'' && text[end] != '"' {
		return none, 0, end
	}
	to := closing(text[:min(len(text), end+maxValue)], end+1, false)
	if v := text[end+1 : to]; len(v) < 4 || isReference(v) || isCommon(v) {
		return none, 0, end
	}
	return end + 1, to, to
}

// matchWordAfter takes the word behind the words.
func matchWordAfter(text []byte, at, end int) (int, int, int) {
	i := openers(text, blanks(text, end))
	to := plainWord(text, i)
	if v := text[i:to]; alnum[text[at]] && !bounds(text, at) || !isGiven(v) || !isNoWord(v) && len(v) < 8 || bytes.HasPrefix(v, []byte("no")) {
		return none, 0, end
	}
	return i, to, to
}

// matchShortName takes the values of names that are too short for words of their
// own.
func matchShortName(text []byte, at, end int) (int, int, int) {
	if !bounds(text, at) {
		return none, 0, end
	}
	i := blanks(text, end)
	how := bare
	if text[end-1] == '=' && i == end {
		how = alone
	}
	first, last, how := valueOf(text, i, how)
	if v := text[first:last]; len(v) < 6 || !isSecret(v, passName, how, []byte("password")) || how != quoted && !isNoWord(v) {
		return none, 0, end
	}
	return first, last, last
}

// verbs are what stands between a name in another language and its value.
var verbs = []string{"est ", "es ", "ist ", "is ", "é ", "e "}

// matchForeign takes a password that is named in another language.
func matchForeign(text []byte, _, end int) (int, int, int) {
	i := end
	for i < len(text) && i-end < 8 && (alnum[text[i]] || text[i] >= 0x80) {
		i++ // contraseña
	}
	i = blanks(text, i)
	if i < len(text) && (text[i] == ':' || text[i] == '=') {
		i = blanks(text, i+1)
	} else {
		found := false
		for _, verb := range verbs {
			if bytes.HasPrefix(text[i:], []byte(verb)) {
				i, found = blanks(text, i+len(verb)), true
				break
			}
		}
		if !found {
			return none, 0, end
		}
		if i < len(text) && text[i] == ':' {
			i = blanks(text, i+1)
		}
	}
	first, last, how := valueOf(text, i, phrased)
	if v := text[first:last]; len(v) < 6 || isReference(v) || how != quoted && !isNoWord(v) {
		return none, 0, end
	}
	return first, last, last
}

// matchValueOfNamed takes the value of a pair that is written as two: name and
// value, as in manifests and task definitions, variable and default in Terraform.
func matchValueOfNamed(text []byte, at, end int) (int, int, int) {
	if !bounds(text, at) || end < len(text) && wordDot[text[end]] {
		return none, 0, end
	}
	i := blanks(text, closers(text, end))
	if i == len(text) || text[i] != ':' && text[i] != '=' {
		return none, 0, end
	}
	before := text[max(0, at-96):at]
	n := -1
	size := 0
	for _, word := range []string{"name", "Name", "variable "} {
		if m := bytes.LastIndex(before, []byte(word)); m > n {
			n, size = m, len(word)
		}
	}
	if n < 0 {
		return none, 0, end
	}
	j := blanks(before, closers(before, n+size))
	if j < len(before) && (before[j] == ':' || before[j] == '=') {
		j = blanks(before, j+1)
	} else if before[n] != 'v' {
		return none, 0, end
	}
	j = openers(before, j)
	name := before[j:run(before, j, wordDot)]
	kind := classify(name)
	if kind != passName && kind != keyName && kind != weakName || bytes.Count(before[j:], []byte("name")) > 0 {
		return none, 0, end
	}
	first, last, how := valueOf(text, blanks(text, i+1), lined)
	if first == last || !isSecret(text[first:last], kind, how, name) {
		return none, 0, end
	}
	return first, last, last
}

// matchPair takes the second of user/password and login: user / password.
func matchPair(text []byte, at, end int) (int, int, int) {
	i := end
	if text[end-1] != ':' {
		i = run(text[:min(len(text), end+8)], end, alnum)
		if i == len(text) || text[i] != ':' && text[i] != '=' {
			return none, 0, end
		}
		i++
	}
	i = blanks(text, i)
	line := text[i:lineEnd(text, i, maxValue)]
	slash := bytes.IndexByte(line, '/')
	if slash < 1 || bytes.ContainsAny(line, ":") && bytes.IndexByte(line, ':') < slash {
		return none, 0, end
	}
	if user := bytes.TrimSpace(line[:slash]); len(user) == 0 || count(user, wordDot) < len(user) {
		return none, 0, end
	}
	from := blanks(text, i+slash+1)
	to := plainWord(text, from)
	v := bytes.TrimRight(text[from:to], ".,;:")
	if len(v) < 6 || !isNoWord(v) || isReference(v) || bytes.IndexByte(v, '/') >= 0 || !bounds(text, at) {
		return none, 0, end
	}
	return from, from + len(v), from + len(v)
}

// matchPgpass takes the password of host:port:database:user:password, in a line
// of its own.
func matchPgpass(text []byte, at, end int) (int, int, int) {
	from := lineStart(text, at, 256)
	to := lineEnd(text, end, 256)
	if bytes.ContainsAny(text[from:to], " \t/\"'") {
		return none, 0, max(end, to)
	}
	parts := bytes.SplitN(text[from:to], []byte(":"), 5)
	if len(parts) != 5 || len(parts[4]) < 4 || len(parts[0]) == 0 || len(parts[3]) == 0 || isReference(parts[4]) {
		return none, 0, max(end, to)
	}
	if port := string(parts[1]); port != "*" && !isDigits(port) {
		return none, 0, max(end, to)
	}
	return to - len(parts[4]), to, to
}

var webhookPath = newSet("09azAZ", "/_-:@.")

// matchWebhook takes the path of an address that whoever knows it may write to.
func matchWebhook(text []byte, _, end int) (int, int, int) {
	to := run(text, end, webhookPath)
	if v := text[end:to]; len(v) < 24 || count(v, digit) == 0 || isReference(v) {
		return none, 0, max(end, to)
	}
	return end, to, to
}

// matchPuTTY takes the lines of a private key of PuTTY.
func matchPuTTY(text []byte, _, end int) (int, int, int) {
	i := lineEnd(text, end, 16)
	if i == len(text) || text[i] != '\n' {
		return none, 0, end
	}
	from, to := i+1, i+1
	for to < len(text) && to-from < 1<<14 {
		line := run(text, to, base64Set)
		if line == to {
			break
		}
		to = line
		if to < len(text) && text[to] == '\r' {
			to++
		}
		if to+1 >= len(text) || text[to] != '\n' || run(text, to+1, base64Set) == to+1 || text[run(text, to+1, base64Set)-1] == ':' {
			break
		}
		if n := run(text, to+1, base64Set); n < len(text) && text[n] == ':' {
			break // the next member
		}
		to++
	}
	if to-from < 32 {
		return none, 0, end
	}
	return from, to, to
}

// matchJWK takes the private part of a key in JSON.
func matchJWK(text []byte, _, end int) (int, int, int) {
	i := blanks(text, end)
	if i == len(text) || text[i] != '"' {
		return none, 0, end
	}
	to := run(text, i+1, base64Set)
	if v := text[i+1 : to]; len(v) < 40 || to == len(text) || text[to] != '"' || !isRandom(v) {
		return none, 0, max(end, to)
	}
	return i + 1, to, to
}

// matchDockerAuth takes the user and password that a registry's credentials hold
// in base64.
func matchDockerAuth(text []byte, _, end int) (int, int, int) {
	i := blanks(text, end)
	if i == len(text) || text[i] != ':' {
		return none, 0, end
	}
	i = blanks(text, i+1)
	if i == len(text) || text[i] != '"' {
		return none, 0, end
	}
	to := min(run(text, i+1, base64Set), i+maxAhead)
	b := bytes.TrimRight(text[i+1:to], "=")
	plain := decode(make([]byte, 0, len(b)), b)
	if len(plain) < 4 || textIn(plain) < len(plain) || bytes.IndexByte(plain, ':') < 1 {
		return none, 0, max(end, to)
	}
	return i + 1, to, to
}

// matchSessionCookie takes a cookie that lets its bearer in, outside of a header.
func matchSessionCookie(text []byte, _, end int) (int, int, int) {
	to := run(text, end, tokenSet)
	if v := text[end:to]; len(v) < 16 || !mixed(v) || isReference(v) {
		return none, 0, max(end, to)
	}
	return end, to, to
}

// seedWords is the least number of words of a phrase that opens a purse.
const seedWords = 12

// matchSeedPhrase takes the words of one.
func matchSeedPhrase(text []byte, _, end int) (int, int, int) {
	i := end
	for i < len(text) && i-end < 8 && bytes.IndexByte([]byte("\"'`:= \t\r\nis"), text[i]) >= 0 {
		i++
	}
	i = lineWord(text, end, i)
	words, at, last := 0, i, i
	for at < len(text) && at-i < 512 {
		to := run(text[:min(len(text), at+9)], at, lower)
		if to-at < 3 || to-at > 8 {
			break
		}
		words, last = words+1, to
		if at = blanks(text, to); at == to {
			break
		}
	}
	if words < seedWords {
		return none, 0, max(end, last)
	}
	return i, last, last
}

// lineWord returns the start of the word that text[i] lies in, not before from:
// what was skipped as a sign may be its first letter.
func lineWord(text []byte, from, i int) int {
	if i < len(text) && lower[text[i]] {
		for i > from && lower[text[i-1]] {
			i--
		}
		if rest := text[i:]; bytes.HasPrefix(rest, []byte("is ")) {
			i = blanks(text, i+3)
		}
	}
	return i
}

// matchCodes takes the codes that stand in for a second factor, one or more in
// each line below their name.
func matchCodes(text []byte, _, end int) (int, int, int) {
	i := blanks(text, closers(text, end))
	if i == len(text) || text[i] != ':' {
		return none, 0, end
	}
	from, last := -1, 0
	for i++; i < len(text) && i-end < maxAhead; {
		i = blanks(text, i)
		if i < len(text) && (text[i] == '\n' || text[i] == '\r' || text[i] == ',') {
			i++
			continue
		}
		to := run(text, i, word)
		if v := text[i:to]; len(v) < 6 || count(v, digit) == 0 || count(v, upper)+count(v, lower) == len(v) {
			break
		}
		if from < 0 {
			from = i
		}
		last, i = to, to
	}
	if from < 0 {
		return none, 0, max(end, i)
	}
	return from, last, last
}

// matchNamedRandom takes a random word that stands beside the word for what it
// is: the token Zk3v…, your access token:, then a line with nothing else.
func matchNamedRandom(text []byte, at, end int) (int, int, int) {
	if at > 0 && wordDot[text[at-1]] && !bounds(text, at) || openBefore(text, at) {
		return none, 0, end
	}
	i := end
	if i < len(text) && text[i] == 's' {
		i++
	}
	if i < len(text) && wordDot[text[i]] {
		return none, 0, end // another word
	}
	gap := i
	for i < len(text) && i-gap < 8 && bytes.IndexByte([]byte(" \t\r\n:=`'\"*>|-"), text[i]) >= 0 {
		i++
	}
	if rest := text[i:min(len(text), i+4)]; bytes.HasPrefix(rest, []byte("is ")) {
		for i += 3; i < len(text) && i-gap < 16 && bytes.IndexByte([]byte(" \r\n:`'\"*"), text[i]) >= 0; {
			i++
		}
	}
	if i == gap {
		return none, 0, end
	}
	to := run(text[:min(len(text), i+256)], i, base64Set)
	v := text[i:to]
	if len(v) < 20 || to < len(text) && (text[to] == '(' || text[to] == '[' || text[to] == '.') && to+1 < len(text) && text[to+1] > ' ' {
		return none, 0, end
	}
	hexadecimal := (len(v) == 32 || len(v) == 40 || len(v) == 64) && count(v, hexDigit) == len(v) && count(v, digit) < len(v) && string(bytes.ToLower(text[at:end])) != "key"
	if !hexadecimal && !isRandom(v) || isDigest(v) || isPath(v) || bytes.HasPrefix(v, []byte("AAAA")) {
		return none, 0, end
	}
	return i, to, to
}

// openBefore reports whether the word before text[at] says that what is named may
// be known.
func openBefore(text []byte, at int) bool {
	i := at
	for i > 0 && at-i < 2 && (text[i-1] == ' ' || text[i-1] == '-' || text[i-1] == '_') {
		i--
	}
	from := i
	for from > 0 && i-from < 16 && alnum[text[from-1]] {
		from--
	}
	if from == i {
		return false
	}
	return openKey[string(bytes.ToLower(text[from:i]))]
}
