// Media is a service that encodes images and videos next to an ordinary API. CPU-bound work has as many slots as there are
// processors, so a backlog of videos delays neither images nor the API.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	s, err := open(runtime.GOMAXPROCS(0))
	if err != nil {
		return err
	}
	defer s.close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// Three videos more than the compartment has slots. Each is encoded until its request is canceled.
	videos := s.send(ctx, "/video", s.videoSlots+3, context.Canceled)
	for range s.videoSlots {
		<-s.started
	}
	fmt.Fprintln(out, "images encoded while all video slots are busy:", <-s.send(ctx, "/image", 8, nil))
	fmt.Fprintln(out, "API calls served while all video slots are busy:", <-s.send(ctx, "/api", 50, nil))
	v := s.set.Compartment("video").Snapshot()
	fmt.Fprintln(out, "videos in flight beyond their slots:", v.InFlight-s.videoSlots, "finished:", v.Finished)

	stop()
	fmt.Fprintln(out, "videos canceled while they were queued:", <-videos-s.videoSlots)
	fmt.Fprintln(out, "frames were encoded:", s.frames.Load() > 0)
	return nil
}

// A service encodes images and videos.
type service struct {
	set        *bulkhead.Set
	server     *httptest.Server
	videoSlots int
	started    chan struct{} // one element for each video that has started
	frames     atomic.Int64
}

// open starts a service for a number of processors: half of them for videos, the others for images, at least one each. API
// requests mostly wait, so they need no processor of their own.
func open(processors int) (*service, error) {
	video := max(1, processors/2)
	image := max(1, processors-video)
	const api = 100
	set, err := bulkhead.New(bulkhead.Config{Total: video + image + api, Compartments: []bulkhead.CompartmentConfig{
		{Name: "image", Guaranteed: image, MaxQueue: 100},
		{Name: "video", Guaranteed: video, MaxQueue: 50},
		{Name: "api", Guaranteed: api, MaxQueue: 500},
	}})
	if err != nil {
		return nil, err
	}
	s := &service{set: set, videoSlots: video, started: make(chan struct{}, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /image", s.image)
	mux.HandleFunc("POST /video", s.video)
	mux.HandleFunc("POST /api", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mw, err := wardenhttp.New(nil, wardenhttp.Config{
		Compartment: func(r *http.Request) *bulkhead.Compartment { return set.Compartment(r.URL.Path[1:]) },
	})
	if err != nil {
		return nil, err
	}
	s.server = httptest.NewServer(mw.Handler(mux))
	return s, nil
}

func (s *service) image(w http.ResponseWriter, _ *http.Request) {
	if err := encode(w, 0); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// video encodes frames until the request is canceled.
func (s *service) video(w http.ResponseWriter, r *http.Request) {
	s.started <- struct{}{}
	for n := 0; r.Context().Err() == nil; n++ {
		if err := encode(io.Discard, n); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s.frames.Add(1)
	}
}

// send sends n requests in parallel and returns how many of them ended with the error want; nil is status 200.
func (s *service) send(ctx context.Context, path string, n int, want error) <-chan int {
	results, count := make(chan error), make(chan int, 1)
	for range n {
		go func() { results <- s.post(ctx, path) }()
	}
	go func() {
		got := 0
		for range n {
			if errors.Is(<-results, want) {
				got++
			}
		}
		count <- got
	}()
	return count
}

func (s *service) post(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.server.URL+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := s.server.Client().Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(resp.Status))
	}
	return errors.Join(err, resp.Body.Close())
}

func (s *service) close() { s.server.Close() }
