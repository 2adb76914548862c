// Package consent answers whether what was said in a folder may be heard.
//
// The folder's repository has a remote, and the remote a normal form: host and
// path, without anything secret or accidental (Normalize). The team's include
// globs must match it and no exclude glob may, the team's or the user's. A file
// .undersong.yaml in the repository can narrow that and can never widen it.
// Without a remote that names a host there is no project to share, and nothing
// is heard unless the team allows that, too.
//
// It reads files below .git and runs no git: a repository's configuration can
// make git start programs. What it reads of a repository is bounded, and a
// repository can at most exclude itself.
//
// It also keeps the times in which the user wants nothing to be heard (Silences),
// as runs of bytes of the transcripts and as spans of time. Other conditions of
// capture, the user's init and headless sessions, are not decided here.
package consent
