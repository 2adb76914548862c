package appservertest

import "syscall"

// dieWithParent lets the kernel kill the server when its parent ends, however
// that ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
