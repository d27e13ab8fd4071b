package main

// The whole program, made small: each act runs, it ends when interrupted, leaves nothing behind, and rejects bad arguments.

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain is the program itself where an act has started this file to have a shop in a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("STOREFRONT_TEST_CHILD") != "" {
		os.Exit(run(context.Background(), os.Args[1:], demo{incident(), overload()}, os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// short is the demo in a second or two: the same story with smaller pools and thin traffic.
func short() demo {
	d := demo{incident(), overload()}
	d.incident.conns = [routes]int{checkout: 8, products: 6, analytics: 3, admin: 4}
	for i := range d.incident.phases {
		d.incident.phases[i].lasts /= 10
	}
	for i := range d.overload.phases {
		d.overload.phases[i].lasts /= 10
	}
	return d
}

// Every act is told with all its phases, the exit code and the verdict agree, and the verdict is about them all. What it
// says is not asked of a busy machine.
func TestTheDemo(t *testing.T) {
	t.Setenv("STOREFRONT_TEST_CHILD", "1")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"-json", "-seed", "7"}, short(), nil, &stdout, &stderr)
	var out struct {
		Seed, Scale int
		Rows        []struct {
			Way, Phase, Route string
			Requests          int
			Failed            map[string]int
		}
		Findings findings
		Holds    bool
	}
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		t.Fatalf("%v in %s after %s", err, stdout.String(), stderr.String())
	}
	if out.Seed != 7 || out.Scale != 20 || len(out.Rows) != (4+4+2+2)*int(routes+1) || len(out.Findings) != 12 {
		t.Errorf("seed %d, scale %d, %d rows, %d findings", out.Seed, out.Scale, len(out.Rows), len(out.Findings))
	}
	if out.Holds != (code == 0) {
		t.Errorf("holds: %v, but exit code %d", out.Holds, code)
	}
	sent := map[string]int{}
	for _, row := range out.Rows {
		sent[row.Way+row.Phase] += row.Requests
		if n := row.Failed[otherwise]; n > 0 {
			t.Errorf("%+v: %d failed in an unforeseen way", row, n)
		}
	}
	if sent[shared+slow] == 0 || sent[shared+slow] != sent[divided+slow] || sent[divided+sale] == 0 || sent[divided+sale] != sent[protected+sale] {
		t.Errorf("the traffic differs: %v", sent)
	}
	if !strings.Contains(stderr.String(), "4 of 4") {
		t.Errorf("no progress on standard error: %q", stderr.String())
	}
}

func TestTheMatrix(t *testing.T) {
	var stdout, stderr bytes.Buffer
	d := short()
	d.incident.conns = [routes]int{checkout: 5, products: 3, analytics: 2, admin: 1}
	code := run(t.Context(), []string{"-matrix"}, d, nil, &stdout, &stderr)
	if said := stdout.String(); !strings.Contains(said, "all overloaded") || strings.Contains(said, "VERDICT: holds") != (code == 0) {
		t.Errorf("exit code %d: %s%s", code, said, stderr.String())
	}
}

// cut ends the context when it is written to with a line that contains the mark.
type cut struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
	mark string
	end  func(string)
}

func (c *cut) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(p)
	if strings.Contains(string(p), c.mark) {
		c.end(string(p))
	}
	return len(p), nil
}

func (c *cut) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

func TestInterruptLeavesNothing(t *testing.T) {
	for name, mark := range map[string]string{"before the traffic": "1 of 4", "while slow queries run": "1s  ", "in another process": "3 of 4"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			t.Setenv("STOREFRONT_TEST_CHILD", "1")
			d := short()
			if mark == "1s  " {
				d.incident.phases[0].lasts = time.Minute
				d.incident.phases[0].hold[analytics] = time.Hour // nobody can wait for these to end
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var stderr bytes.Buffer
			stdout := &cut{mark: mark, end: func(string) { cancel() }}
			code := run(ctx, nil, d, nil, stdout, &stderr)
			if said := stderr.String(); code != 130 || !strings.Contains(said, "interrupted") {
				t.Errorf("exit code %d, want 130: %s", code, said)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			if strings.Contains(stdout.String(), "VERDICT") {
				t.Error("a verdict on half a run")
			}
		})
	}
}

// -serve says where everything is, serves it with traffic, and closes when its standard input does.
func TestServe(t *testing.T) {
	t.Setenv(tokenVariable, secret)
	stdin, hold := io.Pipe()
	defer stdin.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var stderr bytes.Buffer
	stdout := &cut{mark: crowded, end: func(string) {}}
	seen := make(chan struct{})
	var once sync.Once
	stdout.end = func(string) { once.Do(func() { close(seen) }) }
	code := make(chan int, 1)
	d := short()
	go func() {
		code <- run(t.Context(), []string{"-serve", "-traffic", "-until-eof", "-listen", "127.0.0.1:0", "-ops", "127.0.0.1:0"}, d, stdin, stdout, &stderr)
	}()
	select {
	case <-seen:
	case c := <-code:
		t.Fatalf("exit code %d: %s%s", c, stdout.String(), stderr.String())
	}
	for line := range strings.Lines(stdout.String()) {
		name, url, found := strings.Cut(strings.TrimSpace(line), ": ")
		if !found || name == "plan" || name == "mode" {
			continue
		}
		path := ""
		if name == "shop" {
			path = ping.path()
		}
		if status, _, text := call(t, "GET", strings.TrimSpace(url)+path, "", ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", line, status, text)
		}
	}
	if err := hold.Close(); err != nil {
		t.Fatal(err)
	}
	if c := <-code; c != 0 {
		t.Errorf("exit code %d: %s", c, stderr.String())
	}
	if said := stdout.String(); !strings.Contains(said, "/plan, with the token of "+tokenVariable) || strings.Contains(said+stderr.String(), secret) {
		t.Errorf("it says %s", said)
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args     []string
		name, as string // of a variable
		code     int
		says     string
	}{
		{[]string{"-help"}, "", "", 0, "-matrix"},
		{[]string{"-seed", "many"}, "", "", 2, `"many"`},
		{[]string{"-seed", "-1"}, "", "", 2, `"-1"`},
		{[]string{"-fast"}, "", "", 2, "-fast"},
		{[]string{"fast"}, "", "", 2, `"fast"`},
		{[]string{"-serve", "-way", "shared"}, "", "", 2, `-way is "shared"; allowed: compartments or warden`},
		{[]string{"-serve", "-render", "-1s"}, "", "", 2, "-render is -1s"},
		{[]string{"-serve", "-fault-after", "-1s"}, "", "", 2, "-fault-after is -1s"},
		{[]string{"-serve", "-fault", "control=hangs", "-way", "compartments"}, "", "", 2, "only with -way warden"},
		{[]string{"-fault", "checkout"}, "", "", 2, `-fault is "checkout"; allowed: a list of ROUTE=TIME`},
		{[]string{"-fault", "toys=1s"}, "", "", 2, `-fault is "toys=1s"`},
		{[]string{"-fault", "admin=1s,checkout=25h"}, "", "", 2, `-fault is "checkout=25h"`},
		{[]string{"-serve", "-ops", "here"}, "", "", 2, `-ops is "here"`},
		{[]string{"-serve", "-ops", "0.0.0.0:0"}, "", "", 2, "loopback"},
		{[]string{"-serve", "-ops", ":6060"}, "", "", 2, "loopback"},
		{[]string{"-serve", "-listen", "127.0.0.1:none", "-ops", "127.0.0.1:0"}, "", "", 1, "none"},
		{[]string{"-serve", "-listen", "127.0.0.1:0", "-ops", "127.0.0.1:none"}, "", "", 1, "none"},
		{[]string{"-serve"}, tokenVariable, "short", 2, tokenVariable + " is 5 bytes long"},
		{[]string{"-serve"}, databaseVariable, "mysql://root:password@here", 2, databaseVariable + ` is of scheme "mysql"`},
	} {
		t.Run(strings.Join(c.args, " ")+c.name, func(t *testing.T) {
			if c.name != "" {
				t.Setenv(c.name, c.as)
			}
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), c.args, short(), nil, &stdout, &stderr); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if !strings.Contains(stderr.String(), c.says) || stdout.Len() != 0 || strings.Contains(stderr.String(), "password") {
				t.Errorf("says %q and prints %q, want %q and nothing", stderr.String(), stdout.String(), c.says)
			}
		})
	}
}

func TestWork(t *testing.T) {
	if n := workOf(0); n != 0 {
		t.Errorf("%d rounds of no work", n)
	}
	a, b := workOf(time.Microsecond), workOf(100*time.Millisecond)
	if a < 1 || b <= a {
		t.Errorf("%d rounds in 1 µs, %d in 100 ms", a, b)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	work(1 << 60).do(ctx) // would take years
}
