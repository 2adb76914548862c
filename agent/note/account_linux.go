package note

import (
	"bufio"
	"bytes"
	"os"
	"strconv"

	"github.com/undersong-dev/undersong/agent/internal/durable"
)

// accounts is where Linux has the user's folder. os/user, built with C, would
// load a library at each call of the hook.
var accounts = "/etc/passwd"

// accountFolder returns the folder of the user that runs this. Of one that only a
// directory service knows the environment has to say it.
func accountFolder() (string, error) {
	file, err := durable.Open(accounts, os.O_RDONLY, 0)
	if err != nil {
		return os.UserHomeDir()
	}
	defer func() { _ = file.Close() }() // it is only read
	uid := []byte(strconv.Itoa(os.Getuid()))
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := bytes.Split(lines.Bytes(), []byte(":"))
		if len(fields) > 5 && bytes.Equal(fields[2], uid) {
			return string(fields[5]), nil
		}
	}
	return os.UserHomeDir()
}
