package redact_test

import (
	"fmt"
	"math"
	"math/rand"
	"strings"
	"testing"
	"time"
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

// BenchmarkHostile reads text that makes each rule look and fail as often as it
// can, and reports how much longer a byte of it takes than one of prose.
func BenchmarkHostile(b *testing.B) {
	const size = 256 << 10
	r := redactor(b)
	prose := strings.Repeat("The quick brown fox ", size/20)
	for _, unit := range []string{
		"ghp_", "github_pat_", "eyJ", "eyJaaaaaaa.", "://", "a://x:y", "a://x:y/", "-----BEGIN PRIVATE" + " KEY-----", "a\n-----END PRIVATE KEY-----",
		"<private", "password:", "token=\"", "token=\\\"", "\\nkey: ", "A_KEY=", "the password is ", "bearer a", "basic aaaa", "authorization: basic ",
		"data:a;base64,", "\x1b]a", "\u200b", "curl -u a:b", "x-amz-signature=", "A\n",
		"twitter=", "twitter=aaaaaaaaaaaaaaaaaaaaaaaaa", "discord = 0123456789abcdef0123456789abcde ", "aaaaaaaaaaaaaa.atlasv1.", "SK0123456789abcdef",
		"kind: Secret\ndata:\n", "cookie: a=b; ", "password: |\n a\n", "tokens: [\"", "\\\"\":", "\\\\\\\\\":", "\" + \"", "A1=aB3dE6gH9jK2mN5pQ8r",
		"dGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVy ", "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6dE9f_ ", "mysql -p", "[redacted:x]",
	} {
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

func seconds(f func()) float64 {
	start := time.Now()
	f()
	return time.Since(start).Seconds()
}
