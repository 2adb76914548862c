//go:build !linux

package main

import (
	"context"
	"errors"
)

var errLinux = errors.New("hooks are measured on Linux only: processes are told from /proc")

func cmdRun(context.Context, []string) error { return errLinux }

func cmdBars(context.Context, []string) error { return errLinux }

func cmdHold(context.Context, []string) error { return errLinux }
