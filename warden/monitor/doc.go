// Package monitor measures what a Go process does with its processors and its work. It knows no threshold and no meaning.
package monitor
