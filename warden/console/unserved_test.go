// SPDX-License-Identifier: Apache-2.0

// Those who leave without an answer or get an error, and handlers that hang: with real limiters, which clients wait for, in virtual
// time.

package console

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

// service is a warden with two slots, whose clients have two seconds.
type service struct {
	t *testing.T
	*warden.Warden
}

// client asks once, for a function that takes so long; 0: until the client leaves. It leaves after two seconds.
func (s service) client(name string, p decision.Priority, takes time.Duration) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer time.AfterFunc(2*time.Second, cancel).Stop()
	_, permit, err := s.Acquire(ctx, warden.Task{Name: name, ID: "id of " + name, Priority: p})
	if err != nil {
		return
	}
	if takes == 0 {
		<-ctx.Done()
		permit.Abandon()
		return
	}
	time.Sleep(takes)
	permit.Release()
}

// works, leaves and fails are clients of a function that answers, that does not, and that fails at once.
func (s service) works(p decision.Priority) func() {
	return func() { s.client("work", p, time.Millisecond) }
}

func (s service) leaves(p decision.Priority) func() { return func() { s.client("slow", p, 0) } }

func (s service) fails(p decision.Priority) func() {
	return func() {
		if _, permit, err := s.Acquire(s.t.Context(), warden.Task{Name: "fails", Priority: p}); err == nil {
			permit.Failed().Release()
		}
	}
}

// hold takes a slot for ever.
func (s service) hold(name string) {
	s.t.Helper()
	must(s.TryAcquire(warden.Task{Name: name, ID: "id of " + name}))(s.t)
}

// TestUnserved: what the page says while a service does this for 30 seconds, with a warden whose limit is 2.
func TestUnserved(t *testing.T) {
	every := func(gap time.Duration, do func()) func(context.Context) {
		return func(ctx context.Context) {
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(gap):
					go do()
				}
			}
		}
	}
	// mix does the rare thing once in so many times.
	mix := func(gap time.Duration, once int64, rare, usual func()) func(context.Context) {
		var n atomic.Int64
		return every(gap, func() {
			if n.Add(1)%once == 0 {
				rare()
				return
			}
			usual()
		})
	}
	// The age of the oldest is a look at the limiter less: nobody reads the clock for each start.
	const stuck = "All 2 slots are taken, and nothing has ended for 10 s, the oldest for "
	const nasty = "GET /\u202e<b>\xff\n"
	for name, of := range map[string]struct {
		service func(service) func(context.Context)
		level   string
		text    []string // what the sentence has
		not     []string
	}{
		"all hang": {func(s service) func(context.Context) {
			s.hold("GET /admin/counts")
			s.hold("GET /admin/counts")
			return every(100*time.Millisecond, func() { s.client("POST /checkout", decision.Critical, time.Millisecond) })
		}, levelAct, []string{
			stuck, " s: GET /admin/counts; ", " (100 %) left without an answer in the last 10 s, ",
			"critical among them", " wait in the queue."}, []string{"Nothing rejected"}},
		"all hang, and only the unimportant asks": {func(s service) func(context.Context) {
			s.hold("hangs")
			s.hold("hangs")
			return every(time.Second, func() { s.client("tail", decision.Background, 0) })
		}, levelAct, []string{stuck, " s: hangs; "}, []string{"critical"}},
		"hostile names": {func(s service) func(context.Context) {
			s.hold(nasty + strings.Repeat("W", 1<<16))
			s.hold("")
			return every(time.Second, func() { s.client("", decision.Normal, 0) })
		}, levelAct, []string{`: GET /\u202e<b>\xff\nWWW`, `…; `}, []string{"\u202e", "\n", strings.Repeat("W", 200)}},
		"idle streams": {func(s service) func(context.Context) {
			s.hold("GET /events")
			s.hold("GET /events")
			return func(ctx context.Context) { <-ctx.Done() }
		}, levelOK, []string{"Nothing rejected in the last 10 s."}, []string{"taken", "oldest"}},
		"one stream, and work beside it": {func(s service) func(context.Context) {
			s.hold("GET /events")
			return every(100*time.Millisecond, s.works(decision.Normal))
		}, levelOK, []string{"Nothing rejected in the last 10 s."}, []string{"taken", "oldest"}},
		"one hangs, and clients leave": {func(s service) func(context.Context) {
			s.hold("GET /admin/counts")
			return mix(100*time.Millisecond, 20, s.leaves(decision.Normal), s.works(decision.Normal))
		}, levelWatch, []string{"left without an answer in the last 10 s", "; the oldest of 2 tasks runs for ", " s: GET /admin/counts."},
			[]string{"taken", "critical", "All"}},
		"critical ones leave": {func(s service) func(context.Context) {
			return mix(50*time.Millisecond, 40, s.leaves(decision.Critical), s.works(decision.Critical))
		}, levelAct, []string{" %) left without an answer", " critical among them"}, []string{"taken", "oldest"}},
		"critical ones fail": {func(s service) func(context.Context) {
			return mix(50*time.Millisecond, 40, s.fails(decision.Critical), s.works(decision.Critical))
		}, levelAct, []string{" %) failed in the last 10 s, ", " critical among them"}, []string{"left"}},
		"one in ten of the others fails": {func(s service) func(context.Context) {
			return mix(50*time.Millisecond, 10, s.fails(decision.High), s.works(decision.Critical))
		}, levelWatch, []string{"(10 %) failed in the last 10 s."}, []string{"left", "critical"}},
		"a few leave": {func(s service) func(context.Context) {
			return mix(10*time.Millisecond, 250, s.leaves(decision.Critical), s.works(decision.Critical))
		}, levelOK, []string{"(0.4 %) left without an answer", "critical among them"}, []string{"taken", "oldest"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := service{t, must(warden.New(warden.Config{Sampler: new(script), Controller: new(script)}))(t)}
				ctx, cancel := context.WithCancel(t.Context())
				go func() { _ = s.Run(ctx) }()
				time.Sleep(time.Second) // then its limit is 2
				go of.service(s)(ctx)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				c := mustNew(t, Config{Warden: s.Warden})
				got := c.state(new(cursor)).Verdicts[0]
				if got.Level != of.level {
					t.Errorf("%s, want %s: %s", got.Level, of.level, got.Text)
				}
				for _, part := range of.text {
					if !strings.Contains(got.Text, part) {
						t.Errorf("%s\nlacks %q", got.Text, part)
					}
				}
				for _, part := range of.not {
					if strings.Contains(got.Text, part) {
						t.Errorf("%s\nhas %q", got.Text, part)
					}
				}
				cancel()
				time.Sleep(5 * time.Second) // the last clients leave
			})
		})
	}
}

// TestStuckCompartment: a compartment is full of a call that does not return. That is harm if its work is more than background and
// somebody needs a slot, and nothing at all if nobody does.
func TestStuckCompartment(t *testing.T) {
	const stuck = "All slots are in use, and no call has ended for 19 s, the oldest for 20 s"
	for _, of := range []struct {
		name        string
		criticality decision.Priority
		asks        bool
		level, text string
	}{
		{"nobody asks", decision.Normal, false, levelOK, ""},
		{"background", decision.Background, true, levelWatch, stuck + "; 19 of 21 calls left without an answer in the last minute (90 %); 1 waits in the queue."},
		{"normal", decision.Normal, true, levelAct, stuck},
		{"critical", decision.Critical, true, levelAct, stuck},
	} {
		t.Run(of.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := mustSet(t, bulkhead.CompartmentConfig{
					Name: "a", Guaranteed: 1, Max: 1, MaxQueue: 9, MaxWait: time.Minute, Criticality: of.criticality,
				})
				c := mustNew(t, Config{Set: set})
				c.state(new(cursor))
				permit := acquire(t, set, "a")
				for range 20 {
					c.state(new(cursor))
					if of.asks {
						ctx, cancel := context.WithCancel(t.Context())
						time.AfterFunc(1500*time.Millisecond, cancel)
						go func() { _, _, _ = set.Compartment("a").Acquire(ctx) }()
					}
					time.Sleep(time.Second)
				}
				synctest.Wait()
				got := c.state(new(cursor)).Set.Compartments[0]
				if got.Level != of.level || !strings.HasPrefix(got.Text, of.text) || (of.text == "") != (got.Text == "") {
					t.Errorf("%s: %q, want %s: %q", got.Level, got.Text, of.level, of.text)
				}
				time.Sleep(time.Second) // the last caller leaves
				permit.Release(nil)
			})
		})
	}
}
