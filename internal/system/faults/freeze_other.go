//go:build !unix

package main

import (
	"context"
	"errors"
)

func freeze(context.Context, *game) error { return errors.New("no SIGSTOP on this system") }
