// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The generator, against servers of its own: who is asked, who leaves, and what is counted.

package main

import (
	"bytes"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// listen serves until the test ends.
func listen(t *testing.T, h http.HandlerFunc) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().(*net.TCPAddr)
}

func generatorOf(t *testing.T, to *net.TCPAddr, knows string, patience time.Duration) *generator {
	t.Helper()
	g, err := newGenerator(to, knows, patience, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	return g
}

// What was answered, what was refused and what the client left is told apart, and the server sees who leaves, but for a POST
// whose body it has not read.
func TestGeneratorAccounts(t *testing.T) {
	for _, knows := range []string{untold, post, h2} {
		t.Run(knows, func(t *testing.T) {
			var left, overdue atomic.Int64
			var hidden sync.WaitGroup
			sent := make(chan struct{})
			to := listen(t, func(rw http.ResponseWriter, r *http.Request) {
				if (r.Method == http.MethodPost) != (knows == post) || (r.ProtoMajor == 2) != (knows == h2) {
					t.Errorf("%s %s for %s", r.Method, r.Proto, knows)
				}
				if at, _ := strconv.ParseInt(r.Header.Get(overdueHeader), 10, 64); at > 0 {
					overdue.Add(1)
				}
				switch {
				case isHeavy(r):
					refuse(rw)
				case isCritical(r):
					body := bytes.Repeat([]byte("page "), 10000)
					rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
					_, _ = rw.Write(body)
				case knows == post:
					hidden.Add(1)
					defer hidden.Done()
					<-sent
					if r.Context().Err() == nil {
						left.Add(1) // and it does not know
					}
				default:
					<-r.Context().Done()
					left.Add(1)
				}
			})
			g := generatorOf(t, to, knows, 300*time.Millisecond)
			all := schedule(400, 50*time.Millisecond, 300*time.Millisecond, 100*time.Millisecond, 7)
			if err := g.open(all, nil); err != nil {
				t.Fatal(err)
			}
			close(sent)
			hidden.Wait()
			var leaves, counted int64
			for i, r := range all {
				want := 0
				switch {
				case r.heavy:
					want = 503
				case r.critical:
					want = 200
				default:
					leaves++
				}
				if r.counted {
					counted++
				}
				if r.status != want || r.sent < r.due || want != 0 && r.done < r.sent {
					t.Fatalf("request %d: %+v, want status %d", i, r, want)
				}
			}
			for left.Load() != leaves {
				time.Sleep(time.Millisecond) // the test's own limit ends this
			}
			if overdue.Load() != counted || counted == 0 || counted == int64(len(all)) {
				t.Fatalf("%d of %d requests said when their client leaves, want %d", overdue.Load(), len(all), counted)
			}
		})
	}
}

// A closed loop keeps exactly so many requests under way.
func TestClosedLoop(t *testing.T) {
	const n = 5
	var under, most, answered atomic.Int64
	to := listen(t, func(rw http.ResponseWriter, _ *http.Request) {
		now := under.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		time.Sleep(5 * time.Millisecond) // the request takes a while, so that several are under way
		answered.Add(1)
		under.Add(-1)
		_, _ = rw.Write([]byte("done"))
	})
	begun := 0
	perSecond, err := generatorOf(t, to, untold, time.Hour).closed(n, 50*time.Millisecond, 200*time.Millisecond,
		func() error { begun++; return nil })
	if err != nil || begun != 1 {
		t.Fatalf("begun %d times: %v", begun, err)
	}
	if got := int64(perSecond * 0.2); most.Load() != n || got == 0 || got > answered.Load() {
		t.Fatalf("%d under way, %d of %d answers counted", most.Load(), got, answered.Load())
	}
}

// A connection that closes leaves its requests unanswered, and the next get another.
func TestGeneratorConnectsAgain(t *testing.T) {
	for _, knows := range []string{untold, h2} {
		t.Run(knows, func(t *testing.T) {
			var asked atomic.Int64
			to := listen(t, func(rw http.ResponseWriter, r *http.Request) {
				if asked.Add(1) == 1 {
					panic(http.ErrAbortHandler) // HTTP/1: the connection; HTTP/2: the stream
				}
				refuse(rw)
			})
			all := []request{{due: 1}, {due: int64(60 * time.Millisecond)}, {due: int64(120 * time.Millisecond)}}
			if err := generatorOf(t, to, knows, time.Hour).open(all, nil); err != nil { // nobody waits for what is lost
				t.Fatal(err)
			}
			if got := []int{all[0].status, all[1].status, all[2].status}; !slices.Equal(got, []int{0, 503, 503}) {
				t.Fatalf("answers %v", got)
			}
		})
	}
}

// An HTTP/1 response may come in any pieces.
func TestAnswerInPieces(t *testing.T) {
	whole := "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 11\r\n\r\noverloaded\n"
	for size := 1; size <= len(whole); size++ {
		c, ends := &conn{buf: make([]byte, 128)}, 0
		for at := 0; at < len(whole); at += size {
			c.n += copy(c.buf[c.n:], whole[at:min(len(whole), at+size)])
			if status, ok := c.answer(); ok {
				ends++
				if status != 503 || at+size < len(whole) {
					t.Fatalf("pieces of %d: %d after %d bytes", size, status, at+size)
				}
			}
		}
		if ends != 1 || c.n != 0 || c.status != 0 {
			t.Fatalf("pieces of %d: %d ends, and what is left is %+v", size, ends, c)
		}
	}
}

// So may frames.
func TestFramesInPieces(t *testing.T) {
	var wire, fields bytes.Buffer
	server := http2.NewFramer(&wire, nil)
	encoder := hpack.NewEncoder(&fields)
	head := func(status string) []byte {
		fields.Reset()
		for _, f := range []hpack.HeaderField{{Name: ":status", Value: status}, {Name: "server", Value: strings.Repeat("x", 40)}} {
			if err := encoder.WriteField(f); err != nil {
				t.Fatal(err)
			}
		}
		return slices.Clone(fields.Bytes())
	}
	for _, err := range []error{
		server.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 250}),
		server.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head("200"), EndHeaders: true}),
		server.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: head("503"), EndHeaders: true, EndStream: true}),
		server.WriteData(1, false, []byte("do")),
		server.WritePing(false, [8]byte{7}),
		server.WriteData(1, true, []byte("ne")),
		server.WriteRSTStream(5, http2.ErrCodeInternal),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	all := wire.Bytes()
	for size := 1; size <= len(all); size++ {
		c := &conn{buf: make([]byte, 1<<12), frames: newFrames()}
		var streams []uint32
		var statuses []int
		var replies []byte
		for at := 0; at < len(all); at += size {
			c.n += copy(c.buf[c.n:], all[at:min(len(all), at+size)])
			reply, err := c.frames.take(c, func(stream uint32, status int) {
				streams, statuses = append(streams, stream), append(statuses, status)
			})
			if err != nil {
				t.Fatal(err)
			}
			replies = append(replies, reply...)
		}
		want := append(frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil),
			frame(http2.FramePing, http2.FlagPingAck, 0, []byte{7, 0, 0, 0, 0, 0, 0, 0})...)
		if !slices.Equal(streams, []uint32{3, 1, 5}) || !slices.Equal(statuses, []int{503, 200, 0}) || !bytes.Equal(replies, want) ||
			c.n != 0 {
			t.Fatalf("pieces of %d: streams %v answered %v, replies %v, %d bytes left", size, streams, statuses, replies, c.n)
		}
	}
}

// The same seed draws the same, at the rate and in the shares that were asked for.
func TestSchedule(t *testing.T) {
	draw := func(seed uint64) []request {
		return schedule(1000, 10*time.Second, 20*time.Second, 10*time.Second, seed)
	}
	all := draw(1)
	if !slices.Equal(all, draw(1)) || slices.Equal(all, draw(2)) {
		t.Fatal("a seed is not its own")
	}
	var critical, heavy, counted float64
	for i, r := range all {
		if i > 0 && r.due < all[i-1].due {
			t.Fatal("not in order")
		}
		if r.critical {
			critical++
		}
		if r.heavy {
			heavy++
		}
		if r.counted {
			counted++
		}
	}
	n := float64(len(all))
	for _, c := range []struct{ got, want float64 }{{n, 40000}, {critical / n, criticalShare}, {heavy / n, heavyShare},
		{counted / n, 0.5}} {
		if c.got < 0.95*c.want || c.got > 1.05*c.want {
			t.Errorf("%v, want about %v", c.got, c.want)
		}
	}
}
