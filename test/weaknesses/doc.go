// Package weaknesses has a test for each weakness of the plugin
// claude-subconscious that undersong was built to be without: TestW01 to TestW37,
// after the rows of a study of that plugin. The comment of each says what the
// plugin did, and what must hold here. Which guard must be there for it, the table
// of test/guards says, which takes the guards out and sees the tests fail.
//
// The tests call the hook, the daemon and the files as Claude Code and a person
// do. The daemon runs without a cluster, under the policy that it last saw, which
// is enough for what is read and shown. The rows that need the whole thread,
// TestW05, TestW07, TestW08, TestW14, TestW24 and TestW34, are in test/e2e.
package weaknesses
