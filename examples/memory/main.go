// Memory offers a server more requests than fit into its memory, each of which holds 20 MB for two seconds, and shows what a warden
// with all defaults does: it learns what a request holds, and lets as many run as fit.
//
//	go run ./examples/memory           # GOMEMLIMIT is 256 MiB
//	go run ./examples/memory -bare     # without a warden, until 512 MiB are in use
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A scene is a server and its users.
type scene struct {
	limit    int64         // bytes, GOMEMLIMIT
	held     int           // bytes that a request holds
	takes    time.Duration // by a request
	rate     int           // requests a second
	patience time.Duration
	lasts    time.Duration
	bare     bool // without a warden
}

func main() {
	s := scene{limit: 256 << 20, held: 20e6, takes: 2 * time.Second, rate: 20, patience: 8 * time.Second, lasts: 20 * time.Second}
	flag.BoolVar(&s.bare, "bare", false, "without a warden")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	_, err := s.play(ctx, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// outcome is what has come of the requests so far, and the most that ran at once.
type outcome struct{ answered, rejected, left, running, most atomic.Int64 }

var errFull = errors.New("512 MiB are in use: a container of that size would have been killed")

// play prints a line a second.
func (s scene) play(ctx context.Context, to io.Writer) (*outcome, error) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(s.limit))
	w, err := warden.New(warden.Config{})
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithTimeout(ctx, s.lasts)
	defer end()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { _ = w.Run(ctx) })

	var o outcome
	handler := http.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		now := o.running.Add(1)
		defer o.running.Add(-1)
		for {
			if most := o.most.Load(); now <= most || o.most.CompareAndSwap(most, now) {
				break
			}
		}
		body := make([]byte, s.held)
		for i := 0; i < len(body); i += 4096 {
			body[i] = 1
		}
		select {
		case <-time.After(s.takes):
			_, _ = rw.Write(body[:1])
		case <-r.Context().Done():
		}
	}))
	if !s.bare {
		protect, err := wardenhttp.New(w, wardenhttp.Config{})
		if err != nil {
			return nil, err
		}
		handler = protect.Handler(handler)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	client := &http.Client{Timeout: s.patience, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer client.CloseIdleConnections()

	next, second := time.NewTicker(time.Second/time.Duration(s.rate)), time.NewTicker(time.Second)
	defer next.Stop()
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			return &o, nil
		case <-next.C:
			all.Go(func() { o.ask(ctx, client, server.URL) })
		case <-second.C:
			d := w.Latest().Decision
			used := inUse()
			_, _ = fmt.Fprintf(to, "%4d MB in use  %3d run  limit %3d  %4d answered  %4d rejected  %4d left  %v\n",
				used>>20, o.running.Load(), d.TargetConcurrency, o.answered.Load(), o.rejected.Load(), o.left.Load(), d.Reasons)
			if used > 512<<20 {
				return &o, errFull
			}
		}
	}
}

// ask is a user with one request.
func (o *outcome) ask(ctx context.Context, client *http.Client, url string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		panic(err)
	}
	res, err := client.Do(r)
	if err != nil {
		o.left.Add(1)
		return
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusOK {
		o.answered.Add(1)
	} else {
		o.rejected.Add(1)
	}
}

// inUse is the memory that the process has, in bytes.
func inUse() uint64 {
	m := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(m)
	return m[0].Value.Uint64() - m[1].Value.Uint64()
}
