// The shop in a process of its own, on one processor: so that a processor can be overloaded without those who measure it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// runApart tells a scenario in a shop of another process, which is this program with -serve.
func runApart(ctx context.Context, cfg shopConfig, seed uint64, tell func(moment)) (_ result, err error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	child := exec.CommandContext(ctx, self, "-serve", "-until-eof", "-way", cfg.way, "-render", cfg.render.String(),
		"-listen", "127.0.0.1:0", "-ops", "127.0.0.1:0")
	child.Env = append(os.Environ(), "GOMAXPROCS=1", tokenVariable+"=")
	child.Cancel = func() error { return nil } // the end of its input ends it, in order
	child.WaitDelay = 15 * time.Second
	var said tail
	child.Stderr = &said
	stdin, err := child.StdinPipe()
	if err != nil {
		return result{}, err
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	if err := child.Start(); err != nil {
		return result{}, err
	}
	lines := bufio.NewScanner(stdout)
	url := ""
	for url == "" && lines.Scan() {
		url, _ = strings.CutPrefix(lines.Text(), shopLine)
	}
	var res result
	if url != "" {
		res = cfg.scenario.run(ctx, cfg.way, seed, stage{url: url, enter: func(phase) {}, inUse: func() string { return "" }, tell: tell})
	}
	interrupted := ctx.Err() != nil
	_ = stdin.Close() // if it has gone already, Wait says so
	for lines.Scan() {
		continue // whatever else it says
	}
	err = child.Wait()
	if interrupted && errors.Is(err, context.Canceled) {
		err = nil
	}
	if err == nil && url == "" && !interrupted {
		err = errors.New("it did not say where it serves")
	}
	if err != nil {
		return result{}, fmt.Errorf("the shop's process: %w: %s", err, said.String())
	}
	return res, nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > most {
		t.text = bytes.Clone(t.text[len(t.text)-most:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
