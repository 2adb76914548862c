package main_test

import "errors"

func lock(string) (func(), error) { return nil, errors.ErrUnsupported }

func sessionLeader() bool { return false }
