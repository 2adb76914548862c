// Package statefile writes the two files in which the plugin claude-subconscious
// keeps its state, so that a session can go from the plugin to undersong and
// back.
//
// Below a base folder lie .letta/claude/conversations.json, from session id to
// conversation and agent, and .letta/claude/session-<id>.json, with how far the
// session was processed. Our own data are not here.
//
// The files lie where a repository can put something first: they are opened
// through os.Root, so that a committed symbolic link leads no write elsewhere.
// The folder ignores itself in git. A file is read again before each write,
// what others put into it is kept, and it is replaced at once; a file that
// cannot be parsed is kept beside the new one, with .broken after its name. The
// plugin takes no lock: what it writes at the very same moment can be lost.
package statefile
