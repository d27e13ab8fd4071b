// Package frameworks mounts a warden's middleware in chi, echo and gin, behind the router, so that tasks are called by the routes' patterns
// and get their priorities by them. One shop is built three times, and its tests try each over real HTTP: names, priorities, refusals that end the
// request, panics, connections that are taken over.
//
// It is a module of its own, because the frameworks bring many others along.
package frameworks

import (
	"net/http"

	"github.com/stopbank/stopbank/warden"
)

// Task says what a request is to the warden: all three routers put the pattern of the route where net/http's does.
func Task(r *http.Request) warden.Task {
	t := warden.Task{Name: r.Method + " " + r.Pattern}
	switch r.Pattern {
	case "/checkout/{id}", "/checkout/:id":
		t.Priority = warden.Critical
	case "/reports":
		t.Priority = warden.Background
	}
	return t
}
