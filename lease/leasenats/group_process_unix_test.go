//go:build unix

package leasenats_test

// This file lets members of a group be processes, which are killed and frozen while they work. They all write to one register on the server; at the end
// each order is there once, in order for each customer, under rising tokens.

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// child is a member seen from outside.
type child struct {
	cmd    *exec.Cmd
	frozen bool
	leash  func() error

	mu    sync.Mutex // guards below
	done  int        // effects since it was looked at last
	ended chan struct{}
}

func spawn(t *testing.T, address string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	c.cmd.Env, c.cmd.Stderr = append(os.Environ(), memberEnv+"="+address), os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.leash = in.Close
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); <-c.ended })
	go func() {
		defer close(c.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.mu.Lock()
			c.done++
			c.mu.Unlock()
		}
		_ = c.cmd.Wait() // killed, or told to end
	}()
	return c
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Error(err)
	}
	c.frozen = s == syscall.SIGSTOP
}

// effects are those since the last call.
func (c *child) effects() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.done
	c.done = 0
	return n
}

// Processes join, leave, are killed and frozen, the server is restarted, all by chance; -torture.time says for how long. After each fault the others
// go on.
func TestGroupProcesses(t *testing.T) {
	long, seed := 5*time.Second, rand.Uint64()
	if f := flag.Lookup("torture.time").Value.(flag.Getter).Get().(time.Duration); f > 0 {
		long = f
	}
	if f := flag.Lookup("torture.seed").Value.(flag.Getter).Get().(uint64); f > 0 {
		seed = f
	}
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 14))
	dir := t.TempDir()
	server := single(t, dir, 0)
	at, address := port(t, server), server.ClientURL()
	nc := connect(t, address)
	js := partitioned(t, nc)
	register, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "effects"})
	if err != nil {
		t.Fatal(err)
	}
	published := publishing(t, nc)

	var children []*child
	pick := func() (i int) { return r.IntN(len(children)) }
	drop := func(i int) { <-children[i].ended; children = slices.Delete(children, i, i+1) }
	rounds := map[string]int{}
	for began := time.Now(); len(rounds) == 0 || time.Since(began) < long; {
		what := "join"
		if len(children) >= 2 {
			what = []string{"join", "leave", "kill", "kill", "freeze", "freeze", "restart"}[r.IntN(7)]
		}
		switch what {
		case "join":
			if len(children) == 4 {
				continue
			}
			children = append(children, spawn(t, address))
		case "leave":
			i := pick()
			_ = children[i].leash()
			if children[i].frozen {
				children[i].signal(t, syscall.SIGCONT)
			}
			drop(i)
		case "kill":
			i := pick()
			_ = children[i].cmd.Process.Kill()
			drop(i)
		case "freeze":
			if c := children[pick()]; c.frozen {
				c.signal(t, syscall.SIGCONT)
			} else {
				c.signal(t, syscall.SIGSTOP)
			}
		case "restart":
			stop(server)
			server = single(t, dir, at)
		}
		rounds[what]++
		if slices.ContainsFunc(children, func(c *child) bool { return !c.frozen }) {
			for _, c := range children {
				c.effects()
			}
			eventually(t, "effects after "+what, func() bool {
				return slices.ContainsFunc(children, func(c *child) bool { return !c.frozen && c.effects() > 0 })
			})
		}
		time.Sleep(time.Duration(r.Int64N(int64(1500 * time.Millisecond)))) // a session and more, or less
	}
	published()
	for _, c := range children {
		if c.frozen {
			c.signal(t, syscall.SIGCONT)
		}
	}
	spawn(t, address)

	want, n := layout(t, nc), 0
	for _, offsets := range want {
		n += len(offsets)
	}
	effects := func() (all int, findings []string) {
		for domain, offsets := range want {
			done, _, err := load(ctx, register, domain)
			if err != nil {
				return 0, []string{err.Error()}
			}
			all += len(done)
			for i, e := range done {
				if i >= len(offsets) || e.Offset != offsets[i] || i > 0 && e.Token <= done[i-1].Token {
					findings = append(findings, fmt.Sprintf("%s: %+v at place %d", domain, e, i))
				}
			}
		}
		return all, findings
	}
	eventually(t, "all of them", func() bool { all, _ := effects(); return all >= n })
	if _, findings := effects(); len(findings) > 0 {
		t.Errorf("not once, in order: %v", findings[:min(10, len(findings))])
	}
	total := 0
	for _, k := range rounds {
		total += k
	}
	t.Logf("%d rounds of processes in a group %v: %d orders, none lost, doubled, out of order or stuck", total, rounds, n)
}
