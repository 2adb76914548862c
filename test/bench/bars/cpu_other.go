//go:build !unix

package main

import (
	"os"
	"time"
)

var start = now()

// cpu is the time of day: a process cannot be asked here.
func cpu() time.Duration { return now().Sub(start) }

// peak returns 0: it is not known.
func peak(*os.ProcessState) int64 { return 0 }
