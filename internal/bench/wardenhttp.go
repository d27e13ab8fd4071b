// Benchmark rows of wardenhttp: its cost per request, without and with a network.

package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func wardenhttpRows() []row { return []row{middlewareRow(), requestRow()} }

// governed is next behind a warden that never rejects here.
func governed(next http.Handler) http.Handler {
	w, err := warden.New(warden.Config{Interval: 10 * time.Second})
	if err != nil {
		exit("%v", err)
	}
	mw, err := wardenhttp.New(w, wardenhttp.Config{})
	if err != nil {
		exit("%v", err)
	}
	return mw.Handler(next)
}

func nothing(http.ResponseWriter, *http.Request) {}

// connected is a ResponseWriter with the methods of an HTTP/1 server's.
type connected struct {
	http.ResponseWriter
	http.Flusher
}

func (connected) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, http.ErrNotSupported }

// middlewareRow: the cost of the middleware alone.
func middlewareRow() row {
	serve := func(h http.Handler) func() func(int) {
		return func() func(int) {
			rec := httptest.NewRecorder()
			w, r := http.ResponseWriter(connected{rec, rec}), httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			return func(n int) {
				for range n {
					h.ServeHTTP(w, r)
				}
			}
		}
	}
	return row{"warden/wardenhttp", "HTTP middleware, no network", false,
		variant{"wardenhttp around an empty handler", serve(governed(http.HandlerFunc(nothing)))},
		[]peer{
			{variant{"limiter Acquire + Release", func() func(int) {
				l, ctx := target(places), httptest.NewRequest(http.MethodGet, "/", http.NoBody).Context()
				return func(n int) {
					for range n {
						p, _ := l.Acquire(ctx, warden.Task{})
						p.Release()
					}
				}
			}}, 0},
		},
	}
}

// requestRow: the added cost of a request over loopback.
func requestRow() row {
	get := func(h http.Handler) func() func(int) {
		url := sync.OnceValue(func() string { // one server for all rounds, until the program ends
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				exit("%v", err)
			}
			go func() { _ = http.Serve(l, h) }()
			return "http://" + l.Addr().String()
		})
		return func() func(int) {
			to := url()
			return func(n int) {
				for range n {
					resp, err := http.Get(to)
					if err != nil {
						exit("%v", err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
						exit("%s", resp.Status)
					}
				}
			}
		}
	}
	bare := http.HandlerFunc(nothing)
	return row{"warden/wardenhttp", "HTTP request over loopback", false,
		variant{"under wardenhttp", get(governed(bare))},
		[]peer{{variant{"bare handler", get(bare)}, 1.1}},
	}
}
