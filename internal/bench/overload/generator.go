// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The load: flood as a process of its own sends an open loop of requests, and a closed loop in this process measures what a server
// can do.

package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// request is one request of a run, with its intended time and its outcome. Times are nanoseconds since the start of the run.
type request struct {
	due, sent, done int64 // sent 0: it was not, or its connection broke
	status          int   // 0: no response before the client left
	critical, heavy bool
	counted         bool
}

// overdue is the time at which the client of a request leaves.
func (r *request) overdue(patience time.Duration) int64 { return r.due + int64(patience) }

// criticalShare is the fraction of critical requests.
const criticalShare = 0.2

// postBody is the length of the body of a POST.
const postBody = 100

// buildFlood builds the command flood of a checkout.
func buildFlood(root, binary string) error {
	cmd := exec.Command("go", "build", "-o", binary, ".") //nolint:noctx // it ends
	cmd.Dir, cmd.Env, cmd.Stderr = filepath.Join(root, "warden", "flood"), append(os.Environ(), "GOWORK=off"), os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building flood: %w", err)
	}
	return nil
}

// clients are those of one cell.
type clients struct {
	binary   string // flood
	to       *net.TCPAddr
	knows    string
	patience time.Duration
}

// open sends requests at random times (exponential gaps) for warm+length+tail: one in five critical, one in ten heavy. Those of
// length count; the requests of tail follow them, so that the last counted ones meet the same load. Equal seeds give equal
// arrivals. warmed is called after warm. flood is started by the calling thread, and has its cores and priority.
func (c *clients) open(rate float64, warm, length, tail time.Duration, seed uint64, warmed func() error) ([]request, error) {
	dir, err := os.MkdirTemp("", "flood")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "requests.csv")
	cmd := exec.Command(c.binary, append(c.args(), "-requests", file, "-capacity", fmt.Sprint(rate), "-load", "1", "-before", "0s", //nolint:gosec,noctx // it ends
		"-for", (warm+length+tail).String(), "-after", "0s", "-seed", fmt.Sprint(seed), "http://"+c.to.String())...)
	var progress bytes.Buffer
	cmd.Stderr = &progress
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	time.Sleep(warm)
	err = warmed()
	if failed := cmd.Wait(); failed != nil {
		return nil, fmt.Errorf("flood: %w: %s", failed, &progress)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	all, err := parse(f)
	for i := range all {
		all[i].counted = all[i].due >= int64(warm) && all[i].due < int64(warm+length)
	}
	return all, err
}

// args describe the clients to flood.
func (c *clients) args() (all []string) {
	if c.knows == h2 {
		all = append(all, "-http2")
	}
	for _, critical := range []bool{false, true} {
		for _, heavy := range []bool{false, true} {
			name, share := "light", 1-heavyShare
			if heavy {
				name, share = "heavy", heavyShare
			}
			priority := "normal"
			if critical {
				priority = "critical"
				share *= criticalShare
			} else {
				share *= 1 - criticalShare
			}
			route := fmt.Sprintf("name=%s,priority=%s,path=%s,share=%.4f,patience=%v", name, priority, path(critical, heavy), share, c.patience)
			if c.knows == post {
				route += fmt.Sprintf(",method=POST,body=%d", postBody)
			}
			all = append(all, "-route", route)
		}
	}
	return all
}

// path is that of a kind of request.
func path(critical, heavy bool) string {
	path := "/"
	if critical {
		path += "critical/"
	}
	if heavy {
		path += "heavy"
	}
	return path
}

// parse reads flood's file of requests.
func parse(file io.Reader) (all []request, err error) {
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil || len(lines) == 0 {
		return nil, fmt.Errorf("flood's requests have %d lines: %w", len(lines), err)
	}
	column := map[string]int{}
	for i, name := range lines[0] {
		column[name] = i
	}
	for _, line := range lines[1:] {
		field := func(name string) string {
			i, known := column[name]
			if !known {
				err = errors.Join(err, fmt.Errorf("flood's requests have no %s", name))
				return ""
			}
			return line[i]
		}
		number := func(name string) float64 {
			value, bad := strconv.ParseFloat(field(name), 64)
			err = errors.Join(err, bad)
			return value
		}
		at := func(name string) int64 { return int64(number(name) * float64(time.Millisecond)) }
		r := request{due: at("due_ms"), sent: at("sent_ms"), done: at("done_ms"), status: int(number("status")),
			critical: field("priority") == "critical", heavy: field("route") == "heavy"}
		if ended := field("ended"); ended == "not sent" || ended == "broken" {
			r.sent, r.done = 0, 0
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// closed keeps n requests in flight, and counts the responses during length, after skip. It calls begin between the two.
func (c *clients) closed(n int, skip, length time.Duration, begin func() error) (answered int, err error) {
	transport := &http.Transport{MaxIdleConnsPerHost: n, DisableCompression: true, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(c.knows != h2)
	transport.Protocols.SetUnencryptedHTTP2(c.knows == h2)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(context.Background())
	var sent, done atomic.Int64
	var all sync.WaitGroup
	var failed error
	var once sync.Once
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				heavy := sent.Add(1)%int64(1/heavyShare) == 0
				if err := c.ask(ctx, client, path(false, heavy)); err != nil && ctx.Err() == nil {
					once.Do(func() { failed = err })
					return
				}
				done.Add(1)
			}
		})
	}
	time.Sleep(skip)
	err = begin()
	before := done.Load()
	time.Sleep(length)
	answered = int(done.Load() - before)
	cancel()
	all.Wait()
	return answered, errors.Join(err, failed)
}

// ask sends a request and reads the answer.
func (c *clients) ask(ctx context.Context, client *http.Client, path string) error {
	method, body := http.MethodGet, ""
	if c.knows == post {
		method, body = http.MethodPost, strings.Repeat(" ", postBody)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.to.String()+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
