// SPDX-License-Identifier: Apache-2.0

// Hooks: what people, clients and machines do to a service that is well.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stopbank/stopbank/internal/system/deploy"
)

// poisson calls send about so many times a second, each in its goroutine and at most 500 at once, until ctx ends.
func poisson(ctx context.Context, perSecond float64, send func()) {
	var sent sync.WaitGroup
	defer sent.Wait()
	free := make(chan struct{}, 500)
	for deploy.Sleep(ctx, time.Duration(rand.ExpFloat64()/perSecond*float64(time.Second))) == nil {
		select {
		case free <- struct{}{}:
			sent.Go(func() { send(); <-free })
		default:
		}
	}
}

// ask sends a request to a pod of the storefront, or to the URL itself, and returns the status of the answer; 0: none came.
func (g *game) ask(ctx context.Context, client *http.Client, path string, header ...string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.shop.URL(path), http.NoBody)
	if err != nil {
		return 0
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

func clientOf(timeout time.Duration) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: timeout}
}

// retryFleet: 25 users a second, 80 in the first half minute, who give up after 1 s and try again at once, four times.
func retryFleet(ctx context.Context, g *game) error {
	client := clientOf(time.Second)
	defer client.CloseIdleConnections()
	user := func() {
		for range 5 {
			if status := g.ask(ctx, client, "/products"); status > 0 && status < 500 || ctx.Err() != nil {
				return
			}
		}
	}
	rush, end := context.WithTimeout(ctx, 30*time.Second)
	defer end()
	poisson(rush, 80, user)
	poisson(ctx, 25, user)
	return nil
}

func inventTenants(ctx context.Context, g *game) error {
	client := clientOf(3 * time.Second)
	defer client.CloseIdleConnections()
	poisson(ctx, 150, func() {
		g.ask(ctx, client, "/analytics/report", "Shop-Partner", fmt.Sprint("partner-", rand.Uint64()))
	})
	return nil
}

func noisyTenant(ctx context.Context, g *game) error {
	client := clientOf(3 * time.Second)
	defer client.CloseIdleConnections()
	poisson(ctx, 90, func() { g.ask(ctx, client, "/analytics/report", "Shop-Partner", "partner-1") })
	return nil
}

func hurried(ctx context.Context, g *game) error {
	client := clientOf(150 * time.Millisecond)
	defer client.CloseIdleConnections()
	poisson(ctx, 5, func() { g.ask(ctx, client, "/products") })
	return nil
}

func openStreams(ctx context.Context, g *game) error {
	client := clientOf(0)
	defer client.CloseIdleConnections()
	var open sync.WaitGroup
	defer open.Wait()
	for range 60 {
		open.Go(func() { g.ask(ctx, client, "/admin/counts") })
		if deploy.Sleep(ctx, time.Second) != nil {
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// fullMinute asks 200 times at once, at each full minute.
func fullMinute(ctx context.Context, g *game) error {
	client := clientOf(3 * time.Second)
	defer client.CloseIdleConnections()
	for deploy.Sleep(ctx, time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) == nil {
		var sent sync.WaitGroup
		for range 200 {
			sent.Go(func() { g.ask(ctx, client, "/admin/counts") })
		}
		sent.Wait()
	}
	return nil
}

// neighbour keeps each processor busy three times.
func neighbour(ctx context.Context, _ *game) error {
	var loops sync.WaitGroup
	defer loops.Wait()
	for range 3 * runtime.NumCPU() {
		loops.Go(func() { _ = exec.CommandContext(ctx, "sh", "-c", "while :; do :; done").Run() }) // killed when ctx ends
	}
	<-ctx.Done()
	return nil
}

// tell posts what an operator with the token does to the ill pod.
func (g *game) tell(ctx context.Context, path string, body []byte) ([]byte, error) {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.pod.Ops+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, answer)
	}
	return answer, err
}

func dryRun(ctx context.Context, g *game) error {
	_, err := g.tell(ctx, "/mode", []byte(`{"mode":"dry_run"}`))
	return err
}

// badPlan leaves checkout two slots.
func badPlan(ctx context.Context, g *game) error {
	text, err := g.tell(ctx, "/plan", nil)
	if err != nil {
		return err
	}
	var plan map[string]any
	if err := json.Unmarshal(text, &plan); err != nil {
		return err
	}
	compartments, _ := plan["compartments"].([]any)
	for _, c := range compartments {
		if c, ok := c.(map[string]any); ok && c["name"] == "checkout" {
			c["guaranteed"], c["lendable"], c["max"] = 2, 0, 2
		}
	}
	for name := range plan {
		if !slices.Contains([]string{"revision", "total", "compartments"}, name) {
			delete(plan, name)
		}
	}
	if text, err = json.Marshal(plan); err == nil {
		_, err = g.tell(ctx, "/plan", text)
	}
	return errors.Join(err)
}

// healthFor is a game without a fault: usual load, and a rolling restart in the middle.
func healthFor(d time.Duration) fault {
	return fault{
		name: "health", about: "health, with a rolling restart of both programs in the middle", calm: true, wait: d,
		hook: func(ctx context.Context, g *game) error {
			if err := deploy.Sleep(ctx, d/2); err != nil {
				return err
			}
			g.say("rolling restart")
			return errors.Join(g.shop.Roll(ctx, false), g.work.Roll(ctx, false))
		},
	}
}
