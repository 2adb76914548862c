package consent

import (
	"slices"
	"strings"
)

// Match reports whether a glob matches a whole remote, ignoring case. A star
// stands for any characters within one part, also none; a part that is two
// stars stands for any number of parts, also none. There are no other special
// characters.
func Match(glob, remote string) bool {
	return matchParts(
		strings.Split(strings.ToLower(strings.TrimSpace(glob)), "/"),
		strings.Split(strings.ToLower(remote), "/"),
	)
}

func matchAny(globs []string, remote string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool { return Match(glob, remote) })
}

// matchParts matches parts as matchPart matches characters.
func matchParts(glob, parts []string) bool {
	return wildcard(len(glob), len(parts),
		func(g int) bool { return glob[g] == "**" },
		func(g, p int) bool { return matchPart(glob[g], parts[p]) })
}

func matchPart(glob, part string) bool {
	return wildcard(len(glob), len(part),
		func(g int) bool { return glob[g] == '*' },
		func(g, p int) bool { return glob[g] == part[p] })
}

// wildcard matches a pattern of length n with a text of length m, where any
// says which pattern elements stand for any number of text elements. Only the
// last of these ever needs to take more, so the time is n times m at most,
// whatever the pattern.
func wildcard(n, m int, anyNumber func(g int) bool, one func(g, p int) bool) bool {
	g, p := 0, 0
	star, taken := -1, 0 // the last one met, and where the text went on after it
	for p < m {
		switch {
		case g < n && anyNumber(g):
			star, taken = g, p
			g++
		case g < n && one(g, p):
			g++
			p++
		case star >= 0:
			taken++
			g, p = star+1, taken
		default:
			return false
		}
	}
	for g < n && anyNumber(g) {
		g++
	}
	return g == n
}
