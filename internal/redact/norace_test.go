//go:build !race

package redact_test

const heapSlack = 1
