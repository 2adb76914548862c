package transcript

// SetPages sets how many pages of each store are in memory, and returns how many
// were.
func SetPages(n int) (before int) {
	before, maxPages = maxPages, n
	return before
}
