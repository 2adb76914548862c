//go:build !linux

package archivedtest

import "syscall"

func attributes(bool) *syscall.SysProcAttr { return nil }

func giveAway(string) error { return nil }
