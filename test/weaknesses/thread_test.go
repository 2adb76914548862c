package weaknesses

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/undersong-dev/undersong/agent/cli"
	"github.com/undersong-dev/undersong/agent/daemon"
	"github.com/undersong-dev/undersong/agent/note"
	"github.com/undersong-dev/undersong/agent/read"
	"github.com/undersong-dev/undersong/api/v1alpha1"
	"github.com/undersong-dev/undersong/controllers/connect"
	"github.com/undersong-dev/undersong/internal/letta"
	"github.com/undersong-dev/undersong/internal/letta/api"
	"github.com/undersong-dev/undersong/internal/letta/lettatest"
	"github.com/undersong-dev/undersong/internal/outcome"
	"github.com/undersong-dev/undersong/internal/redact"
	"github.com/undersong-dev/undersong/internal/segment"
	"github.com/undersong-dev/undersong/internal/transcript"
	"github.com/undersong-dev/undersong/test/tools"
)

// add appends lines to a file of the session.
func (d *desk) add(path string, lines ...string) {
	d.t.Helper()
	d.must(os.MkdirAll(filepath.Dir(path), 0o700))
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		d.t.Fatal(err)
	}
	d.file(path, string(old)+strings.Join(lines, "\n")+"\n")
}

// record is one of the session's, with fields of a type's own.
func (d *desk) record(fields string) string {
	d.n++
	return fmt.Sprintf(`{"uuid":"%s-%d","sessionId":%q,"cwd":%q,%s}`, d.session, d.n, d.session, d.cwd, fields)
}

// waits returns what lies in the spool to be sent, by stream.
func (d *desk) waits() map[string]string {
	d.t.Helper()
	files, err := filepath.Glob(filepath.Join(d.home, daemon.SessionsDir, d.session, "*.seg"))
	d.must(err)
	text := map[string]string{}
	for _, file := range files {
		raw, err := segment.Unpack([]byte(d.read(file)))
		d.must(err)
		h, lines, err := segment.Decode(raw)
		d.must(err)
		text[h.Stream] += string(bytes.Join(lines, []byte("\n"))) + "\n"
	}
	return text
}

// TestW09: of a session that ended without a Stop the plugin never sent the
// tail. Here the end, a compaction, and the next session's begin bring it.
func TestW09(t *testing.T) {
	slow := quick
	slow.Poll = time.Hour // nothing but the hooks
	for _, event := range []string{"SessionEnd", "PreCompact"} {
		t.Run(event, func(t *testing.T) {
			d := sit(t)
			d.run(slow)
			d.say(1)
			d.hook("UserPromptSubmit")
			d.spooled(1)
			d.say(2)
			d.hook(event)
			d.spooled(3)
		})
	}
	t.Run("the next SessionStart", func(t *testing.T) {
		d := sit(t)
		stop := d.run(slow)
		d.say(1)
		d.hook("UserPromptSubmit")
		d.spooled(1)
		stop()
		d.say(2) // and the terminal is closed
		d.hook("SessionStart", "source", "startup", "session_id", "5"+d.session[1:], "transcript_path", filepath.Join(filepath.Dir(d.path), "5"+d.session[1:]+".jsonl"))
		d.run(slow) // as that hook would
		d.spooled(3)
	})
}

// TestW15: one record of a shape that was not expected, and the plugin never
// sent anything of the session again. Here it is passed on or left out, and what
// follows it is sent.
func TestW15(t *testing.T) {
	d := sit(t)
	d.start()
	odd := []string{
		d.record(`"type":"user","message":{"role":"user","content":[{"type":"tool_result"}]}`),
		d.record(`"type":"user","message":{"role":"user","content":[null]}`),
		d.record(`"type":"user","message":{"role":"user","content":{"a":[]}}`),
		d.record(`"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","id":1,"name":"Bash","input":{"command":7}}]}`),
		d.record(`"type":"assistant","message":42`),
		d.record(`"type":["x"],"message":null`),
		d.record(`"type":"of the future","what":{"ever":1}`),
		`null`, `[]`, `7`, `"words"`, `{`, "\x00\xff", `{"type":"user","message":{"content":` + strings.Repeat("[", 20000),
	}
	for _, line := range odd {
		if record, err := transcript.Parse([]byte(line)); err == nil {
			record.Memory(transcript.MainStream, d.session, transcript.Policy{ToolResults: transcript.AllResults, Thinking: true}, nil)
		}
		d.add(d.path, line)
		d.say(1)
	}
	d.hook("Stop")
	d.eventually("every good record is read", func() error {
		text := d.waits()[read.Main]
		if n := strings.Count(text, `"content":"words `); n != len(odd) {
			return fmt.Errorf("%d of %d", n, len(odd))
		}
		return nil
	})
}

// TestW25: the plugin read the whole file at every Stop. Here what a Stop costs
// follows what is new.
func TestW25(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux says what a process has read")
	}
	d := sit(t)
	d.n = 0
	reader := reader(t, d)
	line := d.record(`"type":"user","origin":{"kind":"human"},"message":{"role":"user","content":"` + strings.Repeat("words ", 2000) + `"}`)
	d.file(d.path, strings.Repeat(line+"\n", 2000)) // 24 MB
	src := read.Source{Session: d.session, Stream: read.Main, Path: d.path, Cwd: d.cwd}
	cursor := read.Cursor{}
	for {
		batch, err := reader.Next(t.Context(), src, cursor, read.Want{})
		d.must(err)
		cursor = batch.Cursor
		if !batch.More {
			break
		}
	}
	d.say(3)
	before := bytesRead(t)
	batch, err := reader.Next(t.Context(), src, cursor, read.Want{})
	d.must(err)
	if n := bytesRead(t) - before; len(batch.Lines) != 3 || n > 1<<20 {
		t.Errorf("%d lines, for which %d bytes were read", len(batch.Lines), n)
	}
}

// reader is the daemon's, which hears all.
func reader(t *testing.T, d *desk) *read.Reader {
	t.Helper()
	redactor, err := redact.New()
	d.must(err)
	return &read.Reader{
		Redactor: redactor, Clock: clocktesting.NewFakePassiveClock(now),
		Decide: func(string, string) read.Verdict {
			return read.Verdict{Allowed: true, Project: read.Project{Name: "lantern", Remote: project}}
		},
	}
}

// bytesRead is what this process has read so far.
func bytesRead(t *testing.T) (n int64) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip(err)
	}
	if _, err := fmt.Sscanf(string(data), "rchar: %d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestW29: the plugin sent secrets as they were, and had no way to leave a
// project out. Here known secrets never reach the spool, and of a project that
// is excluded nothing does.
func TestW29(t *testing.T) {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	random := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte(digits[rand.IntN(len(digits))])
		}
		return b.String()
	}
	secrets := []string{"ghp_" + random(36), "glpat-" + random(20), random(40)}
	words := []string{
		"my token is " + secrets[0],
		"curl -H 'PRIVATE-TOKEN: " + secrets[1] + "' x",
		"AWS_SECRET_ACCESS_KEY=" + secrets[2],
	}
	talk := func(d *desk) {
		for _, text := range words {
			d.add(d.path,
				d.record(fmt.Sprintf(`"type":"user","origin":{"kind":"human"},"message":{"role":"user","content":%q}`, text)),
				d.record(fmt.Sprintf(`"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","id":"t%d","name":"Bash","input":{"command":%q}}]}`, d.n, text)),
				d.record(fmt.Sprintf(`"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t%d","content":%q}]}`, d.n-1, text)))
		}
		d.hook("Stop")
	}
	t.Run("secrets", func(t *testing.T) {
		d := sit(t)
		d.start()
		talk(d)
		d.spooled(9)
		text := d.waits()[read.Main]
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s… is on its way", secret[:6])
			}
		}
		if strings.Count(text, "[redacted:") < 9 || !strings.Contains(text, "my token is ") {
			t.Errorf("what goes is %s", text)
		}
	})
	t.Run("excluded", func(t *testing.T) {
		d := sit(t)
		d.file(filepath.Join(d.home, note.PolicyFile),
			`{"version":1,"include":["git.example.com/lighthouse/*"],"exclude":["`+project+`"],"recall":true,"mode":"brief","maxCharacters":4000}`)
		d.start()
		talk(d)
		d.eventually("the file is read to its end", func() error {
			state, err := os.ReadFile(filepath.Join(d.home, daemon.SessionsDir, d.session, "state.json"))
			if err != nil {
				return err
			}
			if want := fmt.Sprintf(`"offset": %d`, len(d.read(d.path))); !strings.Contains(string(state), want) {
				return fmt.Errorf("no %s in %s", want, state)
			}
			return nil
		})
		if text := d.waits(); len(text) > 0 {
			t.Errorf("on its way: %v", text)
		}
	})
}

// TestW30: the plugin let a second agent, which nobody watched, work in the
// person's checkout. Here the observer has tools for its memory and no other:
// one that is made has none, and one that has is refused.
func TestW30(t *testing.T) {
	server, err := lettatest.New(lettatest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	url, err := server.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() }) // the test is over
	c, err := api.New(api.Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	m := &v1alpha1.TeamMemory{}
	m.Namespace, m.Name, m.UID = "alpha", "main", "uid"
	m.Spec.Letta = v1alpha1.Letta{Backend: v1alpha1.BackendAPI, BaseURL: url}
	m.Spec.Agent = v1alpha1.AgentSource{Template: &v1alpha1.AgentTemplate{Name: "memory", Model: "m"}}
	id, err := new(connect.Agents).Ensure(t.Context(), c, m, project)
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Agent(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if made.Tools == nil {
		t.Error("it is not known what the agent may do")
	}
	for _, tool := range made.Tools {
		if !strings.Contains(tool, "memory") {
			t.Errorf("the agent that was made may use %s", tool)
		}
	}
	for _, tool := range []string{"run_code", "Bash", "web_search", "send_message", "memoryless"} {
		if id := armed(t, url, tool); refused(t, c, m, id) != v1alpha1.AgentUnsafeReason {
			t.Errorf("an agent with %s is used", tool)
		}
	}
}

// armed makes an agent with a tool, as somebody else may have.
func armed(t *testing.T, url, tool string) string {
	t.Helper()
	body := fmt.Sprintf(`{"name":"armed","model":"m","include_base_tools":false,"tools":["memory_insert",%q]}`, tool)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/agents/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // it is read
	var agent struct{ ID string }
	if err := json.NewDecoder(answer.Body).Decode(&agent); err != nil || agent.ID == "" {
		t.Fatalf("%s: %v", answer.Status, err)
	}
	return agent.ID
}

func refused(t *testing.T, c letta.Client, m *v1alpha1.TeamMemory, id string) string {
	t.Helper()
	m = m.DeepCopy()
	m.Spec.Agent = v1alpha1.AgentSource{ID: id}
	_, err := new(connect.Agents).Ensure(t.Context(), c, m, project)
	if err == nil {
		return ""
	}
	return outcome.Of(err).Reason
}

// TestW31: installed from a marketplace, the plugin lacked its packages, sent
// nothing and said nothing. Here each program is one file that needs no other,
// and doctor says when it does not work.
func TestW31(t *testing.T) {
	d := sit(t)
	for _, name := range []string{"undersong-hook", "undersong"} {
		// Where C may be used: without it, files that need it are left out of the
		// list. The standard library does without.
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if and .CgoFiles (not .Standard)}}{{.ImportPath}}{{end}}", "./cmd/"+name)
		list.Dir = tools.Root()
		list.Env = append(os.Environ(), "CGO_ENABLED=1")
		out, err := list.Output()
		if err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: %v, needs a C library in %s", name, err, out)
		}
	}
	// Nothing but the program: no PATH, no other file beside it.
	cmd := exec.CommandContext(t.Context(), binary(t), note.HomeFlag, d.home)
	cmd.Env = []string{"HOME=" + d.user}
	cmd.Stdin = strings.NewReader(d.event("Stop"))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("the hook alone: %v: %s", err, out)
	}
	if files, err := os.ReadDir(note.Dir(d.home)); err != nil || len(files) == 0 {
		t.Errorf("%d notes, %v", len(files), err)
	}
	// The daemon that is configured is not there: nothing would be sent.
	var out bytes.Buffer
	system := cli.NewSystem("test")
	system.Out, system.Err = &out, &out
	if code := cli.Run(t.Context(), system, []string{"doctor", "--offline"}); code == 0 || !strings.Contains(out.String(), "no-daemon, which is not there") {
		t.Errorf("doctor returns %d and says %s", code, out.String())
	}
}

// TestW35: the plugin labelled results with raw ids and sent pictures as text.
// Here a result has the name of its tool, and what is binary is dropped.
func TestW35(t *testing.T) {
	d := sit(t)
	d.start()
	picture := make([]byte, 30000)
	for i := range picture {
		picture[i] = byte(rand.Uint32())
	}
	data := base64.StdEncoding.EncodeToString(picture)
	lines := []string{
		d.record(`"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","id":"toolu_01raw","name":"Bash","input":{"command":"make tide"}}]}`),
		d.record(`"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01raw","content":[{"type":"text","text":"the tide is made"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + data + `"}}]}]}`),
	}
	var told transcript.Tools
	var memory []string
	for _, line := range lines {
		record, err := transcript.Parse([]byte(line))
		d.must(err)
		for _, entry := range record.Memory(transcript.MainStream, d.session, transcript.Policy{}, &told) {
			memory = append(memory, entry.Text)
		}
	}
	got := strings.Join(memory, "\n")
	if strings.Contains(got, "toolu_") || strings.Contains(got, data[:40]) || strings.Count(got, "Bash") != 2 || !strings.Contains(got, "the tide is made") {
		t.Errorf("the memory is told %.400s", got)
	}
	d.add(d.path, lines...)
	d.hook("Stop")
	d.spooled(2)
	if text := d.waits()[read.Main]; strings.Contains(text, data[1000:1100]) || len(text) > 4000 {
		t.Errorf("on its way are %d bytes: %.400s", len(text), text)
	}
}

// TestW36: the plugin did not read the subagents' files, and sent their talk in
// the main one as the person's and Claude's own. Here it is kept, apart: as a
// stream of its own, and never as words of the session.
func TestW36(t *testing.T) {
	d := sit(t)
	d.start()
	d.say(1)
	inline := []string{
		d.record(`"type":"user","isSidechain":true,"message":{"role":"user","content":"asked by the agent"}`),
		d.record(`"type":"assistant","isSidechain":true,"message":{"role":"assistant","content":[{"type":"text","text":"said by a subagent"}]}`),
	}
	for _, line := range inline {
		record, err := transcript.Parse([]byte(line))
		d.must(err)
		if got := record.Memory(transcript.MainStream, d.session, transcript.Policy{}, nil); len(got) > 0 {
			t.Errorf("told as the session's: %v", got)
		}
		if _, inline := record.InlineAgent(transcript.MainStream); !inline {
			t.Errorf("not known as an agent's: %s", line)
		}
	}
	own := filepath.Join(strings.TrimSuffix(d.path, ".jsonl"), "subagents", "agent-a1.jsonl")
	d.add(own, d.record(`"type":"user","isSidechain":true,"agentId":"a1","message":{"role":"user","content":"look at the tide"}`),
		d.record(`"type":"assistant","isSidechain":true,"agentId":"a1","message":{"role":"assistant","content":[{"type":"text","text":"in a file of its own"}]}`))
	d.hook("SubagentStop", "agent_id", "a1", "agent_transcript_path", own)
	d.hook("Stop")
	d.spooled(3)
	text := d.waits()
	if got := text["agent-a1"]; strings.Count(got, "\n") != 2 || !strings.Contains(got, "in a file of its own") {
		t.Errorf("of the agent: %v", text)
	}
	if strings.Contains(text[read.Main], "in a file of its own") {
		t.Errorf("in the session's own stream: %s", text[read.Main])
	}
}
