package main

const (
	onDesk   = "./test/weaknesses"
	onThread = "./test/e2e"
)

// weaknesses are the guards behind the rows W01 to W37 of test/weaknesses.
var weaknesses = []guard{
	{
		name: "W01", test: "TestW01", in: onDesk,
		why: "log lines of the hook go to stdout", says: `printed past the object`,
		cuts: []cut{{"agent/hook/log.go", "\tpath := filepath.Join(h.home, LogFile)\n", "\t_, _ = os.Stdout.Write(append(line, '\\n'))\n\tpath := filepath.Join(h.home, LogFile)\n"}},
	},
	{
		name: "W02", test: "TestW02", in: onDesk,
		why: "a whisper is done once it is printed", says: `it is shown again`,
		cuts: []cut{{"agent/whisper/claim.go", "\tto := claimed\n", "\tto := done\n"}},
	},
	{
		name: "W03", test: "TestW03", in: onDesk,
		why: "SessionStart drops the session's cursors", says: `lines are spooled, want`,
		cuts: []cut{{
			"agent/daemon/notes.go",
			"\tcase eventSessionStart, eventPrompt:\n\t\tstate.Ending = false\n",
			"\tcase eventSessionStart, eventPrompt:\n\t\tif n.Event == eventSessionStart {\n\t\t\tclear(state.Cursors)\n\t\t}\n\t\tstate.Ending = false\n",
		}},
	},
	{
		name: "W04", test: "TestW04", in: onDesk,
		why: "two writers of a state file do not wait for each other", says: `blocks|state files say|no such file`,
		cuts: []cut{{"agent/statefile/statefile.go", "\twriting.Lock()\n\tdefer writing.Unlock()\n", ""}},
	},
	{
		name: "W05", test: "TestW05", in: onThread,
		why: "a delivery begins while one is under way", says: `turns at once|Letta has \d+ times`,
		cuts: []cut{{
			"controllers/session/deliver.go",
			"if d != nil && (d.Phase == v1alpha1.DeliverySending || d.Phase == v1alpha1.DeliveryNudging) {",
			"if d != nil && (d.Phase == v1alpha1.DeliverySending || d.Phase == v1alpha1.DeliveryNudging) && !r.Turns.runs(s.key, clientID(d)) {",
		}},
	},
	{
		name: "W06", test: "TestW06", in: onDesk,
		why: "state files are looked for in the working directory alone", says: `are looked for in`,
		cuts: []cut{{
			"agent/statefile/base.go",
			"\tcwd = filepath.Clean(cwd)\n",
			"\tif cwd = filepath.Clean(cwd); cwd != \"\" {\n\t\treturn cwd, nil\n\t}\n",
		}},
	},
	{
		name: "W07", test: "TestW07", in: onThread,
		why: "a turn that failed counts as a delivery", says: `Letta has 0 times|did not strike`,
		cuts: []cut{{
			"controllers/session/settle.go",
			"\tcase turnDone:\n\t\tif err == nil {\n",
			"\tcase turnDone:\n\t\tif err == nil || turn.RunID == \"\" || turn.RunID != \"\" {\n",
		}},
	},
	{
		name: "W08", test: "TestW08", in: onThread,
		why: "nobody looks for lines of which no note speaks: at the daemon's start and at a session's, each of which would do", says: `lines are uploaded|Letta has 0 times`,
		cuts: []cut{
			{"agent/daemon/loop.go", "\tl.sweep(start)\n", ""},
			{"agent/daemon/notes.go", "\t\tl.sweep(false)\n", ""},
		},
	},
	{
		name: "W09/end", test: "TestW09", in: onDesk,
		why: "nothing is read at SessionEnd", says: `TestW09/SessionEnd[\s\S]*not seen in time`,
		cuts: []cut{{
			"agent/daemon/notes.go",
			"\tcase eventStop, eventSubagentStop, eventSessionEnd:\n",
			"\tcase eventSessionEnd:\n\tcase eventStop, eventSubagentStop:\n",
		}},
	},
	{
		name: "W09/compact", test: "TestW09", in: onDesk,
		why: "nothing is read at PreCompact", says: `TestW09/PreCompact[\s\S]*not seen in time`,
		cuts: []cut{{"agent/daemon/notes.go", "\tdefault:\n\t\tl.agenda.add(id, now)\n", "\tcase eventPrompt:\n\t\tl.agenda.add(id, now)\n"}},
	},
	{
		name: "W09/start", test: "TestW09", in: onDesk,
		why: "nobody looks for lines of which no note speaks: at the daemon's start and at a session's, each of which would do", says: `TestW09/the_next_SessionStart[\s\S]*not seen in time`,
		cuts: []cut{
			{"agent/daemon/loop.go", "\tl.sweep(start)\n", ""},
			{"agent/daemon/notes.go", "\t\tl.sweep(false)\n", ""},
		},
	},
	{
		name: "W10", test: "TestW10", in: onDesk,
		why: "after a Stop the transcript is read once", says: `4 lines are spooled`,
		cuts: []cut{{"agent/daemon/notes.go", "for _, delay := range l.timing.Late {", "for _, delay := range l.timing.Late[:1] {"}},
	},
	{
		name: "W11", test: "TestW11", in: onDesk,
		why: "a broken state file of a session stays broken", says: `state file is broken`,
		cuts: []cut{{"agent/statefile/statefile.go", "case errors.Is(err, fs.ErrNotExist), broken:", "case errors.Is(err, fs.ErrNotExist):"}},
	},
	{
		name: "W12", test: "TestW12", in: onDesk,
		why: "a broken conversations.json stays broken", says: `state file is broken`,
		cuts: []cut{{"agent/statefile/statefile.go", "case errors.Is(err, fs.ErrNotExist), broken:", "case errors.Is(err, fs.ErrNotExist):"}},
	},
	{
		name: "W13", test: "TestW13", in: onDesk,
		why: "two sessions' entries in one file do not wait for each other", says: `of 24 entries|no such file`,
		cuts: []cut{{"agent/statefile/statefile.go", "\twriting.Lock()\n\tdefer writing.Unlock()\n", ""}},
	},
	{
		name: "W14", test: "TestW14", in: onThread,
		why: "an agent is made without looking for one", says: `agents and \d+ conversations`,
		cuts: []cut{{"controllers/connect/agent.go", "\tif len(found) > 0 {\n\t\treturn a.bringUp(", "\tif len(found) > 1<<20 {\n\t\treturn a.bringUp("}},
	},
	{
		name: "W15", test: "TestW15", in: onDesk,
		why: "reading stops at a line that is no record", says: `every good record is read`,
		cuts: []cut{{"agent/read/stream.go", "\ts.listen(record, line.Raw)\n", "\tif err != nil {\n\t\treturn false\n\t}\n\ts.listen(record, line.Raw)\n"}},
	},
	{
		name: "W16/same", test: "TestW16", in: onDesk,
		why: "another file in the place of the one that was read is taken for it", says: `64 lines are spooled`,
		cuts: []cut{{"internal/transcript/signature.go", "if err != nil || signer.Signature() != s {", "if err != nil {"}},
	},
	{
		name: "W16/shorter", test: "TestW16", in: onDesk,
		why: "a file that became shorter is not read again", says: `55 lines are spooled`,
		cuts: []cut{{
			"internal/transcript/signature.go",
			"\tif errors.Is(err, io.ErrUnexpectedEOF) {\n\t\treturn nil, false, nil\n\t}\n\tif err != nil || signer",
			"\tif errors.Is(err, io.ErrUnexpectedEOF) {\n\t\treturn new(Signer), true, nil\n\t}\n\tif err != nil || signer",
		}},
	},
	{
		name: "W17", test: "TestW17", in: onDesk,
		why: "each of several hooks takes the same whisper", says: `\d+ copies of 20 whispers`,
		cuts: []cut{{
			"agent/whisper/claim.go",
			"\treturn os.Rename(from, filepath.Join(dir, to, name)) == nil\n",
			"\t_ = os.Rename(from, filepath.Join(dir, to, name))\n\treturn true\n",
		}},
	},
	{
		name: "W18", test: "TestW18", in: onDesk,
		why: "whispers are shown in the order in which they lie there", says: `put in order`,
		cuts: []cut{{"agent/whisper/claim.go", "\tslices.Reverse(names)\n", ""}},
	},
	{
		name: "W19", test: "TestW19", in: onDesk,
		why: "the hook has a network in it", says: `the hook links net`,
		cuts: []cut{{"cmd/undersong-hook/main.go", "import (\n", "import (\n\t_ \"net/http\"\n"}},
	},
	{
		name: "W20", test: "TestW20", in: onDesk,
		why: "the hook prints what went wrong", says: `stdout is no JSON object|printed "`,
		cuts: []cut{{"agent/hook/hook.go", "\t\th.log(\"start daemon\", err)\n", "\t\t_, _ = io.WriteString(out, \"Warning: \"+err.Error())\n"}},
	},
	{
		name: "W21/mode", test: "TestW21", in: onDesk,
		why: "the default mode does not show the block that the agent is told to keep", says: `the first prompt is given ""`,
		cuts: []cut{{"agent/status/view.go", "\t\"\":                     note.RecallBrief,\n", "\t\"\":                     note.RecallWhisper,\n"}},
	},
	{
		name: "W21/label", test: "TestW21", in: onDesk,
		why: "the agent is told to keep another block than the one that is shown", says: `a new agent has no block`,
		cuts: []cut{{"controllers/connect/template.go", "{Label: \"brief\", ", "{Label: \"guidance\", "}},
	},
	{
		name: "W22", test: "TestW22", in: onDesk,
		why: "text of the memory is printed as it is", says: `printed`,
		cuts: []cut{{
			"agent/whisper/render.go",
			"\tfor _, r := range s { // invalid bytes come as U+FFFD\n",
			"\tif units(s) <= limit {\n\t\treturn s, true\n\t}\n\tfor _, r := range s { // invalid bytes come as U+FFFD\n",
		}},
	},
	{
		name: "W23", test: "TestW23", in: onDesk,
		why: "more is printed than Claude Code gives on", says: `\d+ characters`,
		cuts: []cut{{"agent/whisper/render.go", "body, whole := escape(text, room, false)", "body, whole := escape(text, 1<<30, false)"}},
	},
	{
		name: "W24", test: "TestW24", in: onThread,
		why: "a batch takes any number of records", says: `messages, the largest of`,
		cuts: []cut{{
			"controllers/session/batch.go",
			"if c.limits.until == nil && len(c.entries) > 0 && n > 0 && c.size+n > c.limits.bytes {",
			"if c.limits.until == nil && len(c.entries) > 0 && n > 0 && c.size+n > 1<<30 {",
		}},
	},
	{
		name: "W25", test: "TestW25", in: onDesk,
		why: "the whole transcript is read at each Stop", says: `3 lines, for which \d{8,} bytes were read`,
		cuts: []cut{{
			"agent/read/locate.go",
			"if _, err := f.file.Seek(cur.Offset, io.SeekStart); err != nil {",
			"if _, err := io.CopyN(io.Discard, f.file, cur.Offset); err != nil {",
		}},
	},
	{
		name: "W26", test: "TestW26", in: onDesk,
		why: "stdin is not read to its end", says: `writing \d+ bytes`,
		cuts: []cut{{
			"agent/hook/input.go",
			"if _, derr := io.Copy(io.Discard, s.r); err == nil && derr != nil {",
			"if derr := error(nil); err == nil && derr != nil {",
		}},
	},
	{
		name: "W27", test: "TestW27", in: onDesk,
		why: "the state files keep the conversation that they had", says: `state files say|conversations.json says`,
		cuts: []cut{{
			"agent/statefile/statefile.go",
			"\tif s.ConversationID != \"\" {\n\t\tknown.",
			"\tif s.ConversationID != \"\" && known.ConversationID == \"\" {\n\t\tknown.",
		}},
	},
	{
		name: "W28/mode", test: "TestW28", in: onDesk,
		why: "other users can read a note", says: `has mode`,
		cuts: []cut{{"agent/internal/durable/durable.go", "Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)", "Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)"}},
	},
	{
		name: "W28/key", test: "TestW28", in: onDesk,
		why: "the environment's tokens are kept", says: `has a key or a prompt in it`,
		cuts: []cut{{"agent/hook/hook.go", "variable(\"CLAUDE_CODE_ENTRYPOINT\"),", "variable(\"CLAUDE_CODE_MESSAGING_TOKEN\"),"}},
	},
	{
		name: "W29/redact", test: "TestW29", in: onDesk,
		why: "lines leave as they are: in the first pass over each line and in the one over neighbours, each of which would do", says: `is on its way`,
		cuts: []cut{{
			"internal/redact/redactor.go",
			"\tin := jsonline.Trim(raw)\n\thead, ok := readHead(in)\n",
			"\tif len(raw) > 0 {\n\t\treturn line{out: Redacted{text: string(raw)}}\n\t}\n\tin := jsonline.Trim(raw)\n\thead, ok := readHead(in)\n",
		}},
	},
	{
		name: "W29/exclude", test: "TestW29", in: onDesk,
		why: "an excluded project is heard", says: `TestW29/excluded[\s\S]*on its way`,
		cuts: []cut{{"agent/consent/decide.go", "case matchAny(rules.Exclude, project.Remote):", "case matchAny(nil, project.Remote):"}},
	},
	{
		name: "W30", test: "TestW30", in: onDesk,
		why: "an agent with tools of the workstation is used", says: `is used`,
		cuts: []cut{{"controllers/connect/agent.go", "\tfor _, tool := range a.Tools {\n", "\tfor _, tool := range a.Tools[:0] {\n"}},
	},
	{
		name: "W31/c", test: "TestW31", in: onDesk,
		why: "the hook needs a C library", says: `needs a C library`,
		cuts: []cut{{"cmd/undersong-hook/main.go", "import (\n", "import \"C\"\n\nimport (\n"}},
	},
	{
		name: "W31/doctor", test: "TestW31", in: onDesk,
		why: "doctor does not look for the program that the hook starts", says: `doctor returns`,
		cuts: []cut{{"agent/cli/doctor.go", "\tif _, err := os.Stat(d.config.Daemon); err != nil {\n", "\tif _, err := os.Stat(d.home); err != nil {\n"}},
	},
	{
		name: "W32/unconfigured", test: "TestW32", in: onDesk,
		why: "the hook works although init has not run", says: `made where init has not run`,
		cuts: []cut{{
			"agent/hook/hook.go",
			"\tcase err != nil:\n\t\treturn note.Config{}, unconfigured\n",
			"\tcase err != nil && config.Off:\n\t\treturn note.Config{}, unconfigured\n",
		}},
	},
	{
		name: "W32/off", test: "TestW32", in: onDesk,
		why: "LETTA_MODE=off does not switch the hook off", says: `noted while off`,
		cuts: []cut{{"agent/hook/hook.go", "os.Getenv(\"LETTA_MODE\")), \"off\") {", "os.Getenv(\"LETTA_MODE\")), \"never\") {"}},
	},
	{
		name: "W33", test: "TestW33", in: onDesk,
		why: "state files lie elsewhere in the project", says: `written into the project`,
		cuts: []cut{{"agent/statefile/statefile.go", "\tfolder = \".letta/claude\"\n", "\tfolder = \".claude\"\n"}},
	},
	{
		name: "W34", test: "TestW34", in: onThread,
		why: "a batch without words is sent: where it is made and where it is sent, each of which would do", says: `turns of which nobody said a word`,
		cuts: []cut{
			{"controllers/session/deliver.go", "\t\tif len(b.entries) > 0 {\n\t\t\treturn r.ledger", "\t\tif b.lines > 0 {\n\t\t\treturn r.ledger"},
			{"controllers/session/settle.go", "if len(b.entries) == 0 { // all of it", "if b.lines == 0 { // all of it"},
		},
	},
	{
		name: "W35/name", test: "TestW35", in: onDesk,
		why: "the name of a result's tool is forgotten", says: `the memory is told`,
		cuts: []cut{{"internal/transcript/memory.go", "\tt.names[id], t.order = name, append(t.order, id)\n", "\tt.order = append(t.order, id)\n"}},
	},
	{
		name: "W35/binary", test: "TestW35", in: onDesk,
		why: "pictures leave as text: under the name of a payload and in any text, each of which would do", says: `on its way are`,
		cuts: []cut{
			{"internal/redact/rewrite.go", "if isWithheld(in) || !always && !looksEncoded(in, minPayload) {", "if len(in) > 0 || always {"},
			{"internal/redact/binary.go", "func findBinary(text []byte) []span {\n\tvar spans []span\n", "func findBinary(text []byte) []span {\n\tvar spans []span\n\tif len(text) > 0 {\n\t\treturn nil\n\t}\n"},
		},
	},
	{
		name: "W36/words", test: "TestW36", in: onDesk,
		why: "a subagent's talk in the main file is the session's", says: `told as the session's`,
		cuts: []cut{{"internal/transcript/entries.go", "return !foreign && (!r.Sidechain || kind == AgentStream)", "return !foreign && (!r.Sidechain || kind == AgentStream || !foreign)"}},
	},
	{
		name: "W36/file", test: "TestW36", in: onDesk,
		why: "a subagent's file is not read: neither where a hook names it nor where it is found, each of which would do", says: `lines are spooled`,
		cuts: []cut{
			{"agent/read/locate.go", "\tdir := filepath.Join(filepath.Dir(mainPath), session, subagents)\n\tlist(dir, every)\n", "\tdir := filepath.Join(filepath.Dir(mainPath), session, subagents)\n\t_ = every\n"},
			{"agent/daemon/notes.go", "\t\tstate.AgentFiles[stream] = filepath.Clean(n.AgentTranscript)\n", "\t\tdelete(state.AgentFiles, stream)\n"},
		},
	},
	{
		name: "W37", test: "TestW37", in: onDesk,
		why: "a path that is not absolute is taken for the user's own folder", says: `the state directory is`,
		cuts: []cut{{"agent/note/home.go", "\tif !filepath.IsAbs(dir) {\n", "\tif dir == \"\" {\n"}},
	},
}
