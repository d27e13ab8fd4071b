// SPDX-License-Identifier: Apache-2.0

// The ResponseWriter that a handler gets can do what the original can.

package inflight_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// seen is the ResponseWriter that a handler gets for w.
func seen(w http.ResponseWriter) http.ResponseWriter {
	var got http.ResponseWriter
	h := newHandler(newGate(1), func(w http.ResponseWriter, _ *http.Request) { got = w })
	h.ServeHTTP(w, newRequest())
	return got
}

func TestWriterOffersWhatTheOriginalHas(t *testing.T) {
	rec := httptest.NewRecorder() // flushes
	bare := struct{ http.ResponseWriter }{rec}
	hijack := func() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, http.ErrNotSupported }
	for name, c := range map[string]struct {
		original                http.ResponseWriter
		same, flushes, hijacked bool
	}{
		"nothing":                       {bare, true, false, false},
		"Flusher":                       {rec, true, true, false},
		"Flusher behind Unwrap":         {wrapped{rec}, true, false, false},
		"Hijacker":                      {&fakeWriter{bare, hijack}, false, false, true},
		"Hijacker and Flusher":          {hijackFlusher{&fakeWriter{bare, hijack}, rec}, false, true, true},
		"both behind Unwrap":            {wrapped{wrapped{hijackFlusher{&fakeWriter{bare, hijack}, rec}}}, false, true, true},
		"nothing behind a dead Unwrap":  {wrapped{nil}, true, false, false},
		"Hijacker before a dead Unwrap": {hijackUnwrap{&fakeWriter{bare, hijack}}, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := seen(c.original)
			if _, ok := got.(http.Hijacker); ok != c.hijacked {
				t.Errorf("H7: http.Hijacker: %v, want %v", ok, c.hijacked)
			}
			if _, ok := got.(http.Flusher); ok != c.flushes {
				t.Errorf("H7: http.Flusher: %v, want %v", ok, c.flushes)
			}
			if same := got == c.original; same != c.same {
				t.Errorf("H7: the original: %v, want %v", same, c.same)
			}
		})
	}
}

type hijackFlusher struct {
	*fakeWriter
	http.Flusher
}

type hijackUnwrap struct{ *fakeWriter }

func (hijackUnwrap) Unwrap() http.ResponseWriter { return nil }

func TestControllerWorksOnBothProtocols(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		g := newGate(1)
		s := serve(newHandler(g, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			if err := rc.EnableFullDuplex(); err != nil {
				t.Errorf("H7: EnableFullDuplex: %v", err)
				return // without it the server would wait for the end of the request
			}
			for name, set := range map[string]func(time.Time) error{
				"SetReadDeadline": rc.SetReadDeadline, "SetWriteDeadline": rc.SetWriteDeadline,
			} {
				if err := set(time.Time{}); err != nil {
					t.Errorf("H7: %s: %v", name, err)
				}
			}
			if r.ProtoMajor == 2 {
				if _, ok := w.(http.Pusher); !ok {
					t.Errorf("H7: %T is no http.Pusher", w)
				}
				if _, _, err := rc.Hijack(); !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("H7: Hijack over HTTP/2: %v", err)
				}
			}
			// Each line comes back before the next one is sent, so both directions are open and flushed.
			in := bufio.NewReader(r.Body)
			for i := 0; ; i++ {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if i%2 == 0 {
					_, _ = io.WriteString(w, line)
					w.(http.Flusher).Flush()
				} else {
					_, _ = w.Write([]byte(line))
					if err := rc.Flush(); err != nil {
						t.Errorf("H7: Flush: %v", err)
					}
				}
			}
		}))
		upload, lines := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		context.AfterFunc(ctx, func() { _ = upload.Close() }) // a transport gives up only after reading the request's body
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, upload)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(lines, "first\n") }()
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		for i, line := range []string{"first\n", "second\n", "third\n"} {
			if i > 0 {
				_, _ = io.WriteString(lines, line)
			}
			if got, err := in.ReadString('\n'); got != line || err != nil {
				t.Errorf("H7: read %q, want %q: %v", got, line, err)
			}
		}
		_ = lines.Close()
		if _, err := in.ReadByte(); err != io.EOF {
			t.Errorf("H7: at the end: %v", err)
		}
		g.wantEmpty(t)
	})
}

// sendfile is there if the connection's own ReadFrom is reached with the file's reader, by a copy and by ServeContent.
func TestCopyingAFileReachesTheConnection(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<14)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for way, send := range map[string]func(http.ResponseWriter, *http.Request, *os.File){
		"ServeContent": func(w http.ResponseWriter, r *http.Request, f *os.File) { http.ServeContent(w, r, "", time.Time{}, f) },
		"Copy": func(w http.ResponseWriter, _ *http.Request, f *os.File) {
			w.Header().Set("Content-Length", "262144")
			_, _ = io.Copy(w, f)
		},
	} {
		t.Run(way, func(t *testing.T) {
			g := newGate(1)
			s, l := startCounting(t, newHandler(g, func(w http.ResponseWriter, r *http.Request) {
				f, err := os.Open(name)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				send(w, r, f)
			}))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := s.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); !bytes.Equal(body, content) || err != nil {
				t.Errorf("H7: %d bytes, want %d: %v", len(body), len(content), err)
			}
			g.wantEmpty(t) // the handler is done, and so is its copying
			if n := l.in.Load(); n < int64(len(content))/2 {
				t.Errorf("H7: %d bytes of %d went through the connection's ReadFrom", n, len(content))
			}
		})
	}
}

func TestWriteStringReachesTheOriginal(t *testing.T) {
	to := &stringWriter{fakeWriter: &fakeWriter{ResponseWriter: httptest.NewRecorder()}}
	if n, err := io.WriteString(seen(to), "text"); n != 4 || err != nil || to.got.String() != "text" {
		t.Errorf("H7: %d, %v; the original got %q", n, err, to.got.String())
	}
}

type stringWriter struct {
	*fakeWriter
	got strings.Builder
}

func (w *stringWriter) WriteString(s string) (int, error) { return w.got.WriteString(s) }

func TestFlushErrorReachesTheHandler(t *testing.T) {
	broken := errors.New("on purpose")
	to := flushFailer{hijackFlusher{&fakeWriter{ResponseWriter: httptest.NewRecorder()}, httptest.NewRecorder()}, broken}
	if err := http.NewResponseController(seen(to)).Flush(); !errors.Is(err, broken) {
		t.Errorf("H7: Flush: %v", err)
	}
}

type flushFailer struct {
	hijackFlusher
	err error
}

func (f flushFailer) FlushError() error { return f.err }
