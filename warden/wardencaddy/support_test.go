// SPDX-License-Identifier: Apache-2.0

// What the tests share: a real Caddy in this process, a client of it, and an upstream that does what it is told.

package wardencaddy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/stopbank/stopbank/warden/wardencaddy"
)

// patience ends a test that hangs; no test depends on its value.
const patience = time.Minute

// TestMain checks that no warden outlives its configurations.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := caddy.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	stacks := make([]byte, 1<<20)
	if stacks = stacks[:runtime.Stack(stacks, true)]; strings.Contains(string(stacks), "warden.(*Warden).Run") {
		fmt.Fprintf(os.Stderr, "a warden outlived its configurations:\n%s\n", stacks)
		code = 1
	}
	os.Exit(code)
}

// adapt returns the JSON of a Caddyfile.
func adapt(text string) ([]byte, error) {
	cfg, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	return cfg, err
}

// A proxy is the Caddy of this process, with one site.
type proxy struct {
	t    *testing.T
	addr string // host:port
	dir  string
}

// newProxy loads a site with these directives, and stops it at the end of the test.
func newProxy(t *testing.T, site string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t, l.Addr().String(), t.TempDir()}
	_ = l.Close()
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := p.load(site); err != nil {
		t.Fatal(err)
	}
	return p
}

// load replaces the configuration.
func (p *proxy) load(site string) error {
	cfg, err := adapt(fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	storage file_system %q
	servers {
		protocols h1 h2c
	}
	log {
		output file %q {
			roll_disabled
		}
	}
}
http://:%s {
	bind 127.0.0.1
	handle /metrics {
		metrics
	}
	%s
}
`, p.dir, filepath.Join(p.dir, "log"), strings.TrimPrefix(p.addr, "127.0.0.1:"), site))
	if err != nil {
		return err
	}
	return caddy.Load(cfg, true)
}

// log returns what Caddy has logged.
func (p *proxy) log() string {
	b, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// An answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// get sends a request; headers are pairs.
func (p *proxy) get(path string, headers ...string) answer {
	return p.send(p.t.Context(), path, headers...)
}

func (p *proxy) send(ctx context.Context, path string, headers ...string) answer {
	return p.do(ctx, client, http.MethodGet, path, http.NoBody, func(r *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
	})
}

// do sends a request after edit, if it is not nil, has changed it.
func (p *proxy) do(ctx context.Context, by *http.Client, method, path string, body io.Reader, edit func(*http.Request)) answer {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+path, body)
	if err != nil {
		return answer{err: err}
	}
	if edit != nil {
		edit(req)
	}
	resp, err := by.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(got), err}
}

// dial opens a connection, and sends what is not always HTTP: a %s in it becomes the host.
func (p *proxy) dial(text string) net.Conn {
	p.t.Helper()
	c, err := (&net.Dialer{}).DialContext(p.t.Context(), "tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	fmt.Fprint(c, strings.Replace(text, "%s", p.addr, 1))
	return c
}

// client has a connection for each request, so that a reload finds no idle ones.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// begin sends a request, and returns a channel with its answer.
func (p *proxy) begin(ctx context.Context, path string, headers ...string) <-chan answer {
	answers := make(chan answer, 1)
	go func() { answers <- p.send(ctx, path, headers...) }()
	return answers
}

// reach sends a request again while there is no answer: a reload has just reset the connection, as Caddy does.
func (p *proxy) reach(path string, headers ...string) answer {
	got := p.get(path, headers...)
	for end := time.Now().Add(patience); got.err != nil && time.Now().Before(end); got = p.get(path, headers...) {
		time.Sleep(time.Millisecond)
	}
	return got
}

func (p *proxy) want(path string, status int, headers ...string) answer {
	p.t.Helper()
	got := p.reach(path, headers...)
	if got.err != nil || got.status != status {
		p.t.Fatalf("%s: %d %q, %v, want %d", path, got.status, got.body, got.err, status)
	}
	return got
}

// metric returns the sum of the series of a metric that have all of these labels, such as `warden="x"`.
func (p *proxy) metric(name string, labels ...string) float64 {
	p.t.Helper()
	sum := 0.0
	for lines := bufio.NewScanner(strings.NewReader(p.want("/metrics", http.StatusOK).body)); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		is := series == name || strings.HasPrefix(series, name+"{")
		for _, l := range labels {
			is = is && strings.Contains(series, l)
		}
		if is {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// until waits for a metric to have a value.
func (p *proxy) until(want float64, name string, labels ...string) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		got := p.metric(name, labels...)
		if got == want {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s%v is %v, want %v", name, labels, got, want)
		}
	}
}

// An upstream holds requests for /hold until it is told to let one go. It never looks at its clients.
type upstream struct {
	*httptest.Server
	begun   chan *http.Request
	release chan struct{}
	served  atomic.Int64
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{begun: make(chan *http.Request, 1000), release: make(chan struct{}, 1000)}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.begun <- r
		if strings.HasPrefix(r.URL.Path, "/hold") {
			select {
			case <-u.release:
			case <-t.Context().Done():
			}
		}
		u.served.Add(1)
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) addr() string { return u.Listener.Addr().String() }

// proxied is the directive that sends requests to an address by our transport, with these lines in it.
func proxied(to any, lines ...string) string {
	return fmt.Sprintf("reverse_proxy %s {\n\ttransport stopbank\n\t%s\n}\n", to, strings.Join(lines, "\n\t"))
}

// holding sends a request that runs, and three that wait for it.
func (p *proxy) holding(u *upstream) (all []<-chan answer) {
	for i := range 4 {
		all = append(all, p.begin(p.t.Context(), "/hold"))
		if i == 0 {
			await(p.t, "the first request", u.begun)
		}
	}
	p.until(3, "stopbank_limiter_queued")
	return all
}

// answered lets requests go on, and awaits their answers.
func (u *upstream) answered(t *testing.T, all ...<-chan answer) {
	t.Helper()
	for range all {
		u.release <- struct{}{}
	}
	for _, a := range all {
		if got := await(t, "an answer", a); got.status != http.StatusOK || got.body != "done" {
			t.Errorf("%+v", got)
		}
	}
}

// proxied is the directive that sends requests to u, each on a connection of its own.
func (u *upstream) proxied() string {
	return fmt.Sprintf("reverse_proxy %s {\n\ttransport stopbank {\n\t\tkeepalive off\n\t}\n}\n", u.addr())
}

func await[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("%s: did not happen", what)
	}
	return v
}

// rejected returns the answer to the one of two requests that does not fit into a queue: the later one or, if the queue has stood
// for long, the earlier one; and the other one, which waits.
func rejected(t *testing.T, earlier, later <-chan answer) (got answer, waits <-chan answer) {
	t.Helper()
	select {
	case got = <-later:
		return got, earlier
	case got = <-earlier:
		return got, later
	case <-time.After(patience):
		t.Fatal("nobody was rejected")
	}
	return got, nil
}
