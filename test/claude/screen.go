package claude

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// screen is as much of a terminal as is needed to read what stands on it: text,
// line ends, and the sequences that move the cursor or erase. Colours and modes
// are skipped. It is not safe for concurrent use.
type screen struct {
	rows     [][]rune
	row, col int
	savedRow int
	savedCol int
	pending  []byte // an unfinished sequence or character
}

func newScreen(rows, columns int) *screen {
	s := &screen{}
	for range rows {
		s.rows = append(s.rows, blank(columns))
	}
	return s
}

func blank(columns int) []rune { return []rune(strings.Repeat(" ", columns)) }

// String is what stands on the screen, without blanks at the ends of lines.
func (s *screen) String() string {
	var lines []string
	for _, r := range s.rows {
		lines = append(lines, strings.TrimRight(string(r), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// Write takes what a program prints. It never fails.
func (s *screen) Write(p []byte) (int, error) {
	data := append(s.pending, p...)
	s.pending = nil
	for len(data) > 0 {
		n := s.one(data)
		if n == 0 {
			s.pending = append([]byte(nil), data...)
			break
		}
		data = data[n:]
	}
	return len(p), nil
}

// one takes one character or sequence and returns its length, 0 if its end is
// not there yet.
func (s *screen) one(data []byte) int {
	switch data[0] {
	case 0x1b:
		return s.escape(data)
	case '\r':
		s.col = 0
		return 1
	case '\n':
		s.lineFeed()
		return 1
	case '\b':
		s.col = max(s.col-1, 0)
		return 1
	case '\t':
		s.col = min((s.col/8+1)*8, len(s.rows[0])-1)
		return 1
	}
	if data[0] < ' ' || data[0] == 0x7f {
		return 1
	}
	if !utf8.FullRune(data) {
		return 0
	}
	r, n := utf8.DecodeRune(data)
	s.put(r)
	return n
}

func (s *screen) put(r rune) {
	if s.col >= len(s.rows[0]) {
		s.col = 0
		s.lineFeed()
	}
	s.rows[s.row][s.col] = r
	s.col++
}

func (s *screen) lineFeed() {
	if s.row++; s.row == len(s.rows) {
		s.row--
		s.rows = append(s.rows[1:], blank(len(s.rows[0])))
	}
}

// escape takes a sequence that begins with ESC.
func (s *screen) escape(data []byte) int {
	if len(data) < 2 {
		return 0
	}
	switch data[1] {
	case '[':
		for i := 2; i < len(data); i++ {
			if c := data[i]; c >= 0x40 && c <= 0x7e {
				s.control(string(data[2:i]), c)
				return i + 1
			}
		}
		return 0
	case ']', 'P', '_', '^', 'X': // a string for the terminal itself
		for i := 2; i < len(data); i++ {
			if data[i] == 0x07 {
				return i + 1
			}
			if data[i] == 0x1b && i+1 < len(data) {
				return i + 2
			}
		}
		return 0
	case '(', ')', '*', '+', '#', '%':
		if len(data) < 3 {
			return 0
		}
		return 3
	case '7':
		s.savedRow, s.savedCol = s.row, s.col
	case '8':
		s.row, s.col = s.savedRow, s.savedCol
	case 'M':
		s.row = max(s.row-1, 0)
	}
	return 2
}

// control takes a control sequence: its parameters and the letter that ends it.
func (s *screen) control(text string, letter byte) {
	if strings.ContainsAny(text, "?<>=! ") {
		if letter == 'h' && (text == "?1049" || text == "?47") {
			s.erase(0, len(s.rows))
			s.row, s.col = 0, 0
		}
		return // modes and questions
	}
	var parameters []int
	for p := range strings.SplitSeq(text, ";") {
		n, _ := strconv.Atoi(p) // absent is 0
		parameters = append(parameters, n)
	}
	first := parameters[0]
	count := max(first, 1)
	rows, columns := len(s.rows), len(s.rows[0])
	switch letter {
	case 'A':
		s.row = max(s.row-count, 0)
	case 'B':
		s.row = min(s.row+count, rows-1)
	case 'C':
		s.col = min(s.col+count, columns-1)
	case 'D':
		s.col = max(s.col-count, 0)
	case 'E':
		s.row, s.col = min(s.row+count, rows-1), 0
	case 'F':
		s.row, s.col = max(s.row-count, 0), 0
	case 'G':
		s.col = min(count, columns) - 1
	case 'd':
		s.row = min(count, rows) - 1
	case 'H', 'f':
		column := 1
		if len(parameters) > 1 {
			column = max(parameters[1], 1)
		}
		s.row, s.col = min(count, rows)-1, min(column, columns)-1
	case 'J':
		s.eraseDisplay(first)
	case 'K':
		s.eraseLine(first)
	case 's':
		s.savedRow, s.savedCol = s.row, s.col
	case 'u':
		s.row, s.col = s.savedRow, s.savedCol
	}
}

func (s *screen) eraseDisplay(what int) {
	switch what {
	case 0:
		s.eraseLine(0)
		s.erase(s.row+1, len(s.rows))
	case 1:
		s.eraseLine(1)
		s.erase(0, s.row)
	default:
		s.erase(0, len(s.rows))
	}
}

func (s *screen) eraseLine(what int) {
	line := s.rows[s.row]
	from, to := 0, len(line)
	switch what {
	case 0:
		from = min(s.col, to)
	case 1:
		to = min(s.col+1, to)
	}
	for i := from; i < to; i++ {
		line[i] = ' '
	}
}

func (s *screen) erase(from, to int) {
	for i := from; i < to; i++ {
		s.rows[i] = blank(len(s.rows[i]))
	}
}
