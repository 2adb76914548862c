package archivedtest

import (
	"os"
	"syscall"
)

// nobody is the user without rights.
const nobody = 65534

// attributes lets the kernel kill a child when its parent ends, however that
// ends.
func attributes(lowly bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if lowly && os.Geteuid() == 0 {
		a.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return a
}

// giveAway makes a folder that of the user that lowly children run as.
func giveAway(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(dir, nobody, nobody)
}
