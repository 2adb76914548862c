package durable

import (
	"errors"
	"fmt"
	"strings"
)

// maxName bounds the length of a name that SafeName returns. File systems
// allow 255 bytes; what is added to a name, such as a number and an extension,
// must fit too.
const maxName = 200

// ErrName is returned for a string that cannot become the name of a file.
var ErrName = errors.New("not usable as a name")

// reserved are the names that Windows keeps for devices, with any extension.
var reserved = map[string]bool{
	"con": true, "prn": true, "aux": true, "nul": true, "conin$": true, "conout$": true, "clock$": true,
	"com0": true, "com1": true, "com2": true, "com3": true, "com4": true,
	"com5": true, "com6": true, "com7": true, "com8": true, "com9": true,
	"lpt0": true, "lpt1": true, "lpt2": true, "lpt3": true, "lpt4": true,
	"lpt5": true, "lpt6": true, "lpt7": true, "lpt8": true, "lpt9": true,
}

// SafeName returns the name under which an identifier is stored. Two
// identifiers never share a name, not even where file names ignore case. Lower
// case letters, digits and dashes stand for themselves, so that ids stay
// legible; every other byte, and the first one of a name that Windows reserves,
// becomes an underscore and two hex digits. There is no dot in it: not the
// parent directory, no extension, no hidden file.
//
// It returns ErrName for an empty string, and for one whose name is over 200
// bytes.
func SafeName(id string) (string, error) {
	if id == "" {
		return "", fmt.Errorf("empty identifier: %w", ErrName)
	}
	var b strings.Builder
	for i := range len(id) {
		c := id[i]
		plain := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-'
		if plain && (i > 0 || !reserved[id]) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
		if b.Len() > maxName {
			return "", fmt.Errorf("identifier is too long: %w", ErrName)
		}
	}
	return b.String(), nil
}
