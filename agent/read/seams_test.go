package read

import (
	"fmt"
	"strings"
	"testing"
)

func TestATokenOverTwoRecordsIsFound(t *testing.T) {
	token := "ghp_" + strings.Repeat("A1b2", 9)
	said := func(n int, text string) string {
		return fmt.Sprintf(`{"type":"user","uuid":"u%d","sessionId":%q,"cwd":"/tide","origin":{"kind":"human"},"message":{"role":"user","content":%q}}`, n, session, text)
	}
	src := transcriptAt(t, t.TempDir(), said(1, "the token begins "+token[:22]), said(2, token[22:]+" and ends here"))
	batch, err := newReader(t).Next(t.Context(), src, Cursor{}, Want{})
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, line := range batch.Lines {
		all.WriteString(line.String())
	}
	for _, part := range []string{token[:22], token[22:]} {
		if strings.Contains(all.String(), part) {
			t.Errorf("a half of the token is in the segment")
		}
	}
	if !strings.Contains(all.String(), "the token begins") || !strings.Contains(all.String(), "and ends here") {
		t.Error("the words around it are lost")
	}
	if len(batch.Header.Findings) == 0 {
		t.Error("the header counts no finding")
	}
}
