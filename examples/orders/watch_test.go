package main

// A replica that exports its metrics, and its faults.

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// begin starts this program as another process, and returns what follows a prefix in its output, and how to end it.
func begin(t *testing.T, env, prefix string, args ...string) (said string, lines *bufio.Scanner) {
	t.Helper()
	cmd, err := self(args...)
	if err != nil {
		t.Fatal(err)
	}
	if env != "" {
		cmd.Env = append(cmd.Env, childEnv+"="+env)
	}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_, _ = io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	})
	for lines = bufio.NewScanner(stdout); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), prefix); found {
			return rest, lines
		}
	}
	t.Fatalf("%v did not say %q", args, prefix)
	return "", nil
}

// A fault shows in the metrics of its partition. The fault game (make faults) plays them all.
func TestFaultsShowInMetrics(t *testing.T) {
	for fault, want := range map[string]string{
		"":           `stopbank_lease_decisions_total{ledger="orders",operation="succeed",result="`,
		handlersHang: `stopbank_dispatch_stalled{dispatcher="orders",partition="PARTITION",reason="working"} 1`,
		leasesTaken:  `stopbank_dispatch_domains{dispatcher="orders",partition="PARTITION",state="fenced"} `,
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			shared := []string{"-run", "test", "-customers", "12", "-partitions", "4"}
			servers, _ := begin(t, "", "servers: ", append(shared, "-rate", "20", "-dir", t.TempDir())...)
			args := append(slices.Clone(shared), "-replica", "1", "-ops", "127.0.0.1:0")
			if fault != "" {
				args = append(args, "-fault", fault, "-fault-after", "1s")
			}
			url, lines := begin(t, servers, "metrics: ", args...)
			for ill := ""; fault != "" && ill == "" && lines.Scan(); {
				if rest, found := strings.CutPrefix(lines.Text(), illLine); found {
					ill, want = rest, strings.ReplaceAll(want, "PARTITION", rest)
				}
			}
			var text string
			for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
				resp, err := http.Get(url) //nolint:noctx // of this test
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				text = string(body)
				if at := strings.Index(text, "\n"+want); at >= 0 && !strings.HasPrefix(text[at+1+len(want):], "0\n") {
					return
				}
			}
			t.Errorf("no %s\n%s", want, text)
		})
	}
}

func TestFaultsThatAreNotKnown(t *testing.T) {
	if _, err := newFaults("handlers=hang,orders=lost", 0); err == nil || !strings.Contains(err.Error(), `-fault is "orders=lost"; allowed: `) {
		t.Error(err)
	}
	if f, err := newFaults("", 0); err != nil || f.on("") || f.on(handlersHang) {
		t.Error(err)
	}
	if f, err := newFaults(handlersHang, time.Hour); err != nil || f.on(handlersHang) {
		t.Error("a fault is there before its time", err)
	}
}
