// Package frameworks mounts a warden's middleware in chi, echo and gin, behind the router, so that tasks are called by the routes' patterns
// and get their priorities by them. One shop is built three times, and its tests try each over real HTTP: names, priorities, rejections that end the
// request, panics, connections that are taken over.
//
// It is a module of its own, because the frameworks bring many others along.
package frameworks

import (
	"net/http"
	"strings"

	"github.com/stopbank/stopbank/warden"
)

// Task names and ranks a request by the route of its router: net/http's ServeMux, chi, echo and gin all set Request.Pattern.
func Task(r *http.Request) warden.Task {
	route := r.Pattern
	if _, path, ok := strings.Cut(route, " "); ok { // net/http's pattern begins with the method
		route = path
	}
	t := warden.Task{Name: r.Method + " " + route}
	switch route {
	case "/checkout/{id}", "/checkout/:id":
		t.Priority = warden.Critical
	case "/reports":
		t.Priority = warden.Background
	}
	return t
}
