// SPDX-License-Identifier: Apache-2.0

// Readers that mean harm: they ask and do not read, from other sites, by names that are not the console's. And names that are
// alike.

package console

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

// counted counts the requests that are being answered.
func counted(now *atomic.Int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now.Add(1)
		defer now.Add(-1)
		next.ServeHTTP(w, r)
	})
}

func wantNone(t *testing.T, now *atomic.Int64) {
	t.Helper()
	for hangs := time.Now().Add(time.Minute); now.Load() > 0; time.Sleep(time.Millisecond) { // handlers say nothing when they end
		if time.Now().After(hangs) {
			t.Fatalf("%d requests are still being answered", now.Load())
		}
	}
}

// A hundred streams of one HTTP/2 connection ask for the state and let not a byte of it pass. They are cut off.
func TestWhoDoesNotReadIsCutOff(t *testing.T) {
	const streams = 100
	c := mustNew(t, Config{Warden: mustWarden(t, new(script))})
	c.writeTimeout = 100 * time.Millisecond
	var now atomic.Int64
	server := httptest.NewUnstartedServer(counted(&now, c))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)

	conn := must(net.Dial("tcp", server.Listener.Addr().String()))(t)
	defer conn.Close()
	frame := func(kind, flags byte, stream uint32, payload string) string {
		head := append(
			[]byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}, make([]byte, 4)...,
		)
		binary.BigEndian.PutUint32(head[5:], stream)
		return string(head) + payload
	}
	// SETTINGS_INITIAL_WINDOW_SIZE 0; then GET, http, the path and the authority "localhost" (RFC 7541, appendix A and 6.2.2).
	var ask strings.Builder
	ask.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "\x00\x04\x00\x00\x00\x00"))
	for i := range uint32(streams) {
		ask.WriteString(frame(1, 5, 2*i+1, "\x82\x86\x04\x0b/state.json\x01\x09localhost"))
	}
	must(io.WriteString(conn, ask.String()))(t)
	for ended := 0; ended < streams; { // each is reset
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			t.Fatalf("%d of %d were cut off: %v", ended, streams, err)
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		must(io.ReadFull(conn, payload))(t)
		if head[3] == 3 { // RST_STREAM
			ended++
		}
	}
	wantNone(t, &now)
}

// No more than maxStreams are sent state.json at once, and the next one is as soon as one of them has it.
func TestStateBound(t *testing.T) {
	c := mustNew(t, Config{Warden: mustWarden(t, new(script))})
	c.maxStreams = 2
	slow := &blocked{free: make(chan struct{}), writing: make(chan struct{}, 2)}
	done := make(chan struct{}, 2)
	for range 2 {
		go func() {
			c.ServeHTTP(slow, httptest.NewRequest(http.MethodGet, "http://localhost/state.json", nil))
			done <- struct{}{}
		}()
		<-slow.writing
	}
	if w := ask(c, "state.json"); w.Code != 503 || at(t, decode(t, w.Body.String()), "code") != "busy" ||
		w.Header().Get("Retry-After") == "" {
		t.Errorf("the third: %d, %s", w.Code, w.Body)
	}
	close(slow.free)
	<-done
	<-done
	if w := ask(c, "state.json"); w.Code != 200 {
		t.Errorf("afterwards: %d, %s", w.Code, w.Body)
	}
}

// blocked is a reader that does not read for a while.
type blocked struct{ free, writing chan struct{} }

func (b *blocked) Header() http.Header { return http.Header{} }
func (b *blocked) WriteHeader(int)     {}
func (b *blocked) Write(p []byte) (int, error) {
	b.writing <- struct{}{}
	<-b.free
	return len(p), nil
}

// TestStrangers: a page of another site, or of a name that points here, is told nothing; what is no browser is not bothered.
func TestStrangers(t *testing.T) {
	c := mustNew(t, Config{Warden: mustWarden(t, new(script)), Hosts: []string{"Ops.example.com"}})
	guarded := c.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `"version":1 and text/html`)
	}))
	for _, x := range []struct {
		host, site, dest string
		code             string // "": it is answered
	}{
		{"localhost", "", "", ""},
		{"localhost:6060", "same-origin", "empty", ""},
		{"LOCALHOST:6060", "none", "document", ""},
		{"127.0.0.1", "", "", ""},
		{"127.0.0.1:6060", "same-origin", "empty", ""},
		{"[::1]:6060", "", "", ""},
		{"[::1]", "", "", ""},
		{"10.1.2.3:6060", "", "", ""},
		{"ops.example.com:443", "same-origin", "empty", ""},
		{"", "", "", ""},
		{"evil.example", "", "", "unknown_host"},
		{"evil.example:6060", "same-origin", "empty", "unknown_host"},
		{"localhost.evil.example", "none", "document", "unknown_host"},
		{"127.0.0.1.evil.example:80", "", "", "unknown_host"},
		{"x.ops.example.com", "", "", "unknown_host"},
		{"localhost:6060", "cross-site", "empty", "cross_site"},
		{"localhost:6060", "cross-site", "iframe", "cross_site"},
		{"localhost:6060", "same-site", "script", "cross_site"},
		{"localhost:6060", "cross-site", "document", ""}, // a link in a wiki
		{"10.1.2.3:6060", "from http://evil.example", "", "cross_site"},
		{"10.1.2.3:6060", "from null", "", "cross_site"},
		{"10.1.2.3:6060", "from http://10.1.2.3:6060", "", ""},
	} {
		for _, path := range []string{"/", "/state.json", "/metrics"} {
			x, h := x, http.Handler(c)
			if path == "/metrics" {
				h = guarded
			}
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = x.host
			from, old := strings.CutPrefix(x.site, "from ")
			if old {
				r.Header.Set("Origin", from)
				x.site = ""
			}
			for name, value := range map[string]string{"Sec-Fetch-Site": x.site, "Sec-Fetch-Dest": x.dest} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			switch body := w.Body.String(); {
			case x.code == "" && (w.Code != 200 || !strings.Contains(body, "version") && !strings.Contains(body, "html")):
				t.Errorf("%+v %s: %d, %.100s", x, path, w.Code, body)
			case x.code != "" && (w.Code != 403 || at(t, decode(t, body), "code") != x.code):
				t.Errorf("%+v %s: %d, %.100s", x, path, w.Code, body)
			}
		}
	}
	anybody := mustNew(t, Config{Warden: mustWarden(t, new(script)), Hosts: []string{"*"}})
	w := httptest.NewRecorder()
	if anybody.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://evil.example/state.json", nil)); w.Code != 200 {
		t.Errorf("any host: %d", w.Code)
	}
}

// Names that are alike as far as they are shown stay apart, also in what is remembered of them.
func TestLongNamesStayApart(t *testing.T) {
	long := strings.Repeat("n", 300)
	c := mustNew(t, Config{
		Set: mustSet(t, bulkhead.CompartmentConfig{Name: long + "a", Guaranteed: 1},
			bulkhead.CompartmentConfig{Name: long + "b", Guaranteed: 1}),
		Limiters: map[string]*limiter.Limiter{long + "a": mustLimiter(t, 1), long + "b": mustLimiter(t, 1)},
	})
	_, body := get(t, mount(t, c)+"state.json")
	s := decode(t, body)
	names := map[string]bool{}
	for i := range 2 {
		names["compartment:"+fmt.Sprint(at(t, s, "set", "compartments", i, "name"))] = true
		names["limiter:"+fmt.Sprint(at(t, s, "limiters", i, "name"))] = true
	}
	pools := at(t, s, "pools", 0, "pools").(map[string]any)
	if len(names) != 4 || len(pools) != 4 {
		t.Errorf("%d names, %d of them remembered", len(names), len(pools))
	}
	for name := range names {
		if _, ok := pools[name]; !ok || len(name) > longestName+40 {
			t.Errorf("%s: remembered %v", name, ok)
		}
	}
}
