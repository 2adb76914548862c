// Package redacttest has secrets to plant: invented ones of every kind that the
// redactor knows, for tests of whatever they must not come through.
package redacttest

import (
	"encoding/base64"
	"strings"
)

// Random is the body of invented secrets: what a generator of keys would make.
const Random = "Zk3vQ9xLm2Rt7YbN4cWd8HsJ6fGp1KaE5uTo0iVe"

// Invented secrets are put together when the test runs: what stands in this
// repository must be no finding of anybody's scanner.
const (
	hex64     = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	lettered  = "q7w3e9r5t1y8u2i6o4p0a3s7d5f9g1h8j2k6l4z0x3c7v5b9n1m8q2w6e4r0t3y7u5i9o1p8"
	mixedCase = Random + "w9XzB3nQ7rLkT5yVhM1cJ6sFdG8pA2eUoIiE4tRqWyKx0ZvNbPl"
)

// Kind is a kind of secret as people write it down.
type Kind struct {
	// Text is how it is written, Secret the part that must be gone.
	Text, Secret string
	// Whole says that it needs no name beside it: it is found if it is cut in two.
	Whole bool
}

// Kinds returns one secret of each kind, by name.
func Kinds() map[string]Kind {
	own := func(parts ...string) Kind {
		s := strings.Join(parts, "")
		return Kind{Text: s, Secret: s, Whole: true}
	}
	with := func(before, secret, after string) Kind {
		return Kind{Text: before + secret + after, Secret: secret}
	}
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	b64u := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	pem := strings.Repeat(Random[:32]+Random[8:40]+"\n", 3)
	return map[string]Kind{
		"GitHub":        own("gh", "p_", Random[:36]),
		"GitHubServer":  own("gh", "s_", Random[:36]),
		"GitHubFine":    own("github", "_pat_", "11ABCDEFG0", Random, "_", Random[:32]),
		"GitLab":        own("gl", "pat-", Random[:20]),
		"AWSKeyID":      own("AK", "IA", "Q3EGRIIZ7XMPL2EY"),
		"AWSSecret":     own(Random[:17], "/", Random[18:30], "+", Random[31:40]),
		"AWSSecretName": with("aws_secret_access_key = ", Random[:17]+"/"+Random[18:40], ""),
		"Anthropic":     own("sk-", "ant-", "api03-", mixedCase, "AA"),
		"OpenAI":        own("sk-", "proj-", mixedCase),
		"Slack":         own("xo", "xb-", "123456789012-1234567890123-", Random[:24]),
		"Google":        own("AI", "za", "SyD3m0", Random[:29]),
		"NPM":           own("np", "m_", Random[:36]),
		"PyPI":          own("pypi-", "AgEIcHlwaS5vcmc", mixedCase),
		"Stripe":        own("sk_", "live_", Random[:24]),
		"Age":           own("AGE-", "SECRET-KEY-1", strings.ToUpper(lettered[:58])),
		"HuggingFace":   own("hf", "_", "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"),
		"Vault":         own("hv", "s.", mixedCase, mixedCase[:8]),
		"DigitalOcean":  own("dop", "_v1_", hex64),
		"Databricks":    own("da", "pi", hex64[:32]),
		"Linear":        own("lin", "_api_", lettered[:40]),
		"Postman":       own("PM", "AK-", hex64[:24], "-", hex64[10:44]),
		"Shopify":       own("shp", "at_", hex64[:32]),
		"SendGrid":      own("S", "G.", mixedCase[:22], ".", mixedCase[:43]),
		"Doppler":       own("dp", ".pt.", lettered[:43]),
		"Grafana":       own("gl", "sa_", Random[:32], "_", hex64[:8]),
		"Pulumi":        own("pu", "l-", hex64[:40]),
		"Notion":        own("nt", "n_", "12345678901", Random[:35]),
		"Atlassian":     own("ATA", "TT3", mixedCase),
		"Artifactory":   own("AK", "Cp", mixedCase[:69]),
		"Twitter":       with("twitter_secret = ", lettered[:50], ""),
		"Telegram":      with("telegram bot: ", "123456789:A"+Random[:34], ""),
		"Heroku":        with("HEROKU_API_KEY=", "12345678-9abc-4def-8123-456789abcdef", ""),
		"Datadog":       with("datadog_key: ", lettered[:40], ""),
		"JWT":           own(b64u(`{"alg":"HS256"}`), ".", b64u(`{"sub":"1234567890","n":1}`), ".", Random),
		"PEM":           {Text: "-----BEGIN " + "RSA PRIVATE KEY-----\n" + pem + "-----END " + "RSA PRIVATE KEY-----", Secret: Random[:32] + Random[8:40]},
		"PEMTail":       {Text: "\n" + pem + "-----END " + "PRIVATE KEY-----", Secret: Random[:32] + Random[8:40]},
		"URI":           with("postgres://lantern:", "tide-"+Random[:10], "@db.example.test/x"),
		"Basic":         with("Authorization: Basic ", b64("lantern:"+Random[:12]), ""),
		"Bearer":        with("Authorization: Bearer ", Random, ""),
		"Cookie":        with("\nCookie: theme=dark; session=", Random[:24], ""),
		"SetCookie":     with("\nSet-Cookie: sid=", Random[:24], "; Path=/; HttpOnly"),
		"Env":           with("\nDB_PASSWORD=", "hunter"+Random[:8], ""),
		"EnvRandom":     with("\nLANTERN_SEED=", Random[:32], ""),
		"YAML":          with("\n  password: ", "hunter"+Random[:8], ""),
		"YAMLBlock":     with("\n  password: |\n    ", "hunter"+Random[:8], "\n"),
		"INIWord":       with("\npassword = ", "correcthorsebattery", "\n"),
		"LowerKey":      with("\nlantern_key: ", Random[:32], ""),
		"FlagWord":      with("mysql --password ", "correcthorsebattery", " -h db"),
		"Phrase":        with("the password is ", "hunter"+Random[:8], ""),
		"JSONMember":    with(`{"api_key": "`, Random[:20], `"}`),
		"JSONList":      with(`{"passwords": ["`, "hunter"+Random[:8], `"]}`),
		"SSHPass":       with("sshpass -p ", "hunter"+Random[:6], " ssh x"),
		"MySQL":         with("mysql -u root -p", "hunter"+Random[:6], " lantern"),
		"Curl":          with("curl -u lantern:", "hunter"+Random[:6], " https://example.test"),
		"Manifest":      with("\napiVersion: v1\ndata:\n  note: ", b64("lantern"), "\nkind: Secret\nmetadata:\n  name: x\n---\n"),
		"Concatenated":  {Text: `"gh` + `p_` + Random[:16] + `" + "` + Random[16:36] + `"`, Secret: Random[16:36]},
		"Private":       with("<private>", "Ann of the harbour", "</private>"),
	}
}
