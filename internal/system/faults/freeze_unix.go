// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Freeze, where there is SIGSTOP.

package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/stopbank/stopbank/internal/system/deploy"
)

// freeze stops the ill process for 1.4 s of every 3 s.
func freeze(ctx context.Context, g *game) error {
	for ctx.Err() == nil {
		err := g.pod.Process.Signal(syscall.SIGSTOP)
		_ = deploy.Sleep(ctx, 1400*time.Millisecond)
		if err := errors.Join(err, g.pod.Process.Signal(syscall.SIGCONT)); err != nil {
			return err
		}
		_ = deploy.Sleep(ctx, 1600*time.Millisecond)
	}
	return nil
}

// pauseEngine stops the engine of the orders until ctx ends, as a host does whose disk or network has gone.
func pauseEngine(ctx context.Context, g *game) error {
	err := g.engine.Signal(syscall.SIGSTOP)
	<-ctx.Done()
	return errors.Join(err, g.engine.Signal(syscall.SIGCONT))
}
