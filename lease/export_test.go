// SPDX-License-Identifier: Apache-2.0

// A ledger in memory opened to its tests: its engine has an audit of everything that must agree inside it.

package lease

import (
	"github.com/stopbank/stopbank/lease/internal/memory"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// Memory is a ledger in memory with its insides.
type Memory struct {
	Ledger
	insides
}

type insides interface {
	Audit() error
	Done(domain string) (processed, failed []int64)
	Domains() int
	WastedNames() int
	LockStripe(domain string) (release func())
	SameStripe(a, b string) bool
}

// OpenMemory is NewMemory.
func OpenMemory(cfg Config) (*Memory, error) {
	l, err := NewMemory(cfg)
	if err != nil {
		return nil, err
	}
	return &Memory{l, l.(*ledger).engine.(*memory.Engine)}, nil
}

// CodeOf is an Event's Result.
func CodeOf(status Status, err error) string {
	return resultOf(step.Result{Status: step.Status(status)}, err)
}
