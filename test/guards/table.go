package main

import "slices"

// guards are all rows, in the order in which they are tried.
var guards = slices.Concat(weaknesses, promises)
