package main

// The program works, says so in its metrics, and stands still from a moment on.

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestWorkAndFaultsAreExported(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "127.0.0.1:0", time.Second, in) }()
	said := make([]byte, 100)
	n, err := out.Read(said)
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(strings.TrimPrefix(string(said[:n]), "metrics: "))
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get(url) //nolint:noctx // of this test
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		missing := ""
		for _, line := range []string{
			`stopbank_dispatch_partitions_held{dispatcher="orders"} 2`,
			`stopbank_dispatch_committed_offset{dispatcher="orders",partition="orders-0"} 1`,
			`stopbank_dispatch_records_total{dispatcher="orders",partition="orders-1",result="succeeded"} 1`,
			`stopbank_lease_decisions_total{ledger="orders",operation="succeed",result="no_backlog"} 2`,
			`stopbank_dispatch_records_total{dispatcher="orders",partition="orders-late",result="succeeded"} 0`, // and is stalled in 20 s
		} {
			if !strings.Contains(string(text), "\n"+line+"\n") {
				missing = line
			}
		}
		if missing == "" {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("no %s in\n%s", missing, text)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
