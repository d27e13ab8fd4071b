// SPDX-License-Identifier: Apache-2.0

// Hooks: what people, clients and machines do to a service that is well.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/stopbank/stopbank/internal/system/deploy"
)

// ask sends a request to a pod of the storefront, of a partner if it names one, and returns the status of the answer; 0: none came.
func (g *game) ask(ctx context.Context, client *http.Client, path, partner string) int {
	status, _, err := deploy.Ask(ctx, client, http.MethodGet, g.shop.URL(path), nil, "Shop-Partner", partner)
	if err != nil {
		return 0
	}
	return status
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
			if status := g.ask(ctx, client, "/products", ""); status > 0 && status < 500 || ctx.Err() != nil {
				return
			}
		}
	}
	rush, end := context.WithTimeout(ctx, 30*time.Second)
	defer end()
	deploy.Poisson(rush, func() float64 { return 80 }, user)
	deploy.Poisson(ctx, func() float64 { return 25 }, user)
	return nil
}

// asking sends more requests a second for a path, of one partner or another, by clients who leave after so long.
func asking(perSecond float64, patience time.Duration, path string, partner func() string) func(context.Context, *game) error {
	return func(ctx context.Context, g *game) error {
		client := clientOf(patience)
		defer client.CloseIdleConnections()
		deploy.Poisson(ctx, func() float64 { return perSecond }, func() { g.ask(ctx, client, path, partner()) })
		return nil
	}
}

func openStreams(ctx context.Context, g *game) error {
	client := clientOf(0)
	defer client.CloseIdleConnections()
	var open sync.WaitGroup
	defer open.Wait()
	for range 60 {
		open.Go(func() { g.ask(ctx, client, "/admin/counts", "") })
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
			sent.Go(func() { g.ask(ctx, client, "/admin/counts", "") })
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

// freeze stops the ill process for 1.4 s of every 3 s.
func freeze(ctx context.Context, g *game) error {
	for ctx.Err() == nil {
		err := g.pod.Process.Signal(syscall.SIGSTOP)
		_ = deploy.Sleep(ctx, 1400*time.Millisecond)
		if err := errors.Join(err, g.pod.Process.Signal(syscall.SIGCONT)); err != nil {
			return err
		}
		_ = deploy.Sleep(ctx, 1600*time.Millisecond)
	}
	return nil
}

// pauseEngine stops the engine of the orders until ctx ends, as a host does whose disk or network has gone.
func pauseEngine(ctx context.Context, g *game) error {
	err := g.engine.Process.Signal(syscall.SIGSTOP)
	<-ctx.Done()
	return errors.Join(err, g.engine.Process.Signal(syscall.SIGCONT))
}

// tell posts what an operator with the token does to the ill pod, or gets what it could change.
func (g *game) tell(ctx context.Context, path string, body []byte) ([]byte, error) {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	status, answer, err := deploy.Ask(ctx, http.DefaultClient, method, "http://"+g.pod.Ops+path, body, "Authorization", "Bearer "+token)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %d: %s", path, status, answer)
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
	var plan struct {
		Revision     any              `json:"revision"`
		Total        any              `json:"total"`
		Compartments []map[string]any `json:"compartments"`
	}
	if err := json.Unmarshal(text, &plan); err != nil {
		return err
	}
	for _, c := range plan.Compartments {
		if c["name"] == "checkout" {
			c["guaranteed"], c["lendable"], c["max"] = 2, 0, 2
		}
	}
	if text, err = json.Marshal(plan); err == nil {
		_, err = g.tell(ctx, "/plan", text)
	}
	return err
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
