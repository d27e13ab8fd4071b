// The storefront as a deployment: processes behind a load balancer that can be replaced one by one.
package main

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

// A replica is one process of the storefront.
type replica struct {
	cmd   *exec.Cmd
	stdin io.Closer
	shop  string // URL
	ops   string // host:port of its metrics
}

// stop lets the process shut down: its input ends.
func (r *replica) stop() error {
	_ = r.stdin.Close()
	return r.cmd.Wait()
}

// A deployment is the replicas of a phase.
type deployment struct {
	binary    string
	args, env []string

	mu       sync.Mutex // guards replicas
	replicas []*replica
}

// start starts another replica, which receives its share of requests from then on. It serves metrics at ops; ":0": any port.
func (d *deployment) start(ops string) error {
	args := append([]string{"-serve", "-ops", ops}, d.args...)
	cmd := exec.Command(d.binary, args...) //nolint:noctx // its input ends with this program
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
		name, url, _ := strings.Cut(lines.Text(), ": ")
		switch url = strings.TrimSpace(url); name {
		case "shop":
			r.shop = url
		case "metrics":
			r.ops = strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
		}
	}
	if r.ops == "" {
		return errors.Join(errors.New("a storefront did not say where it serves"), r.stop())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replicas = append(d.replicas, r)
	return nil
}

// retire removes the oldest replica from the load balancer, lets it finish, and ends it. It returns the address of its metrics.
func (d *deployment) retire(ctx context.Context) (ops string, err error) {
	d.mu.Lock()
	oldest := d.replicas[0]
	d.replicas = slices.Clone(d.replicas[1:])
	d.mu.Unlock()
	return oldest.ops, errors.Join(sleep(ctx, 5*time.Second), oldest.stop())
}

// roll replaces each replica: at a new address like a Deployment of Kubernetes, or at the same address like systemd.
func (d *deployment) roll(ctx context.Context, same bool) (err error) {
	for range len(d.all()) {
		ops := "127.0.0.1:0"
		if same {
			ops, err = d.retire(ctx)
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if err := errors.Join(d.start(ops), sleep(ctx, 10*time.Second)); err != nil {
			return err
		}
		if !same {
			_, err = d.retire(ctx)
		}
	}
	return err
}

// all are the replicas behind the load balancer.
func (d *deployment) all() []*replica {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.replicas
}

func (d *deployment) stop() (err error) {
	for _, r := range d.all() {
		err = errors.Join(err, r.stop())
	}
	return err
}

// shopping sends a Poisson stream of requests until ctx ends, whatever the responses. at is the load at a time since the start.
func (d *deployment) shopping(ctx context.Context, at func(time.Duration) load) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: 3 * time.Second}
	defer client.CloseIdleConnections()
	var sent sync.WaitGroup
	defer sent.Wait()
	for began := time.Now(); ; {
		l := at(time.Since(began))
		if sleep(ctx, time.Duration(rand.ExpFloat64()/(l[0]+l[1]+l[2]+l[3])*float64(time.Second))) != nil {
			return
		}
		page := 0
		for x := rand.Float64() * (l[0] + l[1] + l[2] + l[3]); page < 3 && x >= l[page]; page++ {
			x -= l[page]
		}
		method := []string{http.MethodPost, http.MethodGet, http.MethodGet, http.MethodGet}[page]
		path := []string{"/checkout", "/products", "/analytics/report", "/admin/counts"}[page]
		replicas := d.all()
		if len(replicas) == 0 {
			continue
		}
		url := replicas[rand.IntN(len(replicas))].shop + path
		sent.Go(func() { _, _ = get(ctx, client, method, url) })
	}
}

// get returns the body of an answer.
func get(ctx context.Context, client *http.Client, method, url string) ([]byte, error) {
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
