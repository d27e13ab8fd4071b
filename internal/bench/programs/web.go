// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A web is an HTTP client of one server.
type web struct {
	*http.Client
	base string
	t    *tally
}

// newWeb returns a client whose connections buffer little of what it has not read yet. (With less than a segment of loopback, 64
// KiB, Linux is slow: bare, too, if a server writes 32 KiB at a time.)
func newWeb(addr string, t *tally) web {
	return web{&http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 100,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return conn, conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		},
	}}, "http://" + addr, t}
}

// request makes a request with a body of so many bytes; header has names and values in turn.
func (w web) request(ctx context.Context, method, path string, body io.Reader, size int, header ...string) *http.Request {
	if !strings.HasPrefix(path, "http:") {
		path = w.base + path
	}
	r, err := http.NewRequestWithContext(ctx, method, path, body)
	if err != nil {
		panic(err) // no path here is one
	}
	r.ContentLength = int64(size)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// expect returns the body of the response to a request, and an error for another status.
func (w web) expect(status int, r *http.Request) (body []byte, header http.Header, err error) {
	resp, err := w.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if body, err = io.ReadAll(resp.Body); err == nil && resp.StatusCode != status {
		err = unexpected(resp.StatusCode)
	}
	return body, resp.Header, err
}

// download reads what is there over a line.
func (w web) download(r *http.Request, size int, way way) error {
	resp, err := w.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(io.Discard, way.over(resp.Body, size))
	if err == nil && n != int64(size) {
		err = fmt.Errorf("%d bytes of %d", n, size)
	}
	return err
}

// A short request is one that a server answers at once, with that status.
type short struct {
	method, path, body string
	status             int
}

// shorts sends each of them 20 times, one in 10 ms, and waits for the answers.
func (w web) shorts(ctx context.Context, when string, shorts ...short) {
	var all sync.WaitGroup
	for range 20 {
		for _, s := range shorts {
			all.Go(func() {
				w.send(ctx, "a short request while "+when, s)
			})
			time.Sleep(10 * time.Millisecond)
		}
	}
	all.Wait()
}

// send sends one, under that name.
func (w web) send(ctx context.Context, name string, s short) {
	began := time.Now()
	_, _, err := w.expect(s.status, w.request(ctx, s.method, s.path, strings.NewReader(s.body), len(s.body), "Content-Type", "application/json"))
	w.t.add(name, began, err)
}

// listen opens an event stream and hands over the data of each event until the request's context ends, which is the stream's only
// good end, and told by stopped.
func (w web) listen(r *http.Request, stopped *atomic.Bool, event func(data string)) {
	began := time.Now()
	resp, err := w.Do(r)
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		err = unexpected(resp.StatusCode)
	}
	w.t.add("an event stream is opened", began, err)
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	s := bufio.NewScanner(resp.Body)
	for s.Scan() {
		if data, ok := strings.CutPrefix(s.Text(), "data:"); ok {
			event(data)
		}
	}
	if err = s.Err(); err == nil {
		err = errors.New("ended early")
	}
	if stopped.Load() {
		err = nil
	}
	w.t.add("an event stream lives on", began, err)
}
