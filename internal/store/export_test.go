package store

// SetPageSize makes List ask for so many keys at a time.
func SetPageSize(b *Bucket, n int) { b.pageSize = n }
