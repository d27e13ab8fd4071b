// A system without SIGSTOP: the fault that needs it fails, and says so.

//go:build !unix

package main

import (
	"context"
	"errors"
)

func freeze(context.Context, *game) error { return errors.New("no SIGSTOP on this system") }
