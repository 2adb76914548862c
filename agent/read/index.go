package read

import (
	"fmt"
	"io"

	"github.com/undersong-dev/undersong/internal/transcript"
)

// After returns the offset behind the line with an index, counted from 0 among
// the lines that are JSON, as in Cursor.NextIndex, and how many of these there
// are up to it. Where there are fewer, it is that behind the last complete line.
func After(r io.Reader, index int64) (offset, lines int64, err error) {
	all := transcript.NewLines(r, 0)
	for lines <= index && all.Next() {
		line := all.Line()
		offset = line.Offset + line.Length
		if _, err := transcript.Parse(line.Raw); err == nil {
			lines++
		}
	}
	if err := all.Err(); err != nil {
		return 0, 0, fmt.Errorf("read transcript: %w", withoutPath(err))
	}
	return offset, lines, nil
}
