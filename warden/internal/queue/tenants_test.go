// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/internal/fair"
)

const burst = 10 * time.Millisecond

// shop is a queue with its slots, as an owner has it, and what the sentences of Q25 to Q27 say of it, in plain lists.
type shop struct {
	rt      *rapid.T
	q       *Queue[int]
	table   fair.Table[struct{}]
	slots   int
	now     time.Duration
	tenants []*tenantModel // the first: of those who have none
	waiting []*taskModel   // in order of arrival
	running []*taskModel
	left    []*Waiter[int] // since last asked
	turns   int
	virtual float64
}

type tenantModel struct {
	key    string
	weight int
	used   float64
	turn   map[int8]int
	of     *Tenant
}

type taskModel struct {
	w     *Waiter[int]
	of    *tenantModel
	began time.Duration
}

func newShop(rt *rapid.T) *shop {
	s := &shop{rt: rt, slots: rapid.IntRange(1, 6).Draw(rt, "slots")}
	s.q = &Queue[int]{Limit: rapid.SampledFrom([]int{3, 5, 8, 1000}).Draw(rt, "limit"), Left: func(w *Waiter[int], _ Result, _ time.Duration) {
		s.left = append(s.left, w)
		w.Wake()
	}}
	s.table.Most = 100
	for i, weight := range append([]int{1}, rapid.SliceOfN(rapid.SampledFrom([]int{1, 1, 1, 3}), 1, 5).Draw(rt, "weights")...) {
		s.tenants = append(s.tenants, &tenantModel{key: fmt.Sprint(i), weight: weight, turn: map[int8]int{}})
	}
	return s
}

func (s *shop) count(of []*taskModel, t *tenantModel, lane int) (n int) {
	for _, k := range of {
		if k.of == t && (lane == all || int(k.w.Priority) == lane) {
			n++
		}
	}
	return n
}

const all = 1000 // lanes

func (s *shop) active(t *tenantModel) bool {
	return s.count(s.waiting, t, all)+s.count(s.running, t, all) > 0
}

func (s *shop) rule() Rule {
	r := Rule{Burst: burst, Slots: s.slots}
	for _, t := range s.tenants[1:] {
		if s.active(t) {
			r.Weights += t.weight
		}
	}
	if r.Weights > 0 && s.count(s.running, s.tenants[0], all) > 0 {
		r.Weights++
	}
	return r
}

// asOwner tells the queue what its owner does.
func (s *shop) asOwner() Rule {
	s.table.Rest(&s.q.Others, s.count(s.running, s.tenants[0], all))
	return s.rule()
}

func (s *shop) settle(t *tenantModel, was bool) {
	if t != s.tenants[0] {
		t.of.InFlight = s.count(s.running, t, all)
		s.table.Settle(t.of)
		s.q.Served(t.of)
	}
	if !was && s.active(t) {
		t.used = max(t.used, s.virtual)
	}
}

func (s *shop) usedBy(t *tenantModel) float64 {
	if t == s.tenants[0] {
		return s.virtual
	}
	return t.used
}

// compare is the order of tenants: the fewest slots per weight, rounded down, then the least slot time.
func (s *shop) compare(a, b *tenantModel) int {
	load := func(t *tenantModel) int { return s.count(s.running, t, all) / t.weight }
	return cmp.Or(cmp.Compare(load(a), load(b)), cmp.Compare(s.usedBy(a), s.usedBy(b)))
}

// next is who is next in a lane, nil if nobody waits there.
func (s *shop) next(lane int8) (first *tenantModel) {
	for _, t := range s.tenants {
		if s.count(s.waiting, t, int(lane)) > 0 &&
			(first == nil || cmp.Or(s.compare(t, first), cmp.Compare(t.turn[lane], first.turn[lane])) < 0) {
			first = t
		}
	}
	return first
}

func (s *shop) above(t *tenantModel) bool {
	r := s.rule()
	return r.Weights > 0 && s.count(s.running, t, all) >= max(1, s.slots*t.weight/r.Weights)
}

var lanes = []int8{highest, 64, 0, -64}

// should is the task that is to start: of the highest priority, of the tenant who is next, his oldest or in a standing queue his newest.
// Critical tasks of a tenant above his share do not go before those of one who comes before him.
func (s *shop) should() *taskModel {
	for i, lane := range lanes {
		t := s.next(lane)
		if t == nil {
			continue
		}
		if lane == highest && s.above(t) {
			for _, lower := range lanes[i+1:] {
				if o := s.next(lower); o != nil && o != t && s.compare(o, t) < 0 {
					t, lane = o, lower
					break
				}
			}
		}
		return s.of(t, lane, s.stands(lane))
	}
	return nil
}

func (s *shop) stands(lane int8) bool {
	i := slices.IndexFunc(s.waiting, func(k *taskModel) bool { return k.w.Priority == lane })
	return i >= 0 && s.now-s.waiting[i].w.Since > burst
}

// of is the oldest or newest task of a tenant in a lane.
func (s *shop) of(t *tenantModel, lane int8, newest bool) (found *taskModel) {
	for _, k := range s.waiting {
		if k.of == t && k.w.Priority == lane && (found == nil || newest) {
			found = k
		}
	}
	return found
}

// crowd is the number that waits for the tenant in the lane who has most, per weight.
func (s *shop) crowd(lane int8) (most float64) {
	for _, t := range s.tenants {
		most = max(most, float64(s.count(s.waiting, t, int(lane)))/float64(t.weight))
	}
	return most
}

func (s *shop) arrive() {
	t := rapid.SampledFrom(s.tenants).Draw(s.rt, "tenant")
	lane := rapid.SampledFrom(lanes).Draw(s.rt, "priority")
	shed := rapid.SampledFrom([]float64{0, 0, 0, 1}).Draw(s.rt, "shed")
	w := waiter(lane)
	if t != s.tenants[0] {
		if t.of == nil {
			t.of = s.table.Tenant(t.key, t.weight, func(*Tenant) {})
		}
		w.Tenant = t.of
	}
	k, was, before := &taskModel{w: w, of: t}, s.active(t), len(s.waiting)
	mine := float64(s.count(s.waiting, t, int(lane))+1) / float64(t.weight)
	full := before >= s.q.Limit
	crowd, critical, named := s.crowd(lane), s.crowd(highest), s.rule().Weights > 0
	lower := slices.ContainsFunc(s.waiting, func(k *taskModel) bool { return k.w.Priority < lane })
	r := s.asOwner()
	r.Share = shed
	v := s.q.Offer(w, s.now, r, 0)
	left := s.left
	s.left = nil
	for _, x := range left {
		<-x.ready
		i := slices.IndexFunc(s.waiting, func(k *taskModel) bool { return k.w == x })
		gone := s.waiting[i]
		theirs := float64(s.count(s.waiting, gone.of, int(x.Priority))) / float64(gone.of.weight)
		switch {
		case x.Priority < lane:
			if lowest := slices.MinFunc(s.waiting, func(a, b *taskModel) int { return cmp.Compare(a.w.Priority, b.w.Priority) }); shed == 0 &&
				x.Priority != lowest.w.Priority || theirs < s.crowd(x.Priority) {
				s.rt.Errorf("Q27: one of %d leaves, of a tenant with %v, for one of %d", x.Priority, theirs, lane)
			}
		case x.Priority > lane && (lane == highest || x.Priority != highest || !s.above(gone.of)):
			s.rt.Errorf("Q27: one of %d leaves for one of %d", x.Priority, lane)
		case gone.of == t && !s.stands(lane):
			s.rt.Error("Q27: one leaves for a newer one of the same tenant")
		case x.Priority >= lane && theirs <= mine && !s.stands(lane):
			s.rt.Errorf("Q27: one of a tenant with %v leaves for one who has %v then", theirs, mine)
		case theirs < crowd && x.Priority == lane:
			s.rt.Errorf("Q27: one of a tenant with %v leaves, another has %v", theirs, crowd)
		}
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.settle(gone.of, true)
	}
	if v == Waits {
		s.turns++
		if s.count(s.waiting, t, int(lane)) == 0 {
			t.turn[lane] = s.turns
		}
		s.waiting = append(s.waiting, k)
		s.settle(t, was)
		if len(s.waiting) > s.q.Limit {
			s.rt.Errorf("Q3: %d wait", len(s.waiting))
		}
		return
	}
	if len(left) > 0 {
		s.rt.Errorf("Q27: %d left for one that was rejected", len(left))
	}
	if named && (shed > 0 || full) && (crowd > mine || lane < highest && critical > mine && s.allAbove(critical, t)) {
		s.rt.Errorf("Q27: a tenant with %v is turned away, another has %v, or %v critical ones", mine-1, crowd, critical)
	}
	if full && shed == 0 && lower {
		s.rt.Errorf("Q27: one of %d is turned away for one that is less important", lane)
	}
}

// allAbove reports whether each tenant with so many critical tasks waiting is above his share, and not t.
func (s *shop) allAbove(most float64, t *tenantModel) bool {
	return !slices.ContainsFunc(s.tenants, func(o *tenantModel) bool {
		return float64(s.count(s.waiting, o, highest))/float64(o.weight) == most && (o == t || !s.above(o))
	})
}

func (s *shop) serve() {
	for len(s.running) < s.slots {
		want := s.should()
		w, _ := s.q.Next(s.now, s.asOwner())
		switch {
		case want == nil && w == nil:
			return
		case want == nil || w != want.w:
			s.rt.Fatalf("Q25, Q26: the next is not who it should be: %v, %v", want, w)
		}
		s.waiting = slices.DeleteFunc(s.waiting, func(k *taskModel) bool { return k == want })
		s.turns++
		want.of.turn[w.Priority] = s.turns
		want.began = s.now
		s.virtual = max(s.virtual, s.usedBy(want.of))
		if want.of != s.tenants[0] {
			s.table.Serve(want.of.of)
		}
		s.running = append(s.running, want)
		s.settle(want.of, true)
	}
}

func (s *shop) end() {
	if len(s.running) == 0 {
		s.rt.Skip("nothing runs")
	}
	i := rapid.IntRange(0, len(s.running)-1).Draw(s.rt, "ends")
	k := s.running[i]
	s.running = slices.Delete(s.running, i, i+1)
	took := s.now - k.began
	if t := k.of; t != s.tenants[0] {
		s.table.Charge(t.of, took, time.Second)
		t.used = min(t.used+took.Seconds()/float64(t.weight), s.virtual+1/float64(t.weight))
		s.settle(t, true)
	}
}

// Who is next, and who has to leave, is what the sentences say, whatever comes.
func TestPropertyTenantsInTurn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newShop(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"arrive": func(*rapid.T) { s.arrive(); s.serve() },
			"again":  func(*rapid.T) { s.arrive(); s.serve() },
			"end":    func(*rapid.T) { s.end(); s.serve() },
			"time": func(rt *rapid.T) {
				s.now += time.Duration(rapid.IntRange(1, 30).Draw(rt, "ms")) * time.Millisecond
			},
			"": func(rt *rapid.T) {
				if n := s.q.Len(); n != len(s.waiting) || n > 0 && len(s.running) < s.slots {
					rt.Errorf("Q25: %d wait, want %d, while %d of %d run", n, len(s.waiting), len(s.running), s.slots)
				}
			},
		})
	})
}
