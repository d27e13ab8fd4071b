// SPDX-License-Identifier: Apache-2.0

// Many compartments with long names: what is sent stays small, and says the worst first.

package console

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// crowd is a console with 200 compartments, 73 of which reject, and with a warden whose history is full of numbers of all digits.
// Names have as many letters, at random: nothing compresses them.
func crowd(t *testing.T, letters int) *Console {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var compartments []bulkhead.CompartmentConfig
	for i := range 200 {
		name := fmt.Sprintf("%d \u202e<b>\xff", i)
		for len(name) < letters {
			name += string(rune('a' + random.IntN(26)))
		}
		compartments = append(compartments, bulkhead.CompartmentConfig{Name: name, Max: 1})
	}
	set := must(bulkhead.New(bulkhead.Config{Total: 200, Compartments: compartments}))(t)
	number := func() monitor.Reading { return monitor.Reading{Value: random.Float64(), OK: true} }
	long := func() time.Duration { return time.Duration(random.Int64N(int64(time.Second))) }
	s := &script{sample: func() monitor.Sample {
		return monitor.Sample{
			At: time.Now(), Gap: long(), Utilization: number(), Runnable: number(), Throttled: number(),
			Lag:     monitor.Lag{P50: long(), P90: long(), P99: long(), Count: 1000},
			Service: monitor.Service{P50: long(), P90: long(), Count: 7, Throughput: random.Float64(), Concurrency: random.Float64()},
		}
	}}
	w := must(warden.New(warden.Config{Sampler: s, Controller: must(control.New(control.Config{}))(t)}))(t)
	c := mustNew(t, Config{Warden: w, Set: set})
	for i, x := range compartments {
		permit := acquire(t, set, x.Name)
		if i < 73 {
			_, _, _ = set.Compartment(x.Name).Acquire(t.Context()) // rejected
		}
		permit.Release(nil)
	}
	for i := range 700 {
		time.Sleep(100 * time.Millisecond)
		use(t, w)
		if i%100 == 0 {
			c.state(new(cursor)) // somebody looks
		}
	}
	for _, x := range compartments[:73] {
		permit := acquire(t, set, x.Name)
		_, _, _ = set.Compartment(x.Name).Acquire(t.Context())
		permit.Release(nil)
	}
	return c
}

// asBrowser returns how many bytes a browser is sent, and what they say.
func asBrowser(t *testing.T, c *Console, path string) (sent int, text string) {
	t.Helper()
	w := ask(c, path, "Accept-Encoding", "gzip, deflate, br")
	if w.Code != 200 || w.Header().Get("Content-Encoding") != "gzip" || w.Header().Get("Vary") != "Accept-Encoding" {
		t.Fatalf("%s: %d, %v", path, w.Code, w.Header())
	}
	sent = w.Body.Len()
	return sent, string(must(io.ReadAll(must(gzip.NewReader(w.Body))(t)))(t))
}

// TestCrowdIsSmall: with 200 compartments a poll has less than 50 kB, with the whole history of the warden if the names are usual
// ones, and without it if nothing compresses them.
func TestCrowdIsSmall(t *testing.T) {
	for _, of := range []struct {
		letters int
		path    string
		history int
	}{{30, "state.json", 600}, {30, "state.json?history=0", 0}, {190, "state.json?history=0", 0}} {
		synctest.Test(t, func(t *testing.T) {
			c := crowd(t, of.letters)
			sent, text := asBrowser(t, c, of.path)
			t.Logf("names of %d letters, %s: %d bytes are sent for %d", of.letters, of.path, sent, len(text))
			if sent >= 50_000 {
				t.Errorf("names of %d letters, %s: %d bytes", of.letters, of.path, sent)
			}
			s := decode(t, text)
			if n := len(at(t, s, "history").([]any)); n != of.history {
				t.Errorf("%s: %d readings, want %d", of.path, n, of.history)
			}
			if n := len(at(t, s, "pools").([]any)); (n > 0) != (of.history > 0) {
				t.Errorf("%s: %d pool points", of.path, n)
			}
			for _, p := range at(t, s, "pools").([]any) {
				if pools := at(t, p, "pools").(map[string]any); len(pools) > 0 {
					t.Fatalf("%d compartments without a chart have a history", len(pools))
				}
			}
			if !utf8.ValidString(text) || strings.ContainsAny(text, "<>") {
				t.Error("names are not escaped")
			}
			// The ten worst, what they stand for, and those without trouble.
			verdicts := at(t, s, "verdicts").([]any)
			others := 73 - mostVerdicts
			if at(t, s, "warden", "level") != levelOK {
				others++
			}
			more, text := at(t, verdicts, 10), fmt.Sprintf("%d more to watch.", others)
			if at(t, more, "more") != float64(others) || at(t, more, "text") != text {
				t.Errorf("the others: %v", more)
			}
			rejecting := 0
			for _, x := range at(t, s, "set", "compartments").([]any) {
				if at(t, x, "level") == "watch" && strings.HasPrefix(at(t, x, "text").(string), "Rejected ") {
					rejecting++
				}
			}
			if rejecting != 73 {
				t.Errorf("%d compartments say that they reject", rejecting)
			}
		})
	}
}

// TestEncoding: who does not ask for gzip does not get it.
func TestEncoding(t *testing.T) {
	c := mustNew(t, Config{Warden: mustWarden(t, new(script))})
	for asked, zipped := range map[string]bool{
		"": false, "identity": false, "br": false, "gzip": true, "GZIP": true, "br, gzip;q=0.5": true, " gzip ;q=1.0": true, "gzip;q=0": false,
		"gzip;q=x": false, "x-gzip": false, ",,;": false,
	} {
		for _, path := range []string{"state.json", "dead-letters.json", "rejections.json?find=x"} {
			w := ask(c, path, "Accept-Encoding", asked)
			if got := w.Header().Get("Content-Encoding"); w.Code != 200 || (got == "gzip") != zipped || json.Valid(w.Body.Bytes()) == zipped {
				t.Errorf("%s for %q: %d, %q", path, asked, w.Code, got)
			}
		}
	}
}

// TestBadHistory: what is neither 0 nor missing gets an answer that says so, and takes no stream.
func TestBadHistory(t *testing.T) {
	url := mount(t, mustNew(t, Config{Warden: mustWarden(t, new(script))}))
	for _, path := range []string{"state.json", "events"} {
		for _, value := range []string{"1", "x", "-0", "%00"} {
			answer, body := get(t, url+path+"?history="+value)
			if answer.StatusCode != 400 || at(t, decode(t, body), "code") != "bad_history" {
				t.Errorf("%s, %s: %s, %s", path, value, answer.Status, body)
			}
		}
	}
}

// TestShortened: ten of those with trouble, and ten of those without, and how many are left.
func TestShortened(t *testing.T) {
	for _, of := range []struct {
		act, watch, ok int
		level, text    string
	}{
		{10, 0, 0, "", ""},
		{0, 11, 0, levelWatch, "1 more to watch."},
		{0, 0, 12, levelOK, "2 more, nothing to do."},
		{12, 5, 0, levelAct, "7 more, 2 of them to act on."},
		{12, 0, 0, levelAct, "2 more, all to act on."},
		{5, 66, 3, levelWatch, "61 more to watch."},
	} {
		ok := pool{Recent: &recent{Seconds: 10}}
		act, watch := pool{Recent: &recent{Seconds: 10, Rejected: 1}}, ok
		watch.Queued = 1
		s := &state{Limiters: slices.Concat(
			slices.Repeat([]pool{ok}, of.ok), slices.Repeat([]pool{act}, of.act), slices.Repeat([]pool{watch}, of.watch),
		)}
		s.addVerdicts()
		more := slices.DeleteFunc(s.Verdicts, func(v verdict) bool { return v.More == 0 })
		if of.text == "" && len(more) == 0 {
			continue
		}
		if len(more) != 1 || more[0].Level != of.level || more[0].Text != of.text {
			t.Errorf("%+v: %+v", of, more)
		}
	}
}

// TestWorstCompartmentsFirst: the critical before the others, and of those the one that rejects the most.
func TestWorstCompartmentsFirst(t *testing.T) {
	s := &state{Set: &setState{Compartments: []compartment{
		{Name: "c", Healthy: true, RejectionRate: 0.5}, {Name: "d", Healthy: true, RejectionRate: 0.25, Criticality: -64},
		{Name: "b", Healthy: true, RejectionRate: 0.9}, {Name: "a", Healthy: true, RejectionRate: 0.01, Criticality: 127},
		{Name: "act", Unhealthy: "ill"},
	}}}
	s.addVerdicts()
	var order []string
	for _, v := range s.Verdicts {
		order = append(order, v.Subject)
	}
	if got := strings.Join(order, " "); got != "act a b c d" {
		t.Errorf("the order is %s", got)
	}
}

// TestOnset: what the controller called an overload, just before it knew that others take the processors, is called by its name
// afterwards, in the list and in the sentence; an older one was one.
func TestOnset(t *testing.T) {
	var p history
	queueing := decision.NewReason("queueing", "lag_p90_seconds", 0.02, decision.Tighten)
	starved := decision.NewReason("starved", "processor_share", 0.21, decision.Hold).Because("others")
	calm := decision.NewReason("calm", "utilization", 0.01, decision.Relax)
	begin := time.Unix(1000, 0)
	target := 100
	add := func(at time.Duration, reasons ...decision.Reason) {
		target--
		d := decision.ControlDecision{Seq: p.lastSeq + 1, TargetConcurrency: target, Reasons: reasons}
		p.add(warden.Reading{Decision: d, Sample: monitor.Sample{At: begin.Add(at)}})
	}
	add(0, queueing)
	add(10*time.Second, calm)
	add(16*time.Second, queueing)
	sent := p.phases[2].Reasons // a page may be writing it
	add(18*time.Second, queueing, starved)
	add(19*time.Second, starved)
	const ours, theirs = "CPU overload, p90 scheduler delay 20 ms", "work waits for what is left of the processors, p90 scheduler delay 20 ms"
	for i, want := range map[int]string{0: ours, 2: theirs, 3: theirs} {
		if got := p.phases[i].Reasons[0].Text; got != want {
			t.Errorf("phase %d: %s, want %s", i, got, want)
		}
	}
	if sent[0].Text != ours {
		t.Error("what was sent has changed")
	}
	if p.lowered.why.Text != theirs {
		t.Errorf("lowered because of %q", p.lowered.why.Text)
	}
}
