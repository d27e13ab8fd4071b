// SPDX-License-Identifier: Apache-2.0

//go:build !unix

// Stubs for systems without signals, where they are never called.

package child

// Possible reports whether processes can be stopped and killed here.
const Possible = false

// Stop does nothing.
func (p *Process) Stop() {}

// Wake does nothing.
func (p *Process) Wake() {}

// Die does nothing.
func Die() {}
