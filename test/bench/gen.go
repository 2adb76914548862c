package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

// TranscriptMeta describes a generated transcript. Indexes count the parsable,
// non-blank JSONL lines from zero, which is how the claude-subconscious plugin
// counts its lastProcessedIndex.
type TranscriptMeta struct {
	SessionID     string         `json:"sessionId"`
	Bytes         int64          `json:"bytes"`
	Lines         int            `json:"lines"`
	Turns         int            `json:"turns"`
	LastTurnIndex int            `json:"lastTurnIndex"` // first line of the last turn
	LastTurnBytes int64          `json:"lastTurnBytes"`
	Types         map[string]int `json:"types"`
}

func cmdGen(args []string) error {
	fs := flag.NewFlagSet("gen", flag.ContinueOnError)
	size := fs.String("size", "1MB", "target size, e.g. 500KB, 10MB")
	out := fs.String("out", "", "output file")
	seed := fs.Int64("seed", 1, "random seed (same seed, same bytes)")
	session := fs.String("session", "", "session id (default: derived from the seed)")
	cwd := fs.String("cwd", "/home/dev/project", "cwd recorded in the entries")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *out == "" {
		return errors.New("-out is required")
	}
	n, err := parseSize(*size)
	if err != nil {
		return err
	}
	m, err := GenTranscript(*out, n, *seed, *session, *cwd)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(append(b, '\n'))
	return err
}

func parseSize(s string) (int64, error) {
	u := strings.ToUpper(strings.TrimSpace(s))
	mul := int64(1)
	for suf, m := range map[string]int64{"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30} {
		if n, ok := strings.CutSuffix(u, suf); ok {
			u, mul = n, m
		}
	}
	f, err := strconv.ParseFloat(u, 64)
	if err != nil || f <= 0 {
		return 0, fmt.Errorf("bad size %q", s)
	}
	return int64(f * float64(mul)), nil
}

// obj is a JSON object.
type obj = map[string]any

// gen makes transcripts and text.
type gen struct {
	r       *rand.Rand
	w       *bufio.Writer
	buf     bytes.Buffer
	enc     *json.Encoder
	meta    TranscriptMeta
	session string
	cwd     string
	parent  string
	clock   time.Time
}

// GenTranscript writes a transcript of about size bytes: whole turns until the
// size is reached. It uses the entry types and the envelope that current Claude
// Code versions write (one content block per line, tool output stored twice:
// in the message and in toolUseResult).
func GenTranscript(path string, size, seed int64, session, cwd string) (*TranscriptMeta, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // a second close says nothing new
	g := &gen{
		r:     rand.New(rand.NewSource(seed)),
		w:     bufio.NewWriterSize(f, 1<<20),
		cwd:   cwd,
		clock: time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC),
	}
	g.enc = json.NewEncoder(&g.buf)
	g.enc.SetEscapeHTML(false)
	g.session = session
	if g.session == "" {
		g.session = g.uuid()
	}
	g.meta.SessionID = g.session
	g.meta.Types = map[string]int{}
	for g.meta.Bytes < size {
		start, startBytes := g.meta.Lines, g.meta.Bytes
		g.turn()
		g.meta.LastTurnIndex, g.meta.LastTurnBytes = start, g.meta.Bytes-startBytes
	}
	if err := g.w.Flush(); err != nil {
		return nil, err
	}
	return &g.meta, f.Close()
}

func (g *gen) uuid() string {
	var b [16]byte
	_, _ = g.r.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (g *gen) id(prefix string) string {
	const al = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz123456789"
	b := make([]byte, 24)
	for i := range b {
		b[i] = al[g.r.Intn(len(al))]
	}
	return prefix + string(b)
}

func (g *gen) tick() string {
	g.clock = g.clock.Add(time.Duration(200+g.r.Intn(9000)) * time.Millisecond)
	return g.clock.Format("2006-01-02T15:04:05.000Z")
}

// keyOrder is the order of top-level keys in current transcripts; a reader that
// scans bytes instead of decoding must meet the same layout here.
var keyOrder = []string{
	"parentUuid", "isSidechain", "promptId", "type", "mode", "permissionMode", "messageId",
	"subtype", "attachment", "message", "snapshot", "isSnapshotUpdate", "aiTitle", "lastPrompt", "leafUuid",
	"requestId", "content", "uuid", "timestamp", "toolUseResult",
}

var keyRank = func() map[string]int {
	m := map[string]int{}
	for i, k := range keyOrder {
		m[k] = i
	}
	return m
}()

func (g *gen) line(v obj) {
	keys := make([]string, 0, len(v))
	for k := range v {
		keys = append(keys, k)
	}
	rank := func(k string) int {
		if r, ok := keyRank[k]; ok {
			return r
		}
		return len(keyOrder)
	}
	sort.Slice(keys, func(i, j int) bool {
		if a, b := rank(keys[i]), rank(keys[j]); a != b {
			return a < b
		}
		return keys[i] < keys[j]
	})
	g.buf.Reset()
	g.buf.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			g.buf.WriteByte(',')
		}
		fmt.Fprintf(&g.buf, "%q:", k)
		if err := g.enc.Encode(v[k]); err != nil {
			panic(err)
		}
		g.buf.Truncate(g.buf.Len() - 1) // the encoder's newline
	}
	g.buf.WriteString("}\n")
	_, _ = g.w.Write(g.buf.Bytes()) // Flush says it
	g.meta.Bytes += int64(g.buf.Len())
	g.meta.Lines++
	g.meta.Types[fmt.Sprint(v["type"])]++
}

// chained writes an entry with the uuid envelope.
func (g *gen) chained(typ string, extra obj) {
	u := g.uuid()
	v := obj{
		"parentUuid": nil, "isSidechain": false, "userType": "external",
		"cwd": g.cwd, "sessionId": g.session, "version": "2.1.200",
		"gitBranch": "main", "type": typ, "uuid": u, "timestamp": g.tick(),
	}
	if g.parent != "" {
		v["parentUuid"] = g.parent
	}
	maps.Copy(v, extra)
	g.line(v)
	g.parent = u
}

var words = strings.Fields(`the a to of reconcile session memory agent cluster status block
whisper cursor delta upload bucket object retry backoff lease worker hook prompt transcript
pointer buffer index schema field owner label finalizer condition queue controller manager
config secret token header body error wraps returns expects fails passes because when after
before while only never always must should test case table bench trace naïve → ✓ — 完了`)

func (g *gen) prose(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[g.r.Intn(len(words))])
		switch g.r.Intn(14) {
		case 0:
			b.WriteString(". ")
		case 1:
			b.WriteString(",\n")
		default:
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// code looks like numbered source output, with quotes, tabs and markup in it.
func (g *gen) code(n int) string {
	var b strings.Builder
	for i := 1; b.Len() < n; i++ {
		w := func() string { return words[g.r.Intn(len(words))] }
		switch g.r.Intn(5) {
		case 0:
			fmt.Fprintf(&b, "%6d\tif %s != nil && %s > %d {\n", i, w(), w(), g.r.Intn(4096))
		case 1:
			fmt.Fprintf(&b, "%6d\t\treturn fmt.Errorf(\"%s %s: %%w\", %s)\n", i, w(), w(), w())
		case 2:
			fmt.Fprintf(&b, "%6d\t// <%s> & \"%s\" %s\n", i, w(), w(), w())
		case 3:
			fmt.Fprintf(&b, "%6d\t\t%s.%s(ctx, %q, []string{\"%s\", '%s'})\n", i, w(), w(), w(), w(), w())
		default:
			fmt.Fprintf(&b, "%6d\t}\n", i)
		}
	}
	return b.String()
}

// span returns a size between lo and hi, small ones more often.
func (g *gen) span(lo, hi int) int {
	f := g.r.Float64()
	return lo + int(f*f*f*float64(hi-lo))
}

func (g *gen) assistant(msgID, req string, block obj, stop any) {
	g.chained("assistant", obj{
		"requestId": req,
		"message": obj{
			"id": msgID, "type": "message", "role": "assistant", "model": "claude-opus-4-6",
			"content": []any{block}, "stop_reason": stop, "stop_sequence": nil,
			"usage": obj{
				"input_tokens": g.r.Intn(20), "cache_creation_input_tokens": g.r.Intn(9000),
				"cache_read_input_tokens": g.r.Intn(150000), "output_tokens": g.r.Intn(2000), "service_tier": "standard",
			},
		},
	})
}

func (g *gen) toolStep() {
	msg, req := g.id("msg_01"), g.id("req_01")
	if g.r.Intn(3) == 0 {
		g.assistant(msg, req, obj{"type": "thinking", "thinking": g.prose(g.span(200, 6000)), "signature": g.id("Eq") + g.id("") + g.id("")}, nil)
	}
	if g.r.Intn(3) == 0 {
		g.assistant(msg, req, obj{"type": "text", "text": g.prose(g.span(60, 900))}, nil)
	}
	file := fmt.Sprintf("%s/internal/%s/%s.go", g.cwd, words[g.r.Intn(len(words))], words[g.r.Intn(len(words))])
	var name string
	var input, result obj
	var content any
	isErr := false
	switch g.r.Intn(10) {
	case 0, 1, 2:
		name, input = "Read", obj{"file_path": file}
		text := g.code(g.span(1500, 40000))
		content = text
		result = obj{"type": "text", "file": obj{"filePath": file, "content": text, "numLines": 400, "startLine": 1, "totalLines": 400}}
	case 3, 4, 5:
		name, input = "Bash", obj{"command": "go test ./... " + g.prose(g.span(10, 300)), "description": g.prose(40)}
		text := g.code(g.span(80, 30000))
		isErr = g.r.Intn(8) == 0
		content = text
		result = obj{"stdout": text, "stderr": "", "interrupted": false, "isImage": false}
	case 6:
		name, input = "Grep", obj{"pattern": g.prose(12), "output_mode": "content", "path": g.cwd}
		text := g.code(g.span(200, 9000))
		content = text
		result = obj{"mode": "content", "numFiles": 0, "filenames": []string{}, "content": text, "numLines": 60}
	case 7:
		old, neu := g.code(g.span(80, 1500)), g.code(g.span(80, 1500))
		orig := g.code(g.span(2000, 40000))
		name, input = "Edit", obj{"file_path": file, "old_string": old, "new_string": neu, "replace_all": false}
		content = "The file " + file + " has been updated."
		result = obj{
			"filePath": file, "oldString": old, "newString": neu, "originalFile": orig,
			"structuredPatch": []any{obj{"oldStart": 10, "oldLines": 12, "newStart": 10, "newLines": 14, "lines": strings.Split(neu, "\n")}}, "userModified": false,
		}
	case 8:
		name, input = "TodoWrite", obj{"todos": []any{obj{"content": g.prose(60), "status": "in_progress", "activeForm": g.prose(50)}}}
		content = "Todos have been modified successfully."
		result = obj{"oldTodos": []any{}, "newTodos": input["todos"]}
	default:
		name, input = "Task", obj{"description": g.prose(30), "prompt": g.prose(g.span(300, 4000)), "subagent_type": "Explore"}
		text := g.prose(g.span(500, 9000))
		content = []any{obj{"type": "text", "text": text}}
		result = obj{"status": "completed", "content": content, "totalDurationMs": 61000, "totalTokens": 42000, "totalToolUseCount": 12}
	}
	use := g.id("toolu_01")
	g.assistant(msg, req, obj{"type": "tool_use", "id": use, "name": name, "input": input}, "tool_use")
	if g.r.Intn(4) == 0 {
		g.chained("attachment", obj{"attachment": obj{"type": "hook_success", "hookName": "PreToolUse:" + name, "toolUseID": use, "hookEvent": "PreToolUse", "content": "", "stdout": g.prose(40), "stderr": "", "exitCode": 0, "durationMs": 900 + g.r.Intn(600)}})
	}
	block := obj{"type": "tool_result", "tool_use_id": use, "content": content}
	if isErr {
		block["is_error"] = true
	}
	g.chained("user", obj{"message": obj{"role": "user", "content": []any{block}}, "toolUseResult": result, "sourceToolAssistantUUID": g.parent})
}

func (g *gen) turn() {
	g.meta.Turns++
	prompt := g.prose(g.span(30, 1200))
	g.line(obj{"type": "mode", "mode": "normal", "sessionId": g.session})
	g.line(obj{"type": "permission-mode", "permissionMode": "acceptEdits", "sessionId": g.session})
	msgID := g.uuid()
	g.line(obj{
		"type": "file-history-snapshot", "messageId": msgID, "isSnapshotUpdate": false,
		"snapshot": obj{"messageId": msgID, "timestamp": g.tick(), "trackedFileBackups": obj{"internal/a.go": obj{"backupFileName": g.id(""), "version": 1, "backupTime": g.tick()}}},
	})
	g.chained("user", obj{"message": obj{"role": "user", "content": prompt}, "promptId": g.uuid(), "permissionMode": "acceptEdits"})
	g.chained("attachment", obj{"attachment": obj{"type": "hook_success", "hookName": "UserPromptSubmit", "hookEvent": "UserPromptSubmit", "content": g.prose(300), "stdout": g.prose(300), "stderr": "", "exitCode": 0, "durationMs": 1100}})
	for i, n := 0, 3+g.r.Intn(14); i < n; i++ {
		g.toolStep()
	}
	msg, req := g.id("msg_01"), g.id("req_01")
	g.assistant(msg, req, obj{"type": "thinking", "thinking": g.prose(g.span(200, 3000)), "signature": g.id("Eq")}, nil)
	g.assistant(msg, req, obj{"type": "text", "text": g.prose(g.span(300, 4000))}, "end_turn")
	g.chained("system", obj{"subtype": "stop_hook_summary", "hookCount": 1, "hookInfos": []any{obj{"command": "hook stop"}}, "hookErrors": []any{}, "preventedContinuation": false, "stopReason": "", "level": "suggestion"})
	g.chained("system", obj{"subtype": "turn_duration", "durationMs": 30000 + g.r.Intn(90000), "isMeta": false})
	if g.meta.Turns%6 == 1 {
		g.line(obj{"type": "ai-title", "aiTitle": g.prose(40), "sessionId": g.session})
	}
	if g.meta.Turns%40 == 0 {
		g.chained("system", obj{"subtype": "compact_boundary", "content": "Conversation compacted", "level": "info", "compactMetadata": obj{"trigger": "auto", "preTokens": 160000}})
		g.chained("user", obj{"message": obj{"role": "user", "content": "This session is being continued from a previous conversation.\n" + g.prose(6000)}, "isCompactSummary": true, "isVisibleInTranscriptOnly": true})
	}
	g.line(obj{"type": "last-prompt", "lastPrompt": prompt, "leafUuid": g.parent, "sessionId": g.session})
}

// newText returns a generator for prose alone.
func newText(seed int64) *gen { return &gen{r: rand.New(rand.NewSource(seed))} }
