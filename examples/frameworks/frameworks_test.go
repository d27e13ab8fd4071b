// The shop on all three frameworks, over real HTTP.

package frameworks_test

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/examples/frameworks"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	log.SetOutput(io.Discard) // net/http logs recovered panics
	goleak.VerifyTestMain(m)
}

// A counter is a limiter's observer.
type counter struct {
	mu      sync.Mutex
	tasks   []warden.Task // started or rejected
	running int
	ended   chan struct{} // one element for each task that ended
}

func (c *counter) Observe(e limiter.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Outcome {
	case decision.Executed:
		c.running--
		c.ended <- struct{}{}
		return
	case decision.Started:
		c.running++
	}
	c.tasks = append(c.tasks, e.Task)
}

func (c *counter) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// A server is one framework serving the shop behind a warden.
type server struct {
	*counter
	warden *warden.Warden
	url    string
}

func each(t *testing.T, sell func(w http.ResponseWriter, r *http.Request, id string) error, test func(t *testing.T, p server)) {
	t.Helper()
	for _, f := range []struct {
		name  string
		build func(*wardenhttp.Middleware, frameworks.Shop) http.Handler
	}{{"chi", frameworks.Chi}, {"echo", frameworks.Echo}, {"gin", frameworks.Gin}} {
		t.Run(f.name, func(t *testing.T) {
			c := &counter{ended: make(chan struct{}, 100)}
			w, err := warden.New(warden.Config{Limiter: limiter.Config{Observer: c}})
			if err != nil {
				t.Fatal(err)
			}
			mw, err := wardenhttp.New(w, wardenhttp.Config{Task: frameworks.Task})
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewServer(f.build(mw, frameworks.Shop{Sell: sell}))
			defer s.Close()
			test(t, server{c, w, s.URL})
			if n := c.inFlight(); n != 0 {
				t.Errorf("%d slots still held at the end", n)
			}
		})
	}
}

// send returns status, Content-Type and body of a response.
func send(t *testing.T, method, url string) (int, string, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(body)
}

func TestRoutesGiveNameAndPriority(t *testing.T) {
	sold := func(http.ResponseWriter, *http.Request, string) error { return nil }
	each(t, sold, func(t *testing.T, p server) {
		if status, _, body := send(t, http.MethodPost, p.url+"/checkout/12345"); status != http.StatusOK || body != "sold 12345" {
			t.Error(status, body)
		}
		if status, _, body := send(t, http.MethodGet, p.url+"/reports"); status != http.StatusOK || body != "a report" {
			t.Error(status, body)
		}
		<-p.ended
		<-p.ended
		p.mu.Lock()
		defer p.mu.Unlock()
		got := slices.Clone(p.tasks)
		if len(got) != 2 || !strings.HasPrefix(got[0].Name, "POST /checkout/") || strings.Contains(got[0].Name, "12345") ||
			got[0].Priority != decision.Critical ||
			got[1].Name != "GET /reports" || got[1].Priority != decision.Background {
			t.Errorf("%+v", got)
		}
	})
}

func TestRejectionEndsTheRequest(t *testing.T) {
	var calls atomic.Int32
	sell := func(http.ResponseWriter, *http.Request, string) error { calls.Add(1); return nil }
	each(t, sell, func(t *testing.T, p server) {
		p.warden.Limiter().Close()
		status, kind, body := send(t, http.MethodPost, p.url+"/checkout/1")
		var problem struct{ Reason string }
		if err := json.Unmarshal([]byte(body), &problem); err != nil || status != http.StatusServiceUnavailable ||
			kind != "application/problem+json" || problem.Reason != "closed" {
			t.Errorf("%d %s %s", status, kind, body)
		}
		if n := calls.Swap(0); n != 0 {
			t.Errorf("the handler of a rejected request was called %d times", n)
		}
		if status, _, body := send(t, http.MethodGet, p.url+"/healthz"); status != http.StatusOK || body != "here" {
			t.Error("health:", status, body)
		}
	})
}

// Echo's handlers return errors: their answers are whole, and failures count.
func TestEchoAnswersReturnedErrors(t *testing.T) {
	w, err := warden.New(warden.Config{})
	if err != nil {
		t.Fatal(err)
	}
	mw, err := wardenhttp.New(w, wardenhttp.Config{Task: func(r *http.Request) (t warden.Task) {
		if r.URL.Path == "/late" {
			t.Deadline = time.Now().Add(20 * time.Millisecond)
		}
		return t
	}})
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.Use(middleware.Recover())
	g := e.Group("", frameworks.WrapEcho(mw))
	g.GET("/refused", func(*echo.Context) error { return echo.NewHTTPError(http.StatusConflict, "sold out") })
	g.GET("/failed", func(*echo.Context) error { return errors.New("a bug") })
	g.GET("/panic", func(*echo.Context) error { panic("a bug") })
	g.GET("/late", func(c *echo.Context) error { <-c.Request().Context().Done(); return c.Request().Context().Err() })
	s := httptest.NewServer(e)
	defer s.Close()
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/refused": {http.StatusConflict, "sold out"}, "/failed": {http.StatusInternalServerError, "Internal Server Error"},
		"/panic": {http.StatusInternalServerError, "Internal Server Error"}, "/late": {http.StatusGatewayTimeout, "timeout_running"},
	} {
		if status, _, body := send(t, http.MethodGet, s.URL+path); status != want.status || !strings.Contains(body, want.body) {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if n := w.Limiter().Stats(); n.Failed != 2 || n.Abandoned != 1 || n.Running != 0 {
		t.Errorf("%+v", n.Tally)
	}
}

// TestTasksOfServeMux: patterns of net/http may begin with the method; name and priority are the same as with the other routers.
func TestTasksOfServeMux(t *testing.T) {
	var got []warden.Task
	mux := http.NewServeMux()
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, frameworks.Task(r)) })
	mux.Handle("POST /checkout/{id}", h)
	mux.Handle("/reports", h)
	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodPost, "/checkout/7", http.NoBody), httptest.NewRequest(http.MethodGet, "/reports", http.NoBody),
	} {
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
	want := []warden.Task{{Name: "POST /checkout/{id}", Priority: decision.Critical},
		{Name: "GET /reports", Priority: decision.Background}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
