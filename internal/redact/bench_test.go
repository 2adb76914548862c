package redact_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand"
	"runtime"
	"strings"
	"testing"
)

// sample is one record of each common kind, by what its bytes are.
func sample() map[string][]byte {
	code := strings.Repeat("\t\tif err := s.lease(ctx, key, token); err != nil {\n\t\t\treturn fmt.Errorf(\"lease %s: %w\", key, err)\n\t\t}\n", 60)
	prose := strings.Repeat("The gauge at the harbour pier reports the tide once a minute, and the table keeps what it said. ", 80)
	record := func(kind, content string) []byte {
		return fmt.Appendf(nil, `{"parentUuid":"c0000028-0000-4000-8000-000000000001","isSidechain":false,"type":%q,"message":{"role":"user","content":[{"tool_use_id":"toolu_demo4001","type":"tool_result","content":%q}]},"uuid":"c0000028-0000-4000-8000-000000000003","timestamp":"2026-10-01T09:00:03.003Z","userType":"external","entrypoint":"cli","cwd":"/srv/demo/lantern","sessionId":"5e550028-0000-4000-8000-000000000001","version":"2.1.300","gitBranch":"main"}`, kind, content)
	}
	return map[string][]byte{
		"code":   record("user", code),
		"prose":  record("user", prose),
		"short":  record("assistant", "Sorted."),
		"stub":   record("api-request-blob", prose),
		"image":  record("user", strings.Repeat("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk", 2000)),
		"secret": record("user", code+"export API_TOKEN="+"abc123def456\n"+prose),
	}
}

func BenchmarkLine(b *testing.B) {
	r := redactor(b)
	for name, line := range sample() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				r.Line(line)
			}
		})
	}
}

// hostile are texts that, repeated, make each rule look and fail as often as it
// can.
func hostile() []string {
	zeros := base64.StdEncoding.EncodeToString([]byte(zipped(strings.Repeat("a", 3000))))
	prose := base64.StdEncoding.EncodeToString([]byte(zipped(strings.Repeat("password: tide gauge, ", 40))))
	return []string{
		"ghp_", "github_pat_", "eyJ", "eyJaaaaaaa.", "://", "a://x:y", "a://x:y/", "-----BEGIN PRIVATE" + " KEY-----", "a\n-----END PRIVATE KEY-----",
		"<private", "password:", "token=\"", "token=\\\"", "\\nkey: ", "A_KEY=", "the password is ", "bearer a", "basic aaaa", "authorization: basic ",
		"data:a;base64,", "\x1b]a", "\u200b", "curl -u a:b", "x-amz-signature=", "A\n",
		"twitter=", "twitter=aaaaaaaaaaaaaaaaaaaaaaaaa", "discord = 0123456789abcdef0123456789abcde ", "aaaaaaaaaaaaaa.atlasv1.", "SK0123456789abcdef",
		"kind: Secret\ndata:\n", "cookie: a=b; ", "password: |\n a\n", "tokens: [\"", "\\\"\":", "\\\\\\\\\":", "\" + \"", "A1=aB3dE6gH9jK2mN5pQ8r",
		"dGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVy ", "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6dE9f_ ", "mysql -p", "[redacted:x]",
		zeros + " ", prose + " ", base64.StdEncoding.EncodeToString([]byte(prose)) + " ", hex.EncodeToString([]byte("password: ")) + " ",
		hex.EncodeToString([]byte(strings.Repeat("key ", 100))) + "\n", "%70%61%73%73%77", "&#x70;", "&#112;", `\x70`, "H4sIAAAAAAAA/", "eJx",
		"machine a login ", "machine a login b password", "docker login ", "zip ", "smbclient ", "echo a | ", "echo a | sudo -s ", "--password-stdin ",
		"--from-literal a=", "value: ", "name: A_KEY\nvalue: ", "variable \"a_key\" {default = ", "user/pass: a/", "login: a / b", ":5432:", "a:5432:b:c:", ":*:",
		"/api/webhooks/", "private-lines: 1\n", "private-lines: 1\naaaaaaaaaaaaaaa\n", `"d":"aB3dE6gH9`, `"auth":"aB3d`, "sessionid=", "seed phrase ", "seed phrase: tide gauge ",
		"recovery codes: ", "recovery codes:\na1b2c3d\n", "token ", "the token is ", "token aB3dE6gH9jK2mN5pQ8r ", "api key ", "ENV password ", "| password | ", "password  a\n",
		"[a]\npassword = b\n", "a = b\npassword = \"", "password: &a ", "mot de passe est ", "pw: ", "psk=", "requirepass ", "identified by 'a", "get the key: \n",
	}
}

// BenchmarkHostile reports how much longer a byte of each takes than one of prose.
func BenchmarkHostile(b *testing.B) {
	const size = 256 << 10
	r := redactor(b)
	prose := strings.Repeat("The quick brown fox ", size/20)
	for _, unit := range hostile() {
		b.Run(fmt.Sprintf("%q", unit), func(b *testing.B) {
			text := strings.Repeat(unit, size/len(unit))
			// The least time of several counts: other programs only add to it.
			hostile, plain := math.Inf(1), math.Inf(1)
			for b.Loop() {
				plain = min(plain, seconds(func() { r.Text(prose) }))
				hostile = min(hostile, seconds(func() { r.Text(text) }))
			}
			b.ReportMetric(hostile/plain, "x-prose")
		})
	}
}

// BenchmarkMixtures repeats random mixtures of what rules look for, and reports
// how much longer a byte of the worst takes than one of prose. What nobody
// thought of shows here: a search that grew with the square of the text did.
func BenchmarkMixtures(b *testing.B) {
	const size = 64 << 10
	parts := strings.Split(`password|token|key|secret|=|:| |"|'|\|\"|[|]|{|}|<|//|https://|@|a|B7|ghp_|sk-|eyJ|.|-----BEGIN PRIVATE|`+
		` KEY-----|-----END PRIVATE KEY-----|<private>|kind: Secret|data:|cookie|Authorization|Basic |bearer |dGhlIHF1aWNrIGJyb3duIGZveA|`+
		`\n|\u0041|twitter|sentry|atlassian|curl -u |mysql -p|--password |is |the |`+random+`|" + "|data:a;base64,|0123456789abcdef|xoxb-|`+
		`facebook|[redacted:x]|,|%3D`, "|")
	parts = append(parts, "\n", "|\n ", "\x1b[1m", "\u200b", "\x00")
	r := redactor(b)
	prose := strings.Repeat("The quick brown fox ", size/20)
	g := rand.New(rand.NewSource(1))
	worst, unit := 0.0, ""
	for b.Loop() {
		mix := ""
		for range 1 + g.Intn(8) {
			mix += parts[g.Intn(len(parts))]
		}
		text := strings.Repeat(mix, size/len(mix))
		hostile, plain := math.Inf(1), math.Inf(1)
		for range 3 {
			plain = min(plain, seconds(func() { r.Text(prose) }))
			hostile = min(hostile, seconds(func() { r.Text(text) }))
		}
		if ratio := hostile / plain; ratio > worst {
			worst, unit = ratio, mix
		}
	}
	b.ReportMetric(worst, "x-prose")
	b.Logf("the worst of %d: %q", b.N, unit)
}

// seconds returns how long this process computes for f.
func seconds(f func()) float64 {
	start := cpu()
	f()
	return cpu() - start
}

// TestHostileTextCostsItsShare: what a byte of text may cost is bounded, whatever
// the text. A search that grows with the square of the text costs hundreds of
// times as much here, and memory that grows so shows in what is allocated.
func TestHostileTextCostsItsShare(t *testing.T) {
	const (
		size     = 128 << 10
		most     = 75             // times prose, of which the worst takes a third
		mostHeap = 64 * heapSlack // bytes for each of the text
	)
	r := redactor(t)
	prose := strings.Repeat("The quick brown fox ", size/20)
	heap := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	least := func(text string, n int) float64 {
		best := math.Inf(1)
		for range n { // other programs only add to it
			best = min(best, seconds(func() { r.Text(text) }))
		}
		return best
	}
	worst, which := 0.0, ""
	for _, unit := range hostile() {
		text := strings.Repeat(unit, size/len(unit))
		if used := heap(func() { r.Text(text) }); used > mostHeap*size {
			t.Errorf("%q: %d bytes are allocated for each of the text", unit, used/size)
		}
		// Slow once is no proof, on a machine that does other work.
		ratio := math.Inf(1)
		for try := 1; try <= 4 && ratio > most; try++ {
			ratio = least(text, try) / least(prose, try)
		}
		if ratio > most {
			t.Errorf("%q: a byte takes %.0f times as long as one of prose", unit, ratio)
		}
		if ratio > worst {
			worst, which = ratio, unit
		}
	}
	t.Logf("the worst takes %.0f times as long as prose: %q", worst, which)
}
