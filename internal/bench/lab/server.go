// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The server: one way of limiting in front of one workload, in a process of its own, which says in the end what it saw.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What a server knows about its clients' patience.
const (
	untold = "untold" // it sees them leave
	told   = "told"   // it sees them leave, and the context has a deadline
	stay   = "stay"   // untold, and in no hurry: 2 s
)

// patience is how long the clients of a group stay.
func (g *group) patience() time.Duration {
	if g.kind == stay {
		return 2 * time.Second
	}
	return g.work.patience
}

// serveArgs configure a server.
type serveArgs struct {
	Way, Workload, Kind string
	Spins               float64
	Warm                time.Duration // readings of which do not count
	Group               string        // the cgroup to enter; "": none
}

// serve is the life of a server. It prints its address, ends with its standard input, and prints what it saw.
func serve(args string) error {
	var a serveArgs
	if err := json.Unmarshal([]byte(args), &a); err != nil {
		return err
	}
	if a.Group != "" { // before anything is allocated, and before the warden looks for its limit
		pid := []byte(strconv.Itoa(os.Getpid()))
		if err := os.WriteFile(filepath.Join(a.Group, "cgroup.procs"), pid, 0); err != nil {
			return err
		}
	}
	began := time.Now()
	way, err1 := wayNamed(a.Way)
	work, err2 := workNamed(a.Workload)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	k, err := newWorker(work, a.Kind, a.Spins)
	defer k.close()
	if err != nil {
		return err
	}
	handler, err := newHandler(way, k, a.Kind)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	s := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = s.Serve(l) }()
	_, _ = os.Stdin.Read(make([]byte, 1))
	return json.NewEncoder(os.Stdout).Encode(k.said(began.Add(a.Warm)))
}

// newHandler returns the work behind a way of limiting.
func newHandler(w way, k *worker, kind string) (http.Handler, error) {
	work := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer, err := k.do(r.Context(), isHeavy(r))
		if err != nil {
			http.Error(rw, "gave up", http.StatusGatewayTimeout)
			return
		}
		rw.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = rw.Write(answer)
	})
	guarded, err := w.mount(work, k)
	if err != nil || kind != told {
		return guarded, err
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), k.patience)
		defer cancel()
		guarded.ServeHTTP(rw, r.WithContext(ctx))
	}), nil
}

// said is what the warden's readings since a time say.
func (k *worker) said(since time.Time) (s inside) {
	for _, r := range k.warden.History(nil, 0) {
		if r.Sample.At.Before(since) {
			continue
		}
		s.Samples++
		s.LiveMB = max(s.LiveMB, float64(r.Sample.Memory.Live)/mb)
		limit := r.Decision.TargetConcurrency
		if s.Least == 0 || limit < s.Least {
			s.Least = limit
		}
		s.Most = max(s.Most, limit)
		said := map[string]int{}
		for _, reason := range r.Decision.Reasons {
			// a reason has no other way to tell its direction
			if reason.Code() != "memory" || strings.HasSuffix(reason.String(), "(tighten)") {
				said[reason.Code()] = 1
			}
		}
		s.Memory += said["memory"]
		s.Starved += said["starved"]
	}
	return s
}
