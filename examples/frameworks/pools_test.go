// Memory that is reused between requests, over real HTTP: pooled bodies and the frameworks' pooled contexts, with clients that leave
// while an upstream goes on.

package frameworks_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/examples/frameworks"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// bodies are buffers that requests share, one after the other.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// forward sends a body of 8 MB of the byte of id from a pooled buffer, under ctx.
func forward(ctx context.Context, rt http.RoundTripper, to, id string) error {
	b := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(b)
	b.Reset()
	b.WriteString(strings.Repeat(id[:1], 8<<20))
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, to+"/"+id, io.NopCloser(bytes.NewReader(b.Bytes())))
	if err != nil {
		return err
	}
	req.ContentLength = int64(b.Len())
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// newUpstream returns a synchronous upstream that checks whose bytes it gets. It reads those of a client that is to leave when
// all have come, and answers nobody before.
func newUpstream(t *testing.T) (url string, begun chan struct{}, proceed func()) {
	t.Helper()
	begun = make(chan struct{}, 100)
	wait := make(chan struct{})
	u := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id := strings.TrimPrefix(r.URL.Path, "/")
		if strings.HasPrefix(id, "L") {
			begun <- struct{}{}
			<-wait
		}
		body, _ := io.ReadAll(r.Body)
		if others := len(body) - strings.Count(string(body), id[:1]); others > 0 {
			t.Errorf("H32: %s: of %d bytes %d are of others", id, len(body), others)
		}
	}))
	t.Cleanup(u.Close)
	return u.URL, begun, sync.OnceFunc(func() { close(wait) })
}

// crowd lets three clients leave when the upstream has their requests, and three others come then.
func crowd(t *testing.T, url string, begun <-chan struct{}, proceed func()) {
	t.Helper()
	post := func(ctx context.Context, id string) (int, error) {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/checkout/"+id, http.NoBody)
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var leaving, others sync.WaitGroup
	for n := range 3 {
		leaving.Go(func() { _, _ = post(ctx, "L"+strconv.Itoa(n)) })
	}
	for range 3 {
		<-begun
	}
	leave()
	leaving.Wait()
	for n := range 3 {
		others.Go(func() {
			if status, err := post(t.Context(), "V"+strconv.Itoa(n)); err != nil || status != http.StatusOK {
				t.Errorf("%d, %v", status, err)
			}
		})
	}
	others.Wait()
	proceed()
}

// A detached request has no byte and no context of those that come after it.
func TestDetachedRequestsAndPools(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector empties pools
	upstream, begun, proceed := "", (chan struct{})(nil), func() {}
	base := new(http.Transport)
	defer base.CloseIdleConnections()
	rt := wardenhttp.Detach(base)
	sell := func(_ http.ResponseWriter, r *http.Request, id string) error {
		return forward(r.Context(), rt, upstream, id)
	}
	each(t, sell, func(t *testing.T, p server) {
		upstream, begun, proceed = newUpstream(t)
		crowd(t, p.url, begun, proceed)
		for range 6 {
			<-p.ended
		}
	})
}

// A Buffered middleware around a router leaves handlers behind with contexts that nobody else gets.
func TestBufferedAroundRouters(t *testing.T) {
	for name, build := range map[string]func(*wardenhttp.Middleware, frameworks.Shop) http.Handler{
		"chi": frameworks.Chi, "echo": frameworks.Echo, "gin": frameworks.Gin,
	} {
		w, err := warden.New(warden.Config{})
		if err != nil {
			t.Fatal(err)
		}
		inner, err := wardenhttp.New(w, wardenhttp.Config{Task: frameworks.Task})
		if err != nil {
			t.Fatal(err)
		}
		outer, err := wardenhttp.New(w, wardenhttp.Config{Buffered: true, Timeout: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		var left sync.WaitGroup
		proceed := make(chan struct{})
		left.Add(3)
		s := httptest.NewServer(outer.Handler(build(inner, frameworks.Shop{Sell: func(w http.ResponseWriter, r *http.Request, id string) error {
			if !strings.HasPrefix(id, "L") {
				return nil
			}
			defer left.Done()
			<-proceed
			w.Header().Set("Of", id)
			r.Header.Set("Of", id)
			if !strings.HasSuffix(r.URL.Path, id) {
				t.Errorf("H32: %s: the request of %s goes on with that of %s", name, id, r.URL.Path)
			}
			return nil
		}})))
		for n := range 3 {
			if status, _, _ := send(t, http.MethodPost, s.URL+"/checkout/L"+strconv.Itoa(n)); status != http.StatusGatewayTimeout {
				t.Errorf("%s: %d", name, status)
			}
		}
		close(proceed)
		for n := range 3 {
			if status, _, body := send(t, http.MethodPost, s.URL+"/checkout/V"+strconv.Itoa(n)); body != "sold V"+strconv.Itoa(n) {
				t.Errorf("%s: %d %q", name, status, body)
			}
		}
		left.Wait()
		s.Close()
	}
}
