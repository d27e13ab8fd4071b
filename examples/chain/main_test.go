package main

// The chain made small: what must hold of every request, however busy the machine is. What share is answered is the verdict's business.

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func short() scenario {
	return scenario{
		connections: 4, hold: 10 * time.Millisecond, load: 1.5, patience: 250 * time.Millisecond,
		warm: 200 * time.Millisecond, lasts: 700 * time.Millisecond, seed: 7,
	}
}

// TestCarried: every request has one outcome; at each hop it has the priority that the gateway gave it, whatever its user says, and
// less time than at the hop before; and payments works on none that was not passed on to it.
func TestCarried(t *testing.T) {
	sc := short()
	book, err := sc.phase(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	whole, hops := 0, []string{"gateway", "orders", "payments"}
	for id, p := range book.pages {
		if len(p.outcomes) != 1 {
			t.Errorf("request %d has the outcomes %v", id, p.outcomes)
			continue
		}
		left, deepest := sc.patience, -1
		for _, v := range p.visits {
			hop := slices.Index(hops, v.service)
			if v.priority != p.priority() {
				t.Errorf("request %d, %v, has priority %v at %s", id, p.route, v.priority, v.service)
			}
			if v.left < 0 || v.left > left {
				t.Errorf("request %d has %v left at %s, and had %v before", id, v.left, v.service, left)
			}
			if hop > deepest+1 {
				t.Errorf("request %d came to %s from nowhere: %v", id, v.service, p.visits)
			}
			left, deepest = v.left, max(deepest, hop)
		}
		if p.paid > p.arrivals["payments"] || p.arrivals["gateway"] > 1 {
			t.Errorf("request %d: %d payments, arrivals %v", id, p.paid, p.arrivals)
		}
		if p.answered() {
			whole++
			if deepest != 2 || p.paid == 0 {
				t.Errorf("request %d was answered without payments: %v", id, p.visits)
			}
		}
	}
	if whole == 0 {
		t.Errorf("none of %d requests was answered", len(book.pages))
	}
}

// TestNothingCarried: without its caller's help payments knows of no deadline and takes all for equal, and the priority stays with the gateway.
func TestNothingCarried(t *testing.T) {
	book, err := short().phase(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for id, p := range book.pages {
		if len(p.outcomes) != 1 {
			t.Errorf("request %d has the outcomes %v", id, p.outcomes)
		}
		for _, v := range p.visits {
			seen[v.service]++
			known := v.left >= 0
			if outside := v.service == "gateway"; known != outside || (v.priority == p.priority()) != (outside || p.route == receipts) {
				t.Errorf("request %d, %v: %+v", id, p.route, v)
			}
		}
	}
	if seen["gateway"] == 0 || seen["orders"] == 0 || seen["payments"] == 0 {
		t.Errorf("visits: %v", seen)
	}
}

// TestReport: the verdict is what the lines above it say, on numbers that are known.
func TestReport(t *testing.T) {
	sc := scenario{connections: 1, hold: time.Second, patience: time.Second, lasts: 10 * time.Second}
	rejected := outcome{503, "pressure_high", 7}
	answered := func(paid int) page {
		return page{
			arrival: arrival{route: checkout}, outcomes: []outcome{{status: 200}}, paid: paid,
			arrivals: map[string]int{"gateway": 1, "orders": 1, "payments": 1}, visits: []visit{{service: "gateway"}, {service: "orders"}, {service: "payments"}},
		}
	}
	told := page{
		arrival: arrival{route: reports}, outcomes: []outcome{rejected}, arrivals: map[string]int{"gateway": 1, "orders": 1},
		visits:     []visit{{"gateway", time.Second, warden.Background}},
		rejections: []rejection{{"orders", outcome{reason: "pressure_high", decision: 7}, "rejected"}, {"gateway", rejected, "passes on"}},
	}
	good := &journal{pages: append(slices.Repeat([]page{answered(1)}, 10), told)}
	bad := &journal{pages: append(slices.Repeat([]page{answered(2)}, 10), page{arrival: arrival{route: checkout}, outcomes: []outcome{{}}})}
	for _, c := range []struct {
		name          string
		before, after *journal
		holds         bool
		fails         int
	}{
		{"as it should be", bad, good, true, 0},
		{"nothing lost before", good, good, false, 1},
		{"lost, wasted and not explained after", bad, bad, false, 3},
	} {
		var out bytes.Buffer
		holds := sc.report(&out, c.before, c.after)
		if holds != c.holds || strings.Count(out.String(), "FAIL ") != c.fails+min(c.fails, 1) || strings.Contains(out.String(), "VERDICT: holds") != c.holds {
			t.Errorf("%s: %t\n%s", c.name, holds, &out)
		}
	}
	if !told.explained() {
		t.Error("a rejection that was passed on is not explained")
	}
	told.rejections[0].decision = 8
	if told.explained() {
		t.Error("explained by another decision")
	}
}

// TestInterrupted: it ends at once, in order.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if holds, err := run(ctx, demo(), &out); holds || !errors.Is(err, context.Canceled) {
		t.Errorf("%t, %v", holds, err)
	}
}
