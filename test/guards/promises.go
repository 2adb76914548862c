package main

const (
	onHook        = "./agent/hook"
	onProgram     = "./cmd/undersong-hook"
	onRead        = "./agent/read"
	onSpool       = "./agent/spool"
	onUpload      = "./agent/upload"
	onDaemon      = "./agent/daemon"
	onStateFile   = "./agent/statefile"
	onWhisper     = "./agent/whisper"
	onCommands    = "./agent/cli"
	onSessions    = "./controllers/session"
	onWorkstation = "./controllers/workstation"
	onConnect     = "./controllers/connect"
	onCluster     = "./test/kube"
)

// promises are guards behind the three promises: clean, nothing leaves the
// workstation unscanned, and known secrets are removed, twice; consent, nothing
// is heard against one's will; kept, nothing that is allowed is lost or told
// twice, and it can be proved; owner, nobody writes or reads for another; quiet,
// memory never slows or breaks a coding session.
var promises = []guard{
	// clean
	{
		name: "clean/workstation", test: "TestNoPlantedSecretLeaves", in: onThread,
		why: "the workstation sends lines as they are; the cluster's pass alone would do for the archive, and not for what lies on the way", says: `is in|holds|found`,
		cuts: []cut{
			{"agent/read/stream.go", "\tredacted, findings := redactor.Line(raw)\n", "\tredacted, findings := redact.Literal(\"\").As(raw), redact.Findings(nil)\n"},
			{"agent/read/batch.go", "\tif len(b.batch.Lines) > 0 {\n\t\tb.seams(redactor)\n", "\tif len(b.batch.Lines) > 0 {\n"},
			{"internal/redact/redacted.go", "// String returns the text.\n", "func (r Redacted) As(raw []byte) Redacted { return Redacted{text: string(raw)} }\n\n// String returns the text.\n"},
		},
	},
	{
		name: "clean/cluster", test: "TestASecretThatPassedTheWorkstationStopsHere", in: onSessions,
		why: "the cluster takes what a workstation with older rules sends: the second pass is left out", says: `the token (reached Letta|is in)`,
		cuts: []cut{
			{"controllers/session/verify.go", "\t\tclean, found = v.scan(c.lines)\n", "\t\tclean, found = make([]redact.Redacted, len(c.lines)), make([]redact.Findings, len(c.lines))\n\t\tfor i, line := range c.lines {\n\t\t\tclean[i] = redact.Literal(\"\").As(line)\n\t\t}\n"},
			{"internal/redact/redacted.go", "// String returns the text.\n", "func (r Redacted) As(raw []byte) Redacted { return Redacted{text: string(raw)} }\n\n// String returns the text.\n"},
		},
	},
	{
		name: "clean/seam", test: "TestATokenOverTwoRecordsIsFound", in: onRead,
		why: "a token of which one record has the beginning and the next the end leaves", says: `a half of the token is in the segment`,
		cuts: []cut{{"agent/read/batch.go", "\tif len(b.batch.Lines) > 0 {\n\t\tb.seams(redactor)\n", "\tif len(b.batch.Lines) > 0 {\n"}},
	},
	{
		name: "clean/team-rule", test: "TestARuleOfTheTeamThatCannotBeUsed", in: onDaemon,
		why: "lines are read without the team's own rules while those cannot be used", says: `not seen in time|the team's rule was not applied`,
		cuts: []cut{{"agent/daemon/consent.go", "\tif len(r.team) == 0 {\n\t\treturn builtIn, nil\n", "\tif _, err := r.redactor(nil); err != nil || len(r.team) == 0 {\n\t\treturn builtIn, nil\n"}},
	},
	{
		name: "clean/tools", test: "TestAnAgentWithMoreToolsIsNotUsed", in: onConnect,
		why: "what reads the team's words may have a tool that sends them on", says: `error is <nil>`,
		cuts: []cut{{"controllers/connect/agent.go", "\tfor _, tool := range a.Tools {\n", "\tfor _, tool := range a.Tools[:0] {\n"}},
	},
	{
		name: "clean/secret-host", test: "TestASecretGoesOnlyWhereItSays", in: onConnect,
		why: "a Secret goes to any host that a TeamMemory names", says: `TestASecretGoesOnlyWhereItSays/another_host`,
		cuts: []cut{{"controllers/connect/connect.go", "strings.EqualFold(strings.TrimSpace(h), u.Host) {", "h == h {"}},
	},

	// consent
	{
		name: "consent/silence", test: "TestNothingOfASilenceIsRead", in: onDaemon,
		why: "what is written while capture is paused or a session is private is heard", says: `heard`,
		cuts: []cut{{"agent/read/consent.go", "\tif reason := s.silent(line, record); reason != \"\" {\n", "\tif reason := s.silent(line, record); reason == \"never\" {\n"}},
	},
	{
		name: "consent/pause", test: "TestNothingOfAPauseArrives", in: onThread,
		why: "as consent/silence, through the whole thread", says: `was said in a quiet time and arrived`,
		cuts: []cut{{"agent/read/consent.go", "\tif reason := s.silent(line, record); reason != \"\" {\n", "\tif reason := s.silent(line, record); reason == \"never\" {\n"}},
	},
	{
		name: "consent/init", test: "TestLinesBeforeInitAreWithheld", in: onRead,
		why: "lines that were written before init are heard", says: `lines \(-want \+got\)`,
		cuts: []cut{{"agent/read/consent.go", "\tif line.Offset < cur.Baseline || s.beforeInit(record) {\n", "\tif s.beforeInit(record) {\n"}},
	},
	{
		name: "consent/project", test: "TestOutsideTheGlobsNothingIsHeard", in: onThread,
		why: "a project that no glob of the team matches is heard", says: `sessions are recorded|outside the globs|is in`,
		cuts: []cut{{"agent/consent/decide.go", "\tcase !project.Outside && !matchAny(rules.Include, project.Remote):\n", "\tcase !project.Outside && len(rules.Include) == 0:\n"}},
	},
	{
		name: "consent/record", test: "TestConsentIsAskedPerRecord", in: onRead,
		why: "the first record's consent stands for those behind it, of other folders", says: `TestConsentIsAskedPerRecord/between`,
		cuts: []cut{{
			"agent/read/consent.go",
			"\tverdict, asked := s.verdicts[at]\n\tif !asked {\n\t\tverdict = s.Decide(at.cwd, at.entrypoint)\n\t\ts.verdicts[at] = verdict\n",
			"\tverdict, asked := s.verdicts[place{}]\n\tif !asked {\n\t\tverdict = s.Decide(at.cwd, at.entrypoint)\n\t\ts.verdicts[place{}] = verdict\n",
		}},
	},
	{
		name: "consent/retold", test: "TestConsentIsAskedPerRecord", in: onRead,
		why: "a title, which repeats a withheld prompt and has no folder of its own, leaves", says: `FAIL: TestConsentIsAskedPerRecord/title_retells_at_once`,
		cuts: []cut{{"agent/read/consent.go", "\tif retells(record) && cur.Hushed != \"\" {\n", "\tif retells(record) && cur.Hushed == \"never\" {\n"}},
	},
	{
		name: "consent/forgotten", test: "TestEraseTakesOutWhatTheClusterWasNotTold", in: onSpool,
		why: "what a person takes back goes up later, as its segment was tried once", says: `nobody knows of it`,
		cuts: []cut{{"agent/spool/erase.go", "\t\tif known || g.ResentAt != nil || err != nil {\n", "\t\tif known || g.SlotState != SlotNone || g.ResentAt != nil || err != nil {\n"}},
	},
	{
		name: "consent/told", test: "TestEraseTakesOutWhatTheClusterWasNotTold", in: onSpool,
		why: "a chain that the cluster may have is changed, and the session ends", says: `the answer was lost`,
		cuts: []cut{{"agent/spool/erase.go", "g.Seq <= s.state.Told ||", "g.Seq <= 0 ||"}},
	},
	{
		name: "consent/headless", test: "TestThePersonIsToldAtTheFirstPrompt", in: onDaemon,
		why: "runs that no person sits at are heard although the team does not say so", says: `TestThePersonIsToldAtTheFirstPrompt/headless`,
		cuts: []cut{{"agent/daemon/consent.go", "\tif strings.HasPrefix(entrypoint, \"sdk-\") && !hears.Headless {\n", "\tif strings.HasPrefix(entrypoint, \"never-\") && !hears.Headless {\n"}},
	},

	// kept
	{
		name: "kept/chain", test: "TestBadSegments", in: onSessions,
		why: "a segment that does not follow from the one before it is taken", says: `TestBadSegments/swapped`,
		cuts: []cut{
			{"controllers/session/verify.go", "\tcase err != nil, h.Session != v.s.ses.Name, h.Workstation != v.writer.Workstation, h.Seq != seq, h.Archived != nil:\n", "\tcase err != nil, h.Session != v.s.ses.Name, h.Workstation != v.writer.Workstation, h.Archived != nil:\n"},
			{"controllers/session/verify.go", "\t\tif !c.gap && c.header.PreviousChain != v.chain.String() {\n", "\t\tif !c.gap && c.header.PreviousChain == \"\" {\n"},
			{"controllers/session/verify.go", "\tif c.next.String() != follows {\n", "\tif follows == \"\" {\n"},
		},
	},
	{
		name: "kept/archive", test: "TestAForgedSegmentIsNotDelivered", in: onSessions,
		why: "an object of the archive that is not what its name says is delivered", says: `forged words were delivered|not seen|a segment that is not what its name says`,
		cuts: []cut{{"controllers/session/archive.go", "\tif key != archiveKey(s.ses, id, head) {\n", "\tif key == head.String() {\n"}},
	},
	{
		name: "kept/fork", test: "TestAForkedChainIsNotAccepted", in: onSessions,
		why: "a workstation's second story replaces the first", says: `Stalled is`,
		cuts: []cut{{
			"controllers/session/verify.go",
			"\tif sync.Verified.Segments > w.Segments || (sync.Verified.Segments == w.Segments && sync.Verified.Chain != w.Chain) {\n",
			"\tif sync.Verified.Segments > w.Segments {\n",
		}},
	},
	{
		name: "kept/receipts", test: "TestProof", in: onCommands,
		why: "verify does not compute the chain anew", says: `another_digest`,
		cuts: []cut{{"agent/cli/verify.go", "head = head.NextDigest(digest); head.String() != r.Chain {", "head = head.NextDigest(digest); r.Chain == \"\" {"}},
	},
	{
		name: "kept/head", test: "TestProof", in: onCommands,
		why: "verify does not hold the cluster's head against the receipts", says: `another_(upload|archive)`,
		cuts: []cut{{"agent/cli/verify.go", "\t\tcase head != chain:\n", "\t\tcase head == \"\":\n"}},
	},
	{
		name: "kept/hole", test: "TestProof", in: onCommands,
		why: "verify does not see bytes that no segment speaks of", says: `a_hole`,
		cuts: []cut{{"agent/cli/verify.go", "{r.Stream, r.Generation, true}]); start > end {\n", "{r.Stream, r.Generation, true}]); start < 0 && end > 0 {\n"}},
	},
	{
		name: "kept/seen", test: "TestTwoWritersAreBothDelivered", in: onSessions,
		why: "a record that comes again, from another workstation, is told again", says: `Letta has "From the desk." 2 times`,
		cuts: []cut{{"controllers/session/batch.go", "\tif c.have[id] || c.seen.has(id) {\n", "\tif c.have[id] {\n"}},
	},
	{
		name: "kept/lookup", test: "TestANewProcessAtEveryStepSendsNothingTwice", in: onSessions,
		why: "after a crash words are sent again without a look at what became of them", says: `the end differs`,
		cuts: []cut{{
			"controllers/session/settle.go",
			"\tfound, turn, err := c.Lookup(ctx, ref, clientID(d))\n",
			"\tfound, turn, err := letta.DeliveryUnknown, letta.Turn{}, error(nil)\n",
		}},
	},
	{
		name: "kept/lease", test: "TestANewLeaderWaitsBeforeItTakesOver", in: onSessions,
		why: "a new leader acts while the one before may still send", says: `the new leader`,
		cuts: []cut{{"controllers/session/settle.go", "if wait := r.takeover(s, d); wait > 0 {", "if wait := r.takeover(s, d); wait > time.Hour {"}},
	},
	{
		name: "kept/leader", test: "TestALeaderThatHasNotNoticed", in: onSessions,
		why: "a leader that has not noticed that another one leads sends what that one has begun", says: `TestALeaderThatHasNotNoticed`,
		cuts: []cut{{"controllers/session/settle.go", "d.At != nil && d.At.After(r.started) {", "d.At == nil && d.At.After(r.started) {"}},
	},
	{
		name: "kept/ledger", test: "TestAStaleReadSendsNothing", in: onSessions,
		why: "a turn is sent whose ledger is not in status any more: nobody looks before it is sent", says: `turns were sent whose ledger`,
		cuts: []cut{{
			"controllers/session/settle.go",
			"\tif live.Status.SyncState == nil || !equality.Semantic.DeepEqual(live.Status.SyncState.Delivery, d) {\n",
			"\tif live.Status.SyncState == nil && !equality.Semantic.DeepEqual(live, d) {\n",
		}},
	},
	{
		name: "kept/disk-full", test: "TestSpoolSurvivesEveryFailedFileOperation", in: onSpool,
		why: "the cursor moves on although the segment was not written, as on a full disk", says: `-want \+got`,
		cuts: []cut{{
			"agent/spool/session.go",
			"\tsize, err := s.writeLocked(&next, batch)\n\tif err != nil {\n\t\treturn err\n\t}\n",
			"\tsize, err := s.writeLocked(&next, batch)\n\tif err != nil {\n\t\treturn errors.Join(err, s.saveLocked(next))\n\t}\n",
		}},
	},
	{
		name: "kept/full-spool", test: "TestAppendStopsWhereThereIsNoRoom", in: onSpool,
		why: "the spool grows without bound", says: `-want \+got`,
		cuts: []cut{{"agent/spool/session.go", "\tcase s.spool.Full():\n", "\tcase false:\n"}},
	},
	{
		name: "kept/given", test: "TestSpokenWhispersAreFound", in: onRead,
		why: "a whisper counts as given before the transcript shows it", says: `spoken \(-want \+got\)`,
		cuts: []cut{{"agent/read/stream.go", "\t\tif bytes.Contains(raw, []byte(id)) {\n", "\t\tif len(raw) > len(id) || bytes.Contains(raw, []byte(id)) {\n"}},
	},
	{
		name: "kept/slot", test: "TestSlotsAreUsedOnceEvenAfterARestart", in: onUpload,
		why: "a slot that was used before a restart is used again", says: `slots|-want \+got`,
		cuts: []cut{{"agent/upload/grant.go", "\treturn unused[0], g.registry.use(unused[0].N)\n", "\treturn unused[0], g.registry.update(func(*record) {})\n"}},
	},
	{
		name: "kept/one-object", test: "TestAGrantTakesOneObjectInEachSlot", in: onWorkstation,
		why: "a slot takes a second object over the first", says: `PUT into a slot that is taken: 200`,
		cuts: []cut{{"internal/store/store.go", "\theaders = map[string]string{\"If-None-Match\": \"*\"}\n", "\theaders = map[string]string{}\n"}},
	},
	{
		name: "kept/claim", test: "TestParallelProcesses", in: onWhisper,
		why: "each of several hooks, processes of their own, takes the same whisper", says: `claimed \(-want \+got\)`,
		cuts: []cut{{
			"agent/whisper/claim.go",
			"\treturn os.Rename(from, filepath.Join(dir, to, name)) == nil\n",
			"\t_ = os.Rename(from, filepath.Join(dir, to, name))\n\treturn true\n",
		}},
	},

	// owner
	{
		name: "owner/session", test: "TestPolicyOfSession", in: onCluster,
		why: "a colleague changes a Session: the policy does not ask whose it is", says: `got ok|got admitted|want policy`,
		cuts: []cut{{"config/policy/session.yaml", "      request.operation != 'UPDATE' || variables.status || variables.owner\n", "      request.operation != 'UPDATE' || variables.status || true\n"}},
	},
	{
		name: "owner/status", test: "TestPolicyOfSession", in: onCluster,
		why: "anybody whom RBAC lets writes the status of a Session", says: `want policy`,
		cuts: []cut{{"config/policy/session.yaml", "  - expression: \"!variables.status || variables.controller\"\n", "  - expression: \"!variables.status || true\"\n"}},
	},
	{
		name: "owner/workstation", test: "TestAnotherOwnersWorkstationIsNotRead", in: onSessions,
		why: "a Session reads the inbox of another owner's workstation", says: `another owner's inbox|Stalled is`,
		cuts: []cut{{"controllers/session/verify.go", "\tcase ws.Spec.Owner != s.ses.Spec.Owner:\n", "\tcase ws.Spec.Owner == \"\":\n"}},
	},
	{
		name: "owner/no-policy", test: "TestNoGrantWithoutPolicies", in: onWorkstation,
		why: "grants are given although no policy says whose a Workstation is", says: `TestNoGrantWithoutPolicies/`,
		cuts: []cut{{"controllers/workstation/guard.go", "\tif missing != \"\" {\n", "\tif missing == \"never\" {\n"}},
	},
	{
		name: "owner/host", test: "TestGrantsForOtherHostsAreRefused", in: onUpload,
		why: "segments go to whatever host a grant names", says: `Offer: <nil>`,
		cuts: []cut{{"agent/upload/grant.go", "u.Host != \"\" && u.Scheme+\"://\"+u.Host == host", "(u.Host != \"\" || host != \"\")"}},
	},
	{
		name: "owner/server", test: "TestAKubeconfigThatLeadsElsewhere", in: onDaemon,
		why: "the daemon speaks to another API server than init recorded", says: `another API server`,
		cuts: []cut{{"agent/daemon/client.go", "\tif config.Host != c.Server {\n", "\tif config.Host == \"\" {\n"}},
	},
	{
		name: "owner/link", test: "TestLinksLeadNowhere", in: onStateFile,
		why: "a link in a repository stands for a state file", says: `TestLinksLeadNowhere/the_file`,
		cuts: []cut{{"agent/statefile/statefile.go", "\tif !info.Mode().IsRegular() { // a link", "\tif info.Mode().IsDir() { // a link"}},
	},

	// quiet
	{
		name: "quiet/fault", test: "TestRunNeverFails", in: onHook,
		why: "a fault of ours ends a hook otherwise than with exit 0", says: `panic:`,
		cuts: []cut{{"agent/hook/hook.go", "\tdefer func() { _ = recover() }()\n", ""}},
	},
	{
		name: "quiet/twice", test: "TestSecondCallIsDropped", in: onHook,
		why: "a hook that is registered twice works twice", says: `2 notes, want 1`,
		cuts: []cut{{"agent/hook/hook.go", "\tcase known(event.event) && h.first():\n", "\tcase known(event.event):\n"}},
	},
	{
		name: "quiet/subagent", test: "TestEvents", in: onHook,
		why: "subagents, and prompts of the agent to itself, are spoken to", says: `-want \+got`,
		cuts: []cut{{"agent/hook/hook.go", "\tif h.agentID != \"\" || h.notification {\n", "\tif h.agentID == \"nobody\" {\n"}},
	},
	{
		name: "quiet/bypass", test: "TestBypassedPermissions", in: onHook,
		why: "what was learned is shown where nobody is asked before a tool runs", says: `shows`,
		cuts: []cut{{"agent/hook/hook.go", "\tif h.permissionMode == bypass || h.event == SessionStart && h.permissionMode == \"\" {\n", "\tif h.permissionMode == \"never\" {\n"}},
	},
	{
		name: "quiet/environment", test: "TestTheDaemonsEnvironmentIsTheRecordedOne", in: onCommands,
		why: "the daemon keeps the environment of whoever starts it", says: `environment \(-want \+got\)`,
		cuts: []cut{{"agent/cli/daemoncmd.go", "strings.HasPrefix(name, \"UNDERSONG_\") {", "name != \"\" {"}},
	},
	{
		name: "quiet/hostile-environment", test: "TestAHostileRepository", in: onThread,
		why: "the environment that a repository's settings give the hook reaches the daemon: through the hook that starts it and in the daemon itself, each of which would do", says: `connections to the repository's proxy|came into the daemon's environment`,
		cuts: []cut{
			{"agent/hook/daemon.go", "\tslices.Sort(env)\n\treturn env\n", "\tslices.Sort(env)\n\treturn append(os.Environ(), env...)\n"},
			{"agent/cli/daemoncmd.go", "\tos.Clearenv()\n", ""},
		},
	},
	{
		name: "quiet/hostile-home", test: "TestARepositoryNamesNoStateDirectory", in: onProgram,
		why: "the environment, which a repository's settings set, says where the hook finds the program that it starts", says: `the repository's program was started|notes in the person's own folder`,
		cuts: []cut{{"cmd/undersong-hook/main.go", "\thome, args, _ := note.HookHome(os.Args[1:])", "\tif own, err := note.Home(); err == nil {\n\t\tos.Args = append(os.Args[:1:1], append([]string{note.HomeFlag, own}, os.Args[1:]...)...)\n\t}\n\thome, args, _ := note.HookHome(os.Args[1:])"}},
	},
}
