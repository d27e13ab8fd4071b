// Neighbour shows what a warden with all defaults does while other processes take the processors: it names them, and does not
// lower the limit for what they do.
//
//	go run ./examples/neighbour
//
// A server gets a steady load of requests that compute a little and wait a little. After eight seconds busy processes begin, four
// for each processor, and after eighteen they end.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A scene is a server with its users, and when its neighbours come and go.
type scene struct {
	rate               int           // requests a second
	computes, waits    time.Duration // of a request
	come, leave, lasts time.Duration
}

func main() {
	busy := flag.Bool("busy", false, "be a neighbour, until standard input ends (the example starts itself so)")
	flag.Parse()
	if *busy {
		beBusy(os.Stdin)
		return
	}
	s := scene{
		rate: 100 * runtime.GOMAXPROCS(0), computes: 3 * time.Millisecond, waits: 20 * time.Millisecond,
		come: 8 * time.Second, leave: 18 * time.Second, lasts: 25 * time.Second,
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	_, err := s.play(ctx, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// play prints a line a second, and returns how many requests were answered.
func (s scene) play(ctx context.Context, to io.Writer) (answered int64, err error) {
	w, err := warden.New(warden.Config{})
	if err != nil {
		return 0, err
	}
	protect, err := wardenhttp.New(w, wardenhttp.Config{})
	if err != nil {
		return 0, err
	}
	ctx, end := context.WithTimeout(ctx, s.lasts)
	defer end()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { _ = w.Run(ctx) })
	server := httptest.NewServer(protect.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began := time.Now()
		compute(func() bool { return time.Since(began) >= s.computes })
		time.Sleep(s.waits)
	})))
	defer server.Close()
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer client.CloseIdleConnections()

	var good atomic.Int64
	next, second := time.NewTicker(time.Second/time.Duration(s.rate)), time.NewTicker(time.Second)
	defer next.Stop()
	defer second.Stop()
	come, leave := time.After(s.come), time.After(s.leave)
	neighbours := func() {}
	defer func() { neighbours() }()
	for before := int64(0); ; {
		select {
		case <-ctx.Done():
			return good.Load(), nil
		case <-next.C:
			all.Go(func() { ask(ctx, client, server.URL, &good) })
		case <-come:
			if neighbours, err = startNeighbours(4 * runtime.NumCPU()); err != nil {
				return good.Load(), err
			}
		case <-leave:
			neighbours()
			neighbours = func() {}
		case <-second.C:
			r := w.Latest()
			_, _ = fmt.Fprintf(to, "%4d answered/s  limit %3d  share %4s  %v\n",
				good.Load()-before, r.Decision.TargetConcurrency, percent(r.Sample.Share.Value, r.Sample.Share.OK), r.Decision.Reasons)
			before = good.Load()
		}
	}
}

func percent(v float64, known bool) string {
	if !known {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*v)
}

func ask(ctx context.Context, client *http.Client, url string, good *atomic.Int64) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		panic(err)
	}
	res, err := client.Do(r)
	if err != nil {
		return
	}
	_ = res.Body.Close()
	if res.StatusCode == http.StatusOK {
		good.Add(1)
	}
}

// startNeighbours starts so many busy processes, which end with stop, or with this process.
func startNeighbours(n int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var ends []func()
	stop = func() {
		for _, end := range ends {
			end()
		}
	}
	for range n {
		p := exec.Command(self, "-busy") //nolint:gosec,noctx // this program; it ends with its standard input
		in, err := p.StdinPipe()
		if err != nil {
			stop()
			return nil, err
		}
		if err := p.Start(); err != nil {
			stop()
			return nil, err
		}
		ends = append(ends, func() { _ = in.Close(); _ = p.Wait() })
	}
	return stop, nil
}

// beBusy uses a processor until in ends.
func beBusy(in io.Reader) {
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, in)
		over.Store(true)
	}()
	compute(over.Load)
}

// compute uses a processor until it is done.
func compute(done func() bool) {
	for n := 0; !done(); n++ {
		_ = n
	}
}
