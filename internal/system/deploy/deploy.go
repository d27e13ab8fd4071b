// SPDX-License-Identifier: Apache-2.0

// Package deploy runs example programs as a deployment: processes behind a load balancer that can be replaced one by one, and
// the customers who send them requests. The alert rules are recorded on it, and the fault game is played on it.
package deploy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Replica is one process.
type Replica struct {
	Process *os.Process
	Shop    string // URL; "": it serves no customers
	Ops     string // host:port of its metrics

	cmd   *exec.Cmd
	stdin io.Closer
	read  sync.WaitGroup // the reader of its output
	mu    sync.Mutex     // guards said
	said  []string
}

// Said returns what follows a prefix in the last line with it, of what the process has printed since it served; "": no line.
func (r *Replica) Said(prefix string) (text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.said {
		if rest, found := strings.CutPrefix(line, prefix); found {
			text = strings.TrimSpace(rest)
		}
	}
	return text
}

// Stop lets the process shut down, by the end of its input, and waits for that.
func (r *Replica) Stop() error {
	_ = r.stdin.Close()
	r.read.Wait()
	return r.cmd.Wait()
}

// A Deployment is the processes of one program. Set the exported fields before the first Start.
type Deployment struct {
	Binary    string
	Args, Env []string

	mu       sync.Mutex // guards replicas
	replicas []*Replica
}

// Start starts another process, with further arguments, and returns when it has said where it serves. It receives its share of
// the requests from then on. It serves metrics at ops; "127.0.0.1:0": any port.
func (d *Deployment) Start(ops string, args ...string) (*Replica, error) {
	cmd := exec.Command(d.Binary, append(append(slices.Clone(d.Args), "-ops", ops), args...)...) //nolint:noctx // its input ends with this program
	cmd.Env = append(os.Environ(), d.Env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &Replica{cmd: cmd, Process: cmd.Process, stdin: stdin}
	lines := bufio.NewScanner(stdout)
	for r.Ops == "" && lines.Scan() {
		name, url, _ := strings.Cut(lines.Text(), ": ")
		switch url = strings.TrimSpace(url); name {
		case "shop":
			r.Shop = url
		case "metrics":
			r.Ops = strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
		}
	}
	if r.Ops == "" {
		return nil, errors.Join(errors.New("a process did not say where it serves"), r.Stop())
	}
	r.read.Go(func() {
		for lines.Scan() {
			r.mu.Lock()
			r.said = append(r.said, lines.Text())
			r.mu.Unlock()
		}
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replicas = append(d.replicas, r)
	return r, nil
}

// Retire removes the oldest replica from the load balancer, lets it finish, and ends it. It returns the address of its metrics.
func (d *Deployment) Retire(ctx context.Context) (ops string, err error) {
	d.mu.Lock()
	oldest := d.replicas[0]
	d.replicas = slices.Clone(d.replicas[1:])
	d.mu.Unlock()
	return oldest.Ops, errors.Join(Sleep(ctx, 5*time.Second), oldest.Stop())
}

// Roll replaces each replica: at a new address like a Deployment of Kubernetes, or at the same address like systemd.
func (d *Deployment) Roll(ctx context.Context, same bool) (err error) {
	for range len(d.All()) {
		ops := "127.0.0.1:0"
		if same {
			ops, err = d.Retire(ctx)
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if _, err := d.Start(ops); err != nil {
			return err
		}
		if err := Sleep(ctx, 10*time.Second); err != nil {
			return err
		}
		if !same {
			_, err = d.Retire(ctx)
		}
	}
	return err
}

// All returns the replicas behind the load balancer.
func (d *Deployment) All() []*Replica {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.replicas
}

// Stop stops all replicas.
func (d *Deployment) Stop() (err error) {
	for _, r := range d.All() {
		err = errors.Join(err, r.Stop())
	}
	return err
}

// A Load has requests a second to checkout, products, analytics and admin of the storefront.
type Load [4]float64

// Usual is the normal load of two replicas; it triples for one minute in ten.
func Usual(at time.Duration) Load {
	if at%(10*time.Minute) > 9*time.Minute {
		return Load{9, 15, 3, 1.5}
	}
	return Load{3, 5, 1, 0.5}
}

// Shopping sends a Poisson stream of requests to the storefront until ctx ends, whatever the responses. at is the load at a time
// since the start.
func (d *Deployment) Shopping(ctx context.Context, at func(time.Duration) Load) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: 3 * time.Second}
	defer client.CloseIdleConnections()
	var sent sync.WaitGroup
	defer sent.Wait()
	for began := time.Now(); ; {
		l := at(time.Since(began))
		if Sleep(ctx, time.Duration(rand.ExpFloat64()/(l[0]+l[1]+l[2]+l[3])*float64(time.Second))) != nil {
			return
		}
		page := 0
		for x := rand.Float64() * (l[0] + l[1] + l[2] + l[3]); page < 3 && x >= l[page]; page++ {
			x -= l[page]
		}
		method := []string{http.MethodPost, http.MethodGet, http.MethodGet, http.MethodGet}[page]
		path := []string{"/checkout", "/products", "/analytics/report", "/admin/counts"}[page]
		if url := d.URL(path); url != "" {
			sent.Go(func() { _, _ = Get(ctx, client, method, url) })
		}
	}
}

// URL returns the URL of a path at a random replica, or "" if there is none.
func (d *Deployment) URL(path string) string {
	replicas := d.All()
	if len(replicas) == 0 {
		return ""
	}
	return replicas[rand.IntN(len(replicas))].Shop + path
}

// Get returns the body of an answer, whatever its status.
func Get(ctx context.Context, client *http.Client, method, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// Sleep returns after d, or with the error of ctx when it ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
