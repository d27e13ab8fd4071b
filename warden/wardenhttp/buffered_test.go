// SPDX-License-Identifier: Apache-2.0

// Buffered answers have bounds: H26.

package wardenhttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A writing is an answer that a test writes step by step, and what its client should have.
type writing struct {
	writes chan []byte
	cancel context.CancelFunc
	got    *httptest.ResponseRecorder

	wrote []byte
	kept  int
	sent  bool
	state string // "", left, done
}

// Answers of any size are written at the same time, end, are given up, and are followed by others, in any order.
func TestPropertyBufferedAnswersAreBounded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		each := rapid.IntRange(1, 20).Draw(rt, "per answer")
		total := rapid.IntRange(each, 3*each).Draw(rt, "total")
		n := rapid.IntRange(1, 5).Draw(rt, "answers")
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) [3]int {
			return [3]int{
				rapid.IntRange(0, n-1).Draw(rt, "answer"),
				rapid.IntRange(0, 5).Draw(rt, "what"), rapid.IntRange(0, 25).Draw(rt, "bytes"),
			}
		}), 20, 60).Draw(rt, "steps")
		wrong := ""
		synctest.Test(t, func(t *testing.T) { wrong = write(t, each, total, n, steps) })
		if wrong != "" {
			rt.Fatal("H26: " + wrong)
		}
	})
}

// write makes the steps, and says what is wrong with what the clients have.
func write(t *testing.T, each, total, n int, steps [][3]int) (wrong string) {
	m := newMiddleware(t, newGuard(t, n, 0), wardenhttp.Config{Buffered: true, BufferPerAnswer: each, BufferTotal: total})
	all := make([]*writing, n)
	begin := func(i int) {
		a := &writing{writes: make(chan []byte), got: httptest.NewRecorder()}
		ctx, cancel := context.WithCancel(t.Context())
		a.cancel = cancel
		h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Answer", fmt.Sprint(i))
			for b := range a.writes {
				_, _ = w.Write(b)
			}
		}))
		go h.ServeHTTP(a.got, newRequest().WithContext(ctx))
		all[i] = a
	}
	for i := range all {
		begin(i)
	}
	defer func() {
		for _, a := range all {
			if a.state != "done" {
				close(a.writes)
			}
			a.cancel()
		}
	}()
	synctest.Wait()
	kept := 0
	for k, s := range steps {
		a := all[s[0]]
		switch {
		case a.state == "done":
			a.cancel()
			begin(s[0]) // in the room of those before
		case s[1] == 4:
			close(a.writes)
			if kept -= a.kept; a.state != "left" {
				a.sent = true
			}
			a.state, a.kept = "done", 0
		case s[1] == 5:
			a.cancel()
			if !a.sent && a.state == "" { // the answer of one that is being sent goes on
				kept -= a.kept
				a.state, a.kept = "left", 0
			}
		default:
			b := bytes.Repeat([]byte{byte('a' + k%26)}, s[2])
			a.writes <- b
			a.wrote = append(a.wrote, b...)
			switch {
			case a.sent || a.state == "left":
			case a.kept+len(b) > each || kept+len(b) > total:
				kept -= a.kept
				a.sent, a.kept = true, 0
			default:
				a.kept += len(b)
				kept += len(b)
			}
		}
		synctest.Wait()
		for i, a := range all {
			want := ""
			if a.sent {
				want = string(a.wrote)
			}
			switch got := a.got.Body.String(); {
			case a.got.Code == 499:
				if a.sent {
					return fmt.Sprintf("step %d: answer %d is 499, and was being sent", k, i)
				}
			case got != want:
				return fmt.Sprintf("step %d: the client of answer %d has %q, want %q; %d are kept", k, i, got, want, kept)
			case a.sent && a.got.Header().Get("Answer") != fmt.Sprint(i):
				return fmt.Sprintf("step %d: answer %d has the header %v", k, i, a.got.Header())
			}
		}
	}
	return ""
}

// Over HTTP, an answer that is too long arrives while it is written, whole, with its trailer.
func TestALongBufferedAnswerIsSentAsItIsWritten(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		const piece = 2 << 20 // more than is kept by default
		g := newGuard(t, 1, 0)
		read, late := make(chan struct{}), make(chan struct{})
		h := g.handle(t, wardenhttp.Config{Buffered: true}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Sum")
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, strings.Repeat("x", piece))
			<-read
			_, _ = io.WriteString(w, "the end")
			w.Header().Set("Sum", "42")
			close(late)
		})
		s := serve(h)
		resp := send(t, s.Client(), http.MethodGet, s.URL, http.NoBody)
		defer resp.Body.Close()
		must(io.CopyN(io.Discard, resp.Body, piece/2))(t)
		close(read)
		rest, err := io.ReadAll(resp.Body)
		if <-late; err != nil || resp.StatusCode != http.StatusTeapot || len(rest) != piece-piece/2+len("the end") ||
			resp.Trailer.Get("Sum") != "42" {
			t.Errorf("H26: %s, %d bytes, trailer %v, %v", resp.Status, len(rest), resp.Trailer, err)
		}
		g.wantEmpty(t)
	})
}

// A handler adds to what the handlers around it have set, and deletes it, kept or streamed as without Buffered.
func TestABufferedAnswerHasTheHeadersAroundIt(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for _, cfg := range []wardenhttp.Config{{}, {Buffered: true}, {Buffered: true, BufferPerAnswer: 1}} {
			h := newGuard(t, 1, 0).handle(t, cfg, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Add("Vary", "Accept-Language")
				w.Header().Del("X-Frame-Options")
				_, _ = io.WriteString(w, "ok")
				w.Header().Add("Sum", "42")
			})
			s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Trailer", "Sum")
				w.Header().Set("Vary", "Origin")
				w.Header().Set("X-Frame-Options", "DENY")
				h.ServeHTTP(w, r)
			}))
			resp := wantStatus(t, s, http.StatusOK)
			if vary := resp.Header["Vary"]; !slices.Equal(vary, []string{"Origin", "Accept-Language"}) ||
				resp.Header["X-Frame-Options"] != nil || resp.Trailer.Get("Sum") != "42" {
				t.Errorf("%+v: %v, trailer %v", cfg, resp.Header, resp.Trailer)
			}
		}
	})
}
