// Package durable writes files that survive a crash: of the process, of the
// machine, at any moment.
//
// A file is replaced by the ritual of temporary file in the same directory,
// write, sync, close, rename, sync of the directory. After it returns, the new
// content is on the disk; before, a reader sees the old content or the new one
// and never a part. A crash can leave a temporary file behind, which no reader
// takes for a file (IsTemp) and which the owner of a directory removes at its
// start (RemoveTemps).
//
// It works through os.Root, so that no symbolic link leads a write out of the
// directory it was meant for. It is the only package that knows the ritual.
// What may be lost with the power, such as a hook's note, does not need it.
package durable
