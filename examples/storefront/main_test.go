package main

// The whole program on a small scale: the acts, an interrupt, the running shop, and invalid arguments.

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the program itself in the child process of an act.
func TestMain(m *testing.M) {
	if os.Getenv("STOREFRONT_TEST_CHILD") != "" {
		os.Exit(run(context.Background(), os.Args[1:], incident(), sale(), os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// short is the demo in a second or two.
func short() (database, processor scenario) {
	database, processor = incident(), sale()
	database.patience, database.acquire, processor.patience = database.patience/5, database.acquire/5, processor.patience/5
	for _, sc := range []scenario{database, processor} {
		for i := range sc.phases {
			sc.phases[i].lasts /= 10
			for r := range routes {
				sc.phases[i].hold[r] /= 5
			}
		}
	}
	return database, processor
}

// output is a writer that calls at for each line that contains the mark.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
	mark string
	at   func()
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mark != "" && strings.Contains(string(p), o.mark) {
		o.at()
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Every act runs with all its phases, and the exit code agrees with the verdict, which may fail on a busy machine.
func TestDemo(t *testing.T) {
	t.Setenv("STOREFRONT_TEST_CHILD", "1")
	t.Setenv("TMPDIR", t.TempDir())
	database, processor := short()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"-seed", "7"}, database, processor, nil, &stdout, &stderr)
	text := stdout.String()
	for line, times := range map[string]int{"\nhealthy    checkout ": 4, "\nrollback   admin ": 2, "\nrush       products ": 2,
		"\ncompartments alone ": 1, "\nwith a warden ": 1, "  other ": 0, "\nok   ": strings.Count(text, "\nok   ")} {
		if n := strings.Count(text, line); n != times {
			t.Errorf("%d times %q, want %d", n, line, times)
		}
	}
	if claims := strings.Count(text, "\nok   ") + strings.Count(text, "\nFAIL "); claims != 12 ||
		strings.Contains(text, "VERDICT: holds") != (code == 0) {
		t.Errorf("exit code %d, %d claims, %s\n%s", code, claims, stderr.String(), text)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestInterruptLeavesNothing(t *testing.T) {
	for _, act := range []string{"1 of 4", "3 of 4"} { // in this process, in another
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		t.Setenv("STOREFRONT_TEST_CHILD", "1")
		database, processor := short()
		ctx, cancel := context.WithCancel(t.Context())
		var stderr bytes.Buffer
		stdout := &output{mark: act, at: cancel}
		if code := run(ctx, nil, database, processor, nil, stdout, &stderr); code != 130 ||
			strings.Contains(stdout.String(), "VERDICT") {
			t.Errorf("exit code %d, want 130: %s%s", code, stdout, stderr.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		cancel()
	}
}

// -serve prints its URLs, serves them under traffic, and exits when its standard input ends.
func TestServe(t *testing.T) {
	t.Setenv(tokenVariable, secret)
	stdin, hold := io.Pipe()
	defer http.DefaultClient.CloseIdleConnections()
	var stderr bytes.Buffer
	ready, code := make(chan struct{}), make(chan int, 1)
	stdout := &output{mark: "plan and mode: ", at: func() { close(ready) }}
	database, processor := short()
	go func() {
		code <- run(t.Context(), []string{"-serve", "-traffic", "-until-eof", "-listen", "127.0.0.1:0", "-ops", "127.0.0.1:0"},
			database, processor, stdin, stdout, &stderr)
	}()
	select {
	case <-ready:
	case c := <-code:
		t.Fatalf("exit code %d: %s%s", c, stdout, stderr.String())
	}
	for name, path := range map[string]string{"shop: ": "/products", "console: ": "state.json", "metrics: ": ""} {
		_, rest, _ := strings.Cut(stdout.String(), name)
		url, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
		until(t, name+url, func() bool { // a busy machine answers a customer late
			status, _ := call(t, "GET", url+path, "", "")
			return status == http.StatusOK
		})
	}
	if err := hold.Close(); err != nil {
		t.Fatal(err)
	}
	if c := <-code; c != 0 || strings.Contains(stdout.String()+stderr.String(), secret) {
		t.Errorf("exit code %d: %s%s", c, stdout, stderr.String())
	}
}

func TestArguments(t *testing.T) {
	for args, says := range map[string]string{
		"-seed many":         `"many"`,
		"-matrix":            "-matrix",
		"fast":               `"fast"`,
		"-serve -way shared": `-way is "shared"; allowed: compartments, warden, pool or defaults`,
		"-serve -fault control=hangs -way compartments":  "only with -way warden",
		"-serve -fault limiter=closed -way compartments": "not with -way compartments",
		"-fault checkout":              `-fault is "checkout"; allowed: a list of ROUTE=TIME`,
		"-fault toys=1s":               `-fault is "toys=1s"`,
		"-fault admin=1s,checkout=25h": `-fault is "checkout=25h"`,
		"-serve -ops here":             `-ops is "here"`,
		"-serve -ops :6060":            "loopback",
		"-serve":                       tokenVariable + " is 5 bytes long",
	} {
		t.Setenv(tokenVariable, "short")
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), incident(), sale(), nil, &stdout, &stderr); code != 2 {
			t.Errorf("%s: exit code %d, want 2", args, code)
		}
		if !strings.Contains(stderr.String(), says) || stdout.Len() != 0 {
			t.Errorf("%s: standard error %q, standard output %q, want %q and nothing", args, stderr.String(), stdout.String(), says)
		}
	}
}
