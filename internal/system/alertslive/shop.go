// The storefront as a deployment: processes behind a load balancer that can be replaced one by one.
package main

import (
	"bufio"
	"context"
	"encoding/json"
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

// A replica is one process of the storefront.
type replica struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string // of the shop
	ops   string // host:port of its metrics
}

// A deployment is the replicas of a phase, with the file that lists them for Prometheus.
type deployment struct {
	binary, targets string
	name            string
	args, env       []string

	mu       sync.Mutex // guards all fields below
	replicas []*replica
}

// start starts another replica, which receives its share of requests from then on. It serves metrics at ops; ":0": any port.
func (d *deployment) start(ctx context.Context, ops string) error {
	// Not under ctx: at the end of a phase stop ends the replicas in order, and the end of this program closes their input.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), d.binary, append([]string{"-serve", "-until-eof", "-listen", "127.0.0.1:0", "-ops", ops}, d.args...)...)
	cmd.Env = append(os.Environ(), d.env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := &replica{cmd: cmd, stdin: stdin}
	for lines := bufio.NewScanner(stdout); r.ops == "" && lines.Scan(); {
		if url, ok := strings.CutPrefix(lines.Text(), "shop:"); ok {
			r.url = strings.TrimSpace(url)
		}
		if url, ok := strings.CutPrefix(lines.Text(), "metrics: http://"); ok {
			r.ops = strings.TrimSuffix(url, "/metrics")
		}
	}
	if r.ops == "" {
		return errors.Join(errors.New("a storefront did not say where it serves"), r.stop())
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replicas = append(d.replicas, r)
	return d.tell()
}

// stop ends the process by SIGTERM.
func (r *replica) stop() error {
	_ = r.stdin.Close()
	return r.cmd.Wait()
}

// retire removes the oldest replica from the load balancer, lets it finish, and ends it. It returns the address of its metrics.
func (d *deployment) retire(ctx context.Context) (ops string, err error) {
	d.mu.Lock()
	oldest := d.replicas[0]
	d.replicas = slices.Clone(d.replicas[1:])
	err = d.tell()
	d.mu.Unlock()
	return oldest.ops, errors.Join(err, sleep(ctx, 5*time.Second), oldest.stop())
}

// roll replaces each replica: at a new address like a Deployment of Kubernetes, or at the same address like systemd.
func (d *deployment) roll(ctx context.Context, same bool) error {
	for range len(d.replicas) {
		ops := "127.0.0.1:0"
		if same {
			var err error
			if ops, err = d.retire(ctx); err != nil {
				return err
			}
		}
		if err := d.start(ctx, ops); err != nil {
			return err
		}
		if err := sleep(ctx, 10*time.Second); err != nil {
			return err
		}
		if !same {
			if _, err := d.retire(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell updates the list of targets for Prometheus. The caller holds mu.
func (d *deployment) tell() error {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	g := group{Labels: map[string]string{"phase": d.name}, Targets: []string{}}
	for _, r := range d.replicas {
		g.Targets = append(g.Targets, r.ops)
	}
	b, err := json.Marshal([]group{g})
	if err != nil {
		return err
	}
	file := d.targets + ".next"
	return errors.Join(os.WriteFile(file, b, 0o600), os.Rename(file, d.targets))
}

// next is the replica for the next request.
func (d *deployment) next() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.replicas) == 0 {
		return ""
	}
	return d.replicas[rand.IntN(len(d.replicas))].url
}

func (d *deployment) stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	for _, r := range d.replicas {
		err = errors.Join(err, r.stop())
	}
	d.replicas = nil
	return err
}

// The routes of the storefront.
type load struct{ checkout, products, analytics, admin float64 } // per second

// shopping sends a Poisson stream of requests until ctx ends, whatever the responses. load is the rate at a time since the start.
func (d *deployment) shopping(ctx context.Context, at func(time.Duration) load) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	var sent sync.WaitGroup
	defer sent.Wait()
	for began := time.Now(); ; {
		l := at(time.Since(began))
		all := l.checkout + l.products + l.analytics + l.admin
		if sleep(ctx, time.Duration(rand.ExpFloat64()/all*float64(time.Second))) != nil {
			return
		}
		method, path := http.MethodGet, "/admin/counts"
		switch x := rand.Float64() * all; {
		case x < l.checkout:
			method, path = http.MethodPost, fmt.Sprintf("/checkout?product=%d", 1+rand.IntN(100))
		case x < l.checkout+l.products:
			path = "/products"
		case x < l.checkout+l.products+l.analytics:
			path = "/analytics/report"
		}
		url := d.next()
		if url == "" {
			continue
		}
		sent.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, method, url+path, nil)
			if err != nil {
				return
			}
			if resp, err := client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
