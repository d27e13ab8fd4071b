// Package frameworks mounts wardenhttp's middleware in chi, echo and gin, behind the router, so that the route's pattern gives
// each task its name and priority. It builds the same shop three times. The tests run each over real HTTP: names, priorities,
// rejections, panics and hijacked connections.
package frameworks

import (
	"net/http"
	"strings"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
)

// Task derives name and priority from the matched route. ServeMux, chi and echo set Request.Pattern; for gin, Wrap does.
func Task(r *http.Request) warden.Task {
	route := r.Pattern
	if _, path, ok := strings.Cut(route, " "); ok { // net/http's pattern begins with the method
		route = path
	}
	t := warden.Task{Name: r.Method + " " + route}
	switch route {
	case "/checkout/{id}", "/checkout/:id":
		t.Priority = decision.Critical
	case "/reports":
		t.Priority = decision.Background
	}
	return t
}
