// Package stream redacts what does not fit in memory: the lines of a transcript
// (Lines), and text and records as they come through a pipe (Copy). What enters
// leaves in its order, and no more of it is held than some lines, or one of
// 32 MiB.
package stream
