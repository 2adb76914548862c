package kube

import "syscall"

// attributes make the child die with us, however we end, and keep it out of
// our process group, so that Ctrl-C reaches us alone and we stop it in order.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
