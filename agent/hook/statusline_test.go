package hook_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/undersong-dev/undersong/agent/hook"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/whisper"
)

func TestStatusLine(t *testing.T) {
	summary := func(text string) string { return `{"version":1,"sessions":[{"id":"other"},` + text + `]}` }
	mine := `{"id":"` + strings.ToUpper(session) + `","project":"github.com/acme/api","state":"Active","lag":%}`
	for name, tc := range map[string]struct {
		reason string
		files  map[string]string
		config note.Config
		env    string
		place  *whisper.Place
		stdin  string
		want   string
	}{
		"ready":      {reason: "nothing is known of the session yet", want: "undersong: ready, team alpha"},
		"recorded":   {files: map[string]string{"status.json": summary(strings.Replace(mine, "%", "0", 1))}, want: "undersong: recorded for alpha"},
		"behind":     {files: map[string]string{"status.json": summary(strings.Replace(mine, "%", "41", 1))}, want: "undersong: recorded for alpha, 41 lines waiting"},
		"not here":   {files: map[string]string{"status.json": summary(`{"id":"` + session + `","state":"Active"}`)}, want: "undersong: not recorded here"},
		"no project": {place: &whisper.Place{Cwd: "/src/api", Recall: note.RecallOff}, want: "undersong: not recorded here"},
		"deleted":    {files: map[string]string{"status.json": summary(`{"id":"` + session + `","project":"p","state":"Deleted"}`)}, want: "undersong: deleted by a person, not recorded"},
		"login":      {files: map[string]string{"status.json": `{"loginNeeded":true}`}, want: "undersong: login needed (undersong login)"},
		"revoked":    {files: map[string]string{"status.json": `{"loginNeeded":true,"revoked":true}`}, want: "undersong: revoked (undersong status)"},
		"broken":     {files: map[string]string{"status.json": `{`}, want: "undersong: ready, team alpha"},
		"off":        {config: note.Config{Off: true}, want: "undersong: off"},
		"LETTA_MODE": {env: "off", want: "undersong: off"},
		"paused": {
			files: map[string]string{"silence.json": `{"version":1,"silences":[{"reason":"paused","since":"2026-03-01T11:00:00Z","until":"2026-03-01T12:19:30Z"}]}`},
			want:  "undersong: not recorded, paused for 20 min",
		},
		"paused before": {
			files: map[string]string{"silence.json": `{"version":1,"silences":[{"reason":"paused","until":"2026-03-01T11:00:00Z"}]}`},
			want:  "undersong: ready, team alpha",
		},
		"private": {
			files: map[string]string{"silence.json": `{"version":1,"silences":[{"reason":"private","session":"` + session + `"}]}`},
			want:  "undersong: not recorded, private",
		},
		"other's private": {
			files: map[string]string{"silence.json": `{"version":1,"silences":[{"reason":"private","session":"x"}]}`},
			want:  "undersong: ready, team alpha",
		},
		"hostile name": {config: note.Config{Namespace: "a\x1b[2Jb\nc\u202e"}, want: "undersong: ready, team a\ufffd[2Jb c\ufffd"},
		"no JSON":      {stdin: "hello", want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			home := configure(t, func(c *note.Config) {
				c.Namespace, c.Off = "alpha", tc.config.Off
				if tc.config.Namespace != "" {
					c.Namespace = tc.config.Namespace
				}
			})
			t.Setenv("LETTA_MODE", tc.env)
			for file, text := range tc.files {
				if err := os.WriteFile(filepath.Join(home, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tc.place != nil {
				if err := whisper.PutPlace(home, *tc.place); err != nil {
					t.Fatal(err)
				}
			}
			stdin := tc.stdin
			if stdin == "" {
				stdin = `{"session_id":"` + session + `","cwd":"/src/api","cost":{"total":1.5}}`
			}
			var out bytes.Buffer
			hook.StatusLine(strings.NewReader(stdin), &out, env(now))
			if got := strings.TrimSuffix(out.String(), "\n"); got != tc.want || strings.Contains(got, "\n") {
				t.Errorf("%s: %q, want %q", tc.reason, out.String(), tc.want)
			}
		})
	}
}
