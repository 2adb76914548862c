package read

import (
	"strings"
	"testing"
)

func TestAfter(t *testing.T) {
	const text = "{\"type\":\"a\"}\n\nno\n{\"type\":\"b\"}\n{\"type\":\"c\"}\n{\"torn"
	for index, want := range map[int64]struct{ offset, lines int64 }{
		-1: {0, 0}, 0: {13, 1}, 1: {30, 2}, 2: {43, 3}, 9: {43, 3},
	} {
		offset, lines, err := After(strings.NewReader(text), index)
		if err != nil || offset != want.offset || lines != want.lines {
			t.Errorf("index %d: %d, %d, %v; want %v", index, offset, lines, err, want)
		}
	}
}
