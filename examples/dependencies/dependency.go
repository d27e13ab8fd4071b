// A fake service over HTTP, which answers immediately or hangs until its client disconnects.
package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

type dependency struct {
	server *httptest.Server
	hangs  atomic.Bool
	calls  atomic.Int64 // received
}

func newDependency() *dependency {
	d := &dependency{}
	d.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.calls.Add(1)
		if d.hangs.Load() {
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, "done")
	}))
	return d
}
