// The shop in a child process with one processor: overloading it does not slow the load generator down.
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

// runInChild runs a scenario against a shop in another process: this program with -serve.
func runInChild(ctx context.Context, cfg shopConfig, seed uint64, report func(moment)) (_ result, err error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	child := exec.CommandContext(ctx, self, "-serve", "-until-eof", "-way", cfg.way, "-render", cfg.render.String(),
		"-listen", "127.0.0.1:0", "-ops", "127.0.0.1:0")
	child.Env = append(os.Environ(), "GOMAXPROCS=1", tokenVariable+"=")
	child.Cancel = func() error { return nil } // closing its standard input shuts it down gracefully
	child.WaitDelay = 15 * time.Second
	var stderr tail
	child.Stderr = &stderr
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
		res = cfg.scenario.run(ctx, cfg.way, seed, stage{url: url, enter: func(phase) {}, inUse: func() string { return "" }, report: report})
	}
	interrupted := ctx.Err() != nil
	_ = stdin.Close() // if the child has exited already, Wait returns the error
	for lines.Scan() {
		continue // drain its output
	}
	err = child.Wait()
	if interrupted && errors.Is(err, context.Canceled) {
		err = nil
	}
	if err == nil && url == "" && !interrupted {
		err = errors.New("it printed no address")
	}
	if err != nil {
		return result{}, fmt.Errorf("the shop's process: %w: %s", err, stderr.String())
	}
	return res, nil
}

// tail keeps the last bytes written to it.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const limit = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > limit {
		t.text = bytes.Clone(t.text[len(t.text)-limit:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
