//go:build !linux

package kube

import "syscall"

// attributes has nothing to ask for: only Linux can tie a child's life to
// ours. Elsewhere the child survives when we are killed.
func attributes() *syscall.SysProcAttr { return nil }
