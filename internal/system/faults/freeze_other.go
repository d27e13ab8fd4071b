// SPDX-License-Identifier: Apache-2.0

// A system without SIGSTOP: the fault that needs it fails, and says so.

//go:build !unix

// Freeze, where there is no SIGSTOP: that game cannot be played.

package main

import (
	"context"
	"errors"
)

var errNoStop = errors.New("no SIGSTOP on this system")

func freeze(context.Context, *game) error      { return errNoStop }
func pauseEngine(context.Context, *game) error { return errNoStop }
