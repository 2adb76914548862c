package hook

import "syscall"

// detachedProcess is DETACHED_PROCESS of the Windows API: no console.
const detachedProcess = 0x8

// locked knows nothing here: the standard library has no lock for files on
// Windows. The daemon's own lock decides, at the cost of an attempt every two
// seconds in which hooks are called.
func locked(string) bool { return false }

// detached gives the daemon no console and a group of its own, so that it does
// not end with the agent's terminal.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		HideWindow:    true,
		CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP | detachedProcess,
	}
}
