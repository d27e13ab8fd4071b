// SPDX-License-Identifier: Apache-2.0

// Streams that hold every slot (C8): the requests beside them are answered.

package wardenhttp_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// idleMachine is the warden's own controller on a machine that does nothing else, so that a test holds on a busy one.
type idleMachine struct{ *control.Controller }

func (c idleMachine) Step(s monitor.Sample) decision.ControlDecision {
	s.Lag, s.Throttled = monitor.Lag{}, monitor.Reading{}
	s.Utilization, s.Runnable = monitor.Reading{Value: 0.05, OK: true}, monitor.Reading{OK: true}
	return c.Controller.Step(s)
}

// One connection opens as many streams as the server has slots, and leaves them idle. Forty requests of others are answered.
func TestStreamsThatHoldEverySlot(t *testing.T) {
	controller := must(control.New(control.Config{}))(t)
	w := must(warden.New(warden.Config{Controller: idleMachine{controller}}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); _ = w.Run(ctx) }()
	defer func() { cancel(); <-ran }()
	mw := must(wardenhttp.New(w, wardenhttp.Config{}))(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stream", func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("GET /ok", func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "ok") })
	s := startServer(t, mw.Handler(mux), true)
	get := func(ctx context.Context, path string) *http.Response {
		t.Helper()
		req := must(http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, http.NoBody))(t)
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatalf("C8: GET %s: %v; %v", path, err, w.Latest().Decision)
		}
		return resp
	}

	attack, end := context.WithCancel(ctx)
	defer end()
	for range w.Limiter().Stats().Target {
		resp := get(attack, "/stream")
		defer resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s", resp.Proto, resp.Status)
		}
	}
	for range 40 {
		patient, cancel := context.WithTimeout(ctx, 4*patience)
		resp := get(patient, "/ok")
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		cancel()
		if err != nil || resp.StatusCode != http.StatusOK || string(body) != "ok" {
			t.Fatalf("C8: %s, %q, %v; %v", resp.Status, body, err, w.Latest().Decision)
		}
	}
}
