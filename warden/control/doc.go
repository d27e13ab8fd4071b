// Package control judges: from what a monitor measured it decides how many tasks may run, and says why.
package control
