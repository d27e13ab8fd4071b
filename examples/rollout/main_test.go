package main

// A real process, a real SIGTERM: readiness falls, everybody who came is served, and it exits with 0. And the manifests of the page fit it.

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv("ROLLOUT_CHILD") != "" { // the program itself
		os.Args = append([]string{"rollout"}, strings.Fields(os.Getenv("ROLLOUT_CHILD"))...)
		main()
		return
	}
	os.Exit(m.Run())
}

// get asks on a connection of its own, as a client that has not been here before.
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

func TestItLeavesInOrder(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(ctx, program)
	child.Env = append(os.Environ(), "ROLLOUT_CHILD=-addr 127.0.0.1:0 -spread 2s -places 2")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("it says nothing")
	}
	url := strings.TrimPrefix(lines.Text(), "serving on ")
	if status, err := get(t, url+"/readyz"); status != http.StatusOK {
		t.Fatalf("ready: %d, %v", status, err)
	}

	// Ten at once, of which two run and the others wait: some of them until after the listeners have closed.
	const clients = 10
	statuses := make(chan int, 2*clients)
	var all sync.WaitGroup
	ask := func() {
		all.Go(func() {
			status, err := get(t, url+"/work")
			if err != nil {
				t.Error(err)
			}
			statuses <- status
		})
	}
	for range clients {
		ask()
	}
	if err := child.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for { // the probe falls, over a connection that is new: the listeners are open
		status, err := get(t, url+"/readyz")
		if err != nil {
			t.Fatalf("the listeners have closed before readiness fell: %v", err)
		}
		if status == http.StatusServiceUnavailable {
			break
		}
	}
	for range clients {
		ask()
	}
	if status, err := get(t, url+"/livez"); status != http.StatusOK {
		t.Errorf("alive while it leaves: %d, %v", status, err)
	}
	all.Wait()
	close(statuses)
	for status := range statuses {
		if status != http.StatusOK {
			t.Errorf("answered %d", status)
		}
	}
	if !lines.Scan() || lines.Text() != "nobody was left behind" {
		t.Errorf("in the end it says %q", lines.Text())
	}
	if err := child.Wait(); err != nil {
		t.Errorf("exit: %v", err)
	}
	if _, err := get(t, url+"/readyz"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("afterwards: %v", err)
	}
}
