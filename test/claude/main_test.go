package claude

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if code, is := BeWitness(); is {
		os.Exit(code)
	}
	os.Exit(m.Run())
}
