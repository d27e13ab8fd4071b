// Media is a service that encodes pictures and videos beside an ordinary API: the work that burns processors has pools as
// wide as there are processors, so that a backlog of videos holds up neither pictures nor the API.
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

	// More videos than there are places, each of which goes on until it is told to stop.
	videos := s.ask(ctx, "/video", s.videoPlaces+3, context.Canceled)
	for range s.videoPlaces {
		<-s.started
	}
	fmt.Fprintln(out, "pictures, while all video places are busy:", <-s.ask(ctx, "/image", 8, nil))
	fmt.Fprintln(out, "API calls, while all video places are busy:", <-s.ask(ctx, "/api", 50, nil))
	v := s.set.Compartment("video").Snapshot()
	fmt.Fprintln(out, "videos, beyond their places:", v.InFlight-s.videoPlaces, "that have ended:", v.Finished)

	stop()
	fmt.Fprintln(out, "videos that were stopped, beyond their places:", <-videos-s.videoPlaces)
	fmt.Fprintln(out, "frames:", s.frames.Load() > 0)
	return nil
}

// A service encodes.
type service struct {
	set         *bulkhead.Set
	server      *httptest.Server
	videoPlaces int
	started     chan struct{} // a video has begun
	frames      atomic.Int64
}

// open makes a service for a number of processors: half of them for videos, the others for pictures, and one for each at
// least. The API mostly waits, and gets in between: what computes never has more places than there are processors.
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
	s := &service{set: set, videoPlaces: video, started: make(chan struct{}, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /image", s.image)
	mux.HandleFunc("POST /video", s.video)
	mux.HandleFunc("POST /api", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here you are") })
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

// video encodes frame after frame until the request's context ends.
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

// ask sends n requests at once, and tells how many of them ended with want; nil: with 200.
func (s *service) ask(ctx context.Context, path string, n int, want error) <-chan int {
	each, count := make(chan error), make(chan int, 1)
	for range n {
		go func() { each <- s.one(ctx, path) }()
	}
	go func() {
		got := 0
		for range n {
			if errors.Is(<-each, want) {
				got++
			}
		}
		count <- got
	}()
	return count
}

func (s *service) one(ctx context.Context, path string) error {
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
