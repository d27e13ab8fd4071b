package main

// The chain on a small scale: properties of every request that hold on a busy machine, too.

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func short() scenario {
	return scenario{
		connections: 4, hold: 10 * time.Millisecond, load: 1.5, patience: 250 * time.Millisecond,
		warm: 200 * time.Millisecond, lasts: 700 * time.Millisecond, seed: 7,
	}
}

// Every request has one outcome. At each hop it has the priority set by the gateway and less time left than before. Payments
// works only on requests that were forwarded to it.
func TestPropagation(t *testing.T) {
	sc := short()
	j, err := sc.phase(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	whole, hops := 0, []string{"gateway", "orders", "payments"}
	for id, tr := range j.traces {
		if len(tr.outcomes) != 1 {
			t.Errorf("request %d has the outcomes %v", id, tr.outcomes)
			continue
		}
		left, deepest := sc.patience, -1
		for _, v := range tr.spans {
			hop := slices.Index(hops, v.service)
			if v.priority != tr.priority() {
				t.Errorf("request %d, %v, has priority %v at %s", id, tr.route, v.priority, v.service)
			}
			if v.left < 0 || v.left > left {
				t.Errorf("request %d has %v left at %s, and had %v before", id, v.left, v.service, left)
			}
			if hop > deepest+1 {
				t.Errorf("request %d skipped a hop before %s: %v", id, v.service, tr.spans)
			}
			left, deepest = v.left, max(deepest, hop)
		}
		if tr.paid > tr.arrivals["payments"] || tr.arrivals["gateway"] > 1 {
			t.Errorf("request %d: %d payments, arrivals %v", id, tr.paid, tr.arrivals)
		}
		if tr.answered() {
			whole++
			if deepest != 2 || tr.paid == 0 {
				t.Errorf("request %d was answered without payments: %v", id, tr.spans)
			}
		}
	}
	if whole == 0 {
		t.Errorf("none of %d requests was answered", len(j.traces))
	}
}

// Without propagation, only the gateway has the deadline and the priority of a request.
func TestNoPropagation(t *testing.T) {
	j, err := short().phase(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for id, tr := range j.traces {
		if len(tr.outcomes) != 1 {
			t.Errorf("request %d has the outcomes %v", id, tr.outcomes)
		}
		for _, v := range tr.spans {
			seen[v.service]++
			known := v.left >= 0
			if outside := v.service == "gateway"; known != outside || (v.priority == tr.priority()) != (outside || tr.route == receipts) {
				t.Errorf("request %d, %v: %+v", id, tr.route, v)
			}
		}
	}
	if seen["gateway"] == 0 || seen["orders"] == 0 || seen["payments"] == 0 {
		t.Errorf("spans: %v", seen)
	}
}

// The verdict agrees with its claims.
func TestReport(t *testing.T) {
	sc := scenario{connections: 1, hold: time.Second, patience: time.Second, lasts: 10 * time.Second}
	rejected := outcome{503, "pressure_high", 7}
	answered := func(paid int) trace {
		return trace{
			arrival: arrival{route: checkout}, outcomes: []outcome{{status: 200}}, paid: paid,
			arrivals: map[string]int{"gateway": 1, "orders": 1, "payments": 1},
			spans:    []span{{service: "gateway"}, {service: "orders"}, {service: "payments"}},
		}
	}
	forwarded := trace{
		arrival: arrival{route: reports}, outcomes: []outcome{rejected}, arrivals: map[string]int{"gateway": 1, "orders": 1},
		spans: []span{{"gateway", time.Second, decision.Background}},
		rejections: []rejection{{"orders", outcome{reason: "pressure_high", decision: 7}, "rejected"},
			{"gateway", rejected, "forwards"}},
	}
	good := &journal{traces: append(slices.Repeat([]trace{answered(1)}, 10), forwarded)}
	bad := &journal{traces: append(slices.Repeat([]trace{answered(2)}, 10),
		trace{arrival: arrival{route: checkout}, outcomes: []outcome{{}}})}
	for _, c := range []struct {
		name          string
		before, after *journal
		holds         bool
		fails         int
	}{
		{"all targets reached", bad, good, true, 0},
		{"nothing lost before", good, good, false, 1},
		{"lost, wasted and not explained", bad, bad, false, 3},
	} {
		var out bytes.Buffer
		holds := sc.report(&out, c.before, c.after)
		if holds != c.holds || strings.Count(out.String(), "FAIL ") != c.fails+min(c.fails, 1) ||
			strings.Contains(out.String(), "VERDICT: holds") != c.holds {
			t.Errorf("%s: %t\n%s", c.name, holds, &out)
		}
	}
	if !forwarded.explained() {
		t.Error("a forwarded rejection is not explained")
	}
	forwarded.rejections[0].decision = 8
	if forwarded.explained() {
		t.Error("explained by another decision")
	}
}

// An interrupted run shuts down and returns the error of its context.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if holds, err := run(ctx, demo(), &out); holds || !errors.Is(err, context.Canceled) {
		t.Errorf("%t, %v", holds, err)
	}
}
