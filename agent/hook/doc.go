// Package hook is what a coding agent starts at every prompt and tool call.
//
// It reads the event on stdin, leaves a note for the daemon, starts the daemon
// if none runs, and prints what a team's memory has to say. It promises never to
// be in the way: no network, no transcript, no sync, no waiting; its exit code
// is 0, its stderr is empty, and its stdout is one JSON object or nothing,
// whatever comes in. Where init has not run it makes no file.
//
// What it prints is context for the agent and a line for the person, never a
// decision: a tool call is neither allowed nor refused by it. It prints when a
// session starts, at a person's prompt and before a tool call, and nowhere
// else: at Stop the output would start another turn, before a compaction it
// would instruct the summarizer, and inside a subagent nobody asked.
//
// Nothing of the prompt is kept. The environment holds tokens of the agent; of
// it only the variables named in Run are read, and none is passed on.
//
// The package is most of the hook binary, whose start is most of its cost: it
// links the standard library and our own small packages only.
package hook
