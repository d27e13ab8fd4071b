//go:build !unix

// Package signals stands for signals where there are none; nobody gets this far there.
package signals

import "os"

// Possible says whether processes can be stopped and killed here.
const Possible = false

func Stop(*os.Process) {}
func Wake(*os.Process) {}
func Die()             {}
