// Client retries within a budget: it hides single failures without multiplying the load of a server that is down.
package main

import (
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	var failing, received atomic.Int64 // percentage of requests that the server fails; requests received
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		received.Add(1)
		if rand.Int64N(100) < failing.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	caller, err := retry.New(retry.Config{}) // 3 attempts, retries for at most 10 % of the calls to each host
	if err != nil {
		return err
	}
	transport, err := wardenhttp.NewRetry(caller, wardenhttp.RetryConfig{})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport, Timeout: 2 * time.Second}

	for _, phase := range []struct {
		name  string
		fails int64
	}{{"5 % fail", 5}, {"down", 100}, {"back", 0}} {
		failing.Store(phase.fails)
		received.Store(0)
		answered := 0
		for range 300 {
			if resp, err := client.Get(server.URL); err == nil {
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					answered++
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Printf("%-9s 300 calls, %3d answered, the server received %3d requests\n", phase.name, answered, received.Load())
	}
	s := caller.Stats()
	fmt.Printf("retries %d, retries beyond the budget %d, calls not sent %d\n", s.Retries, s.NoBudget, s.Throttled)
	return nil
}
