//go:build !linux

package appservertest

import "syscall"

// dieWithParent does nothing: only Linux has it. Stop is the only end here.
func dieWithParent() *syscall.SysProcAttr { return nil }
