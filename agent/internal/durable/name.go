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

// reserved reports whether Windows keeps a name for a device, with any extension.
func reserved(name string) bool {
	switch name {
	case "con", "prn", "aux", "nul", "conin$", "conout$", "clock$",
		"com0", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8", "com9",
		"lpt0", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9":
		return true
	}
	return false
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
		if plain && (i > 0 || !reserved(id)) {
			b.WriteByte(c)
		} else {
			const digits = "0123456789abcdef"
			b.WriteByte('_')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
		if b.Len() > maxName {
			return "", fmt.Errorf("identifier is too long: %w", ErrName)
		}
	}
	return b.String(), nil
}
