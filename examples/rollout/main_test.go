package main

// The program is told to end: readiness fails, every request is answered, and there is no error.

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// get sends a request on a new connection, like a new client.
func get(t *testing.T, url string) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func TestGracefulShutdown(t *testing.T) {
	ctx, terminate := context.WithCancel(t.Context()) // as SIGTERM does
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, in, "127.0.0.1:0", 2*time.Second, 2) }()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the program printed nothing")
	}
	url := strings.TrimPrefix(lines.Text(), "serving on ")
	if status, err := get(t, url+"/readyz"); status != http.StatusOK {
		t.Fatalf("ready: %d, %v", status, err)
	}

	// Ten parallel requests: two run, the others queue, some of them until after the listeners have closed.
	const clients = 10
	statuses := make(chan int, 2*clients)
	var all sync.WaitGroup
	send := func() {
		all.Go(func() {
			status, err := get(t, url+"/work")
			if err != nil {
				t.Error(err)
			}
			statuses <- status
		})
	}
	for range clients {
		send()
	}
	terminate()
	for { // the probe fails on a new connection: the listeners are still open
		status, err := get(t, url+"/readyz")
		if err != nil {
			t.Fatalf("the listeners closed before readiness failed: %v", err)
		}
		if status == http.StatusServiceUnavailable {
			break
		}
	}
	for range clients {
		send()
	}
	if status, err := get(t, url+"/livez"); status != http.StatusOK {
		t.Errorf("liveness while draining: %d, %v", status, err)
	}
	all.Wait()
	close(statuses)
	for status := range statuses {
		if status != http.StatusOK {
			t.Errorf("status %d, want 200", status)
		}
	}
	if !lines.Scan() || lines.Text() != "shut down: every request was answered" {
		t.Errorf("last line %q", lines.Text())
	}
	if err := <-ended; err != nil {
		t.Errorf("the end: %v", err)
	}
	if _, err := get(t, url+"/readyz"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the end: %v, want a rejected connection", err)
	}
}

// docs/kubernetes/rollout.yaml gives a process enough time to shut down, and its probes use paths that exist.
func TestTheManifestFits(t *testing.T) {
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	manifest, program := read("../../docs/kubernetes/rollout.yaml"), read("main.go")
	number := func(text, pattern string) int {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s", pattern)
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	grace, spread := number(manifest, `terminationGracePeriodSeconds: (\d+)`), number(manifest, `"-spread", "(\d+)s"`)
	if shutdown := number(program, `WithTimeout\(context\.Background\(\), (\d+)\*time\.Second\)`); grace <= spread+shutdown {
		t.Errorf("%d s for a shutdown that takes %d s and %d s", grace, spread, shutdown)
	}
	const readiness = `readinessProbe:\n.*\n +periodSeconds: (\d+)\n +timeoutSeconds: (\d+)\n +failureThreshold: (\d+)`
	m := regexp.MustCompile(readiness).FindString(manifest)
	period, failures := number(m, `periodSeconds: (\d+)`), number(m, `failureThreshold: (\d+)`)
	if spread <= period*(failures+1) {
		t.Errorf("it serves for %d s after it stops being ready; %d probes, every %d s, must fail before that is known", spread, failures,
			period)
	}
	for _, path := range regexp.MustCompile(`httpGet: \{path: (\S+),`).FindAllStringSubmatch(manifest, -1) {
		if !strings.Contains(program, `"GET `+path[1]+`"`) {
			t.Errorf("%s is probed and does not exist", path[1])
		}
	}
}
