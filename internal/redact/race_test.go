//go:build race

package redact_test

// heapSlack: the race detector makes a sync.Pool forget a quarter of what it
// is given, so that what regular expressions work in is made anew.
const heapSlack = 32
