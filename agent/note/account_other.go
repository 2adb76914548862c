//go:build !linux

package note

import "os/user"

// accountFolder returns the folder of the user that runs this.
func accountFolder() (string, error) {
	account, err := user.Current()
	if err != nil {
		return "", err
	}
	return account.HomeDir, nil
}
