// SPDX-License-Identifier: Apache-2.0

// Package deploy runs example programs as a deployment: processes behind a load balancer that can be replaced one by one, and
// the customers who send them requests. The alert rules are recorded on it, and the fault game is played on it.
package deploy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
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

// A Program is a running process, which ends when its input does.
type Program struct {
	Process *os.Process

	cmd   *exec.Cmd
	stdin io.Closer
	read  sync.WaitGroup // the reader of its output
	mu    sync.Mutex     // guards said
	said  []string
}

// Launch starts a program, and returns when it has printed a line with this prefix.
func Launch(binary string, args, env []string, prefix string) (*Program, error) {
	cmd := exec.Command(binary, args...) //nolint:noctx // its input ends with this program
	cmd.Env = append(os.Environ(), env...)
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Program{Process: cmd.Process, cmd: cmd, stdin: stdin}
	lines := bufio.NewScanner(stdout)
	for p.Said(prefix) == "" && lines.Scan() {
		p.said = append(p.said, lines.Text())
	}
	if p.Said(prefix) == "" {
		return nil, errors.Join(fmt.Errorf("%s did not say %q", binary, prefix), p.Stop())
	}
	p.read.Go(func() {
		for lines.Scan() {
			p.mu.Lock()
			p.said = append(p.said, lines.Text())
			p.mu.Unlock()
		}
	})
	return p, nil
}

// Said returns what follows a prefix in the last line with it that the program has printed; "": no line.
func (p *Program) Said(prefix string) (text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.said {
		if rest, found := strings.CutPrefix(line, prefix); found {
			text = strings.TrimSpace(rest)
		}
	}
	return text
}

// Stop lets the process shut down, by the end of its input, and waits for that.
func (p *Program) Stop() error {
	_ = p.stdin.Close()
	p.read.Wait()
	return p.cmd.Wait()
}

// A Replica is one process of a Deployment.
type Replica struct {
	*Program

	Shop string // URL; "": it serves no customers
	Ops  string // host:port of its metrics
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
	p, err := Launch(d.Binary, slices.Concat(d.Args, []string{"-ops", ops}, args), d.Env, "metrics:")
	if err != nil {
		return nil, err
	}
	url := strings.TrimSuffix(p.Said("metrics:"), "/metrics")
	r := &Replica{Program: p, Shop: p.Said("shop:"), Ops: strings.TrimPrefix(url, "http://")}
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

// Steady is a load that does not change.
func Steady(l Load) func(time.Duration) Load {
	return func(time.Duration) Load { return l }
}

// Shopping sends a Poisson stream of requests to the storefront until ctx ends, whatever the responses. at is the load at a time
// since the start.
func (d *Deployment) Shopping(ctx context.Context, at func(time.Duration) Load) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: 3 * time.Second}
	defer client.CloseIdleConnections()
	began := time.Now()
	all := func() float64 {
		l := at(time.Since(began))
		return l[0] + l[1] + l[2] + l[3]
	}
	Poisson(ctx, all, func() {
		l, page := at(time.Since(began)), 0
		for x := rand.Float64() * all(); page < 3 && x >= l[page]; page++ {
			x -= l[page]
		}
		method := []string{http.MethodPost, http.MethodGet, http.MethodGet, http.MethodGet}[page]
		path := []string{"/checkout", "/products", "/analytics/report", "/admin/counts"}[page]
		if url := d.URL(path); url != "" {
			_, _, _ = Ask(ctx, client, method, url, nil)
		}
	})
}

// Poisson calls send at random moments, on average so many times a second, each in a goroutine of its own, until ctx ends.
func Poisson(ctx context.Context, perSecond func() float64, send func()) {
	var sent sync.WaitGroup
	defer sent.Wait()
	for Sleep(ctx, time.Duration(rand.ExpFloat64()/perSecond()*float64(time.Second))) == nil {
		sent.Go(send)
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

// Ask sends a request, with a header if there is one, and returns the status and the body of the answer.
func Ask(ctx context.Context, client *http.Client, method, url string, body []byte, header ...string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if len(header) == 2 {
		req.Header.Set(header[0], header[1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
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
