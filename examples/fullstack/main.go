// Fullstack is the whole of warden around net/http: measure, judge, limit, and say why. With -addr it serves there; without,
// it serves itself far more requests than it has time for, over HTTP, and prints what the clients and the operator see.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// The server of show is small: what is behind it can do four requests at a time, and each takes a while.
const (
	slots    = 4
	queue    = 8
	work     = 200 * time.Millisecond
	patience = 2*work + work/2 // how long a request is worth an answer
	clients  = 100
)

func main() {
	addr := flag.String("addr", "", "serve at this address until interrupted")
	flag.Parse()
	run := func() error { return show(os.Stdout) }
	if *addr != "" {
		run = func() error { return serve(context.Background(), *addr, shop()) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func shop() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(work): // as a query would
			fmt.Fprint(w, "served ", r.URL.Path)
		case <-r.Context().Done(): // answered 504
		}
	})
	return mux
}

// serve is the whole of it.
func serve(ctx context.Context, addr string, mux http.Handler) error {
	w, err := warden.New(warden.Config{})
	if err != nil {
		return err
	}
	go func() { _ = w.Run(ctx) }() // it ends with ctx, and says nothing else
	mw, err := wardenhttp.New(w, wardenhttp.Config{})
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr: addr, Handler: mw.Handler(mux),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}
	return server.ListenAndServe()
}

// what says what a request is: refunds matter most.
func what(r *http.Request) warden.Task {
	task := warden.Task{Name: r.URL.Path}
	if r.URL.Path == "/refund" {
		task.Priority = warden.Critical
	}
	return task
}

// An answer is what a client got.
type answer struct {
	id, path string
	status   int
	header   http.Header
	body     string
	reason   string // of a rejection
}

func show(out io.Writer) error {
	w, err := warden.New(warden.Config{Control: control.Config{Max: slots}, Limiter: limiter.Config{Name: "shop", MaxQueue: queue}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	mw, err := wardenhttp.New(w, wardenhttp.Config{Task: what, Timeout: patience})
	if err != nil {
		return err
	}
	server := httptest.NewServer(mw.Handler(shop()))
	defer server.Close()

	fmt.Fprintf(out, "%d clients at once; the server can do %d requests at a time, in %v each\n", clients, slots, work)
	answers, err := rush(server.Client(), server.URL)
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for _, a := range answers {
		counts[strings.TrimSpace(fmt.Sprint(a.status, " ", a.reason))]++
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(out, "  %s: %d\n", kind, counts[kind])
	}
	refund := answers[clients-1]
	fmt.Fprintf(out, "the refund of %s, which matters most: %d\n", refund.id, refund.status)
	i := slices.IndexFunc(answers, func(a answer) bool { return a.status == http.StatusServiceUnavailable })
	if i < 0 {
		return fmt.Errorf("nobody was rejected: %v", counts)
	}
	rejected := answers[i]
	fmt.Fprintf(out, "the answer to %s:\n  %d, Retry-After: %s\n  %s\n", rejected.id, rejected.status, rejected.header.Get("Retry-After"), rejected.body)
	for _, e := range w.Limiter().Recent() {
		if e.Outcome == limiter.Rejected && e.Task.ID == rejected.id {
			fmt.Fprintf(out, "the explanation kept under that id:\n  %v\n", e)
		}
	}
	cancel()
	return <-ended
}

// rush sends all requests at once, the last of them for a refund, and returns what came of them.
func rush(client *http.Client, url string) ([]answer, error) {
	answers := make([]answer, clients)
	var all errgroup.Group
	for i := range answers {
		a := &answers[i]
		a.id, a.path = fmt.Sprintf("client-%03d", i+1), "/products"
		if i == clients-1 {
			a.path = "/refund"
		}
		all.Go(func() error { return a.get(client, url) })
	}
	return answers, all.Wait()
}

func (a *answer) get(client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url+a.path, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("X-Request-Id", a.id) // as a gateway in front does; without it the middleware makes one
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	a.status, a.header, a.body = resp.StatusCode, resp.Header, strings.TrimSpace(string(body))
	if a.status == http.StatusOK {
		return nil
	}
	var problem struct{ Reason string }
	err = json.Unmarshal(body, &problem)
	a.reason = problem.Reason
	return err
}
