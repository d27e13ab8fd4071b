//go:build !unix

// Package signals is a stub for systems without signals, where its functions are never called.
package signals

import "os"

// Possible reports whether processes can be stopped and killed here.
const Possible = false

func Stop(*os.Process) {}
func Wake(*os.Process) {}
func Die()             {}
