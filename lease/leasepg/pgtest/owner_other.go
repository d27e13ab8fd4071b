// SPDX-License-Identifier: Apache-2.0

//go:build !linux

// This file says that a private server is had on Linux only: elsewhere nothing ends it when the test is killed.

package pgtest

import "syscall"

const immediate = syscall.SIGTERM // of no use: no server is started

type owner struct{}

func otherUser() (*owner, error) { return nil, ErrNone }

func (*owner) own(string) error { return nil }

func (*owner) attributes() *syscall.SysProcAttr { return nil }
