// SPDX-License-Identifier: Apache-2.0

// The state, read from the layers on request.

package console

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// cursor is the end of the history that a client has. The zero value: none.
type cursor struct {
	seq  uint64    // of the last decision
	pool time.Time // of the last poolPoint
	none bool      // the client wants no history
}

// history is kept by the console itself and updated on each request.
type history struct {
	lastSeq uint64 // the last decision in phases
	phases  []phase
	lowered lowered
	pools   []poolPoint
	warden  tallies
	limits  []tallies // of Config.Limiters
}

// lowered is the last decision that lowered the limit for a reason.
type lowered struct {
	at  time.Time
	why reason
}

const (
	mostPhases     = 40
	mostPoolPoints = 300
	mostPools      = 100
	mostRunning    = 5
	mostCharts     = 11 // compartments, and limiters, that have a chart each: more are a table

	// onset is how long other processes may have taken the processors before the controller says so.
	onset = 5 * time.Second
)

// state returns the current state, with the history after the cursor, and advances the cursor.
func (c *Console) state(at *cursor) *state {
	now := time.Now()
	s := &state{
		Version: version, Title: truncate(c.cfg.Title, longestName), Instance: truncate(c.cfg.Instance, longestName),
		At: jsonTime{now}, IntervalMS: ms(c.cfg.Interval),
		Verdicts: []verdict{}, Limiters: []pool{}, History: []point{}, Pools: []poolPoint{}, Decisions: []phase{},
		Rejections: []rejection{},
	}
	if w := c.cfg.Warden; w != nil && !at.none {
		for _, r := range w.History(nil, at.seq) {
			s.History = append(s.History, pointOf(r))
			at.seq = r.Decision.Seq
		}
	}
	rejected := c.recentRejections()
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.cfg.Warden; w != nil {
		c.addWardenLocked(s, w)
	}
	keep := c.history.due(now, c.cfg.Interval)
	for i, l := range c.limiters {
		stats := l.limiter.Stats()
		p := poolOf(l.name, l.limiter, stats, c.history.limits[i].since(now, stats))
		p.stale = stats.DecisionState == decision.Stale
		s.Limiters = append(s.Limiters, p)
		if keep {
			c.history.limits[i].add(tally{now, stats})
		}
	}
	if c.cfg.Set != nil {
		s.Set = setJSON(c.cfg.Set.Snapshot())
	}
	if keep {
		c.history.record(s)
	}
	for _, p := range c.history.pools {
		if p.At.After(at.pool) && !at.none {
			s.Pools = append(s.Pools, p.charted(s))
			at.pool = p.At.Time
		}
	}
	if s.Set != nil {
		for i, x := range s.Set.Compartments {
			s.Set.Compartments[i] = x.withHistory(c.history.pools, now)
		}
	}
	s.Rejections = append(s.Rejections, c.latestRejections(rejected)...)
	s.addVerdicts()
	return s
}

// addWardenLocked adds the warden to s.
func (c *Console) addWardenLocked(s *state, w *warden.Warden) {
	for _, r := range w.History(nil, c.history.lastSeq) {
		c.history.add(r)
	}
	s.Decisions = append(s.Decisions, c.history.phases...)
	slices.Reverse(s.Decisions)

	counted, stats, latest := w.Limiter().Stats(), w.Stats(), w.Latest()
	now := &wardenState{
		pool: poolOf(w.Name(), w.Limiter(), counted, c.history.warden.since(s.At.Time, counted)), Samples: stats.Samples,
		ByRequests: stats.ByRequests, LargestGap: ms(stats.LargestGap), Late: stats.Late,
		Panics: stats.Panics, SilentForMS: null(), DecisionState: string(decision.Initial),
	}
	if d := latest.Decision; d.Seq > 0 {
		silent := max(0, s.At.Sub(latest.Sample.At)) // a sample may have been taken since
		now.Decision, now.SilentForMS, now.DecisionState = decisionJSON(&d), ms(silent), string(decision.Applied)
		if d.ValidFor > 0 && silent > d.ValidFor {
			now.DecisionState = string(decision.Stale)
		}
	}
	now.Bounds, now.Process, now.lowered = boundsOf(w), processOf(latest.Sample), c.history.lowered
	s.Warden = now
}

// add adds a reading to the last phase, or to a new one if the codes of the controller's reasons differ.
func (p *history) add(r warden.Reading) {
	d := r.Decision
	p.lastSeq = d.Seq
	p.warden.add(tally{r.Sample.At, r.Limiter})
	reasons := reasonsJSON(d.Reasons)
	next := phase{
		FirstSeq: d.Seq, From: jsonTime{r.Sample.At}, TargetFrom: d.TargetConcurrency, ShedFrom: jsonNumber(d.ShedProbability),
	}
	before := d.TargetConcurrency
	if n := len(p.phases); n > 0 {
		last := &p.phases[n-1]
		before = last.TargetTo
		next.TargetFrom, next.ShedFrom = last.TargetTo, last.ShedTo
		if slices.EqualFunc(last.Reasons, reasons, func(a, b reason) bool { return a.Code == b.Code }) {
			next = *last
			p.phases = p.phases[:n-1]
		}
	}
	if why := slices.IndexFunc(reasons, reason.tightens); why >= 0 && before > d.TargetConcurrency {
		p.lowered = lowered{r.Sample.At, reasons[why]}
	}
	if isStarved(reasons) {
		p.explainOnset(r.Sample.At)
	}
	next.LastSeq, next.To, next.Reasons = d.Seq, jsonTime{r.Sample.At}, reasons
	next.TargetTo, next.ShedTo = d.TargetConcurrency, jsonNumber(d.ShedProbability)
	if len(p.phases) == mostPhases {
		p.phases = slices.Delete(p.phases, 0, 1)
	}
	p.phases = append(p.phases, next)
}

// explainOnset says of work that began to wait shortly before that it waited for what is left of the processors.
func (p *history) explainOnset(now time.Time) {
	for i, f := range slices.Backward(p.phases) {
		if now.Sub(f.From.Time) > onset {
			break
		}
		p.phases[i].Reasons = waitsForTheRest(f.Reasons)
	}
	if now.Sub(p.lowered.at) <= onset {
		p.lowered.why = waitsForTheRest([]reason{p.lowered.why})[0]
	}
}

// due reports whether it is time for a poolPoint: one per interval over all clients, which read at different instants and not
// quite regularly.
func (p *history) due(now time.Time, interval time.Duration) bool {
	n := len(p.pools)
	return n == 0 || now.Sub(p.pools[n-1].At.Time) >= interval*3/4
}

// record adds the limiters and compartments of s to the history.
func (p *history) record(s *state) {
	if len(s.Limiters) == 0 && s.Set == nil {
		return
	}
	var before map[string]poolLoad
	if n := len(p.pools); n > 0 {
		before = p.pools[n-1].Pools
	}
	next := poolPoint{At: s.At, Pools: map[string]poolLoad{}}
	for _, l := range s.Limiters {
		load := poolLoad{InFlight: l.InFlight, Queued: l.Queued, Executed: l.Executed, Rejected: l.Rejected}
		next.Pools["limiter:"+l.Name] = load
	}
	if s.Set != nil {
		for _, x := range s.Set.Compartments {
			load := poolLoad{
				InFlight: x.InFlight, Queued: x.Queued, Executed: x.Finished, Rejected: x.RejectedTotal,
				timedOut: x.overran(), submitted: x.Submitted, left: x.gone(), failed: x.failures(),
			}
			if last, known := before["compartment:"+x.Name]; known && last.Rejected == load.Rejected {
				load.reasons = last.reasons
			} else {
				load.reasons = x.rejections()
			}
			next.Pools["compartment:"+x.Name] = load
		}
	}
	if len(p.pools) == mostPoolPoints {
		p.pools = slices.Delete(p.pools, 0, 1)
	}
	p.pools = append(p.pools, next)
}

// charted returns p without what has no chart in s.
func (p poolPoint) charted(s *state) poolPoint {
	limiters, compartments := len(s.Limiters) <= mostCharts, s.Set != nil && len(s.Set.Compartments) <= mostCharts
	if limiters && (compartments || s.Set == nil) {
		return p
	}
	out := poolPoint{At: p.At, Pools: map[string]poolLoad{}}
	for name, load := range p.Pools {
		if isLimiter := strings.HasPrefix(name, "limiter:"); isLimiter && limiters || !isLimiter && compartments {
			out.Pools[name] = load
		}
	}
	return out
}

func poolOf(name string, l *limiter.Limiter, s limiter.Stats, lately *recent) pool {
	p := pool{
		Name: truncateName(name), Target: s.Target, InFlight: s.Running, Queued: s.Queued, Executed: s.Executed,
		Rejected: s.Rejected, Canceled: s.Canceled, Abandoned: s.Abandoned, Failed: s.Failed, ByReason: map[string]uint64{}, Recent: lately,
		Mode: s.Mode.String(), WouldReject: map[string]uint64{}, Running: []runningTask{},
		OldestRunningMS: msIf(s.Running > 0, s.OldestRunning),
	}
	for _, r := range l.LongestRunning(mostRunning) {
		p.Running = append(p.Running, runningTask{
			Task: truncate(r.Task.Name, longestName), RequestID: truncate(r.Task.ID, longestName),
			Priority: r.Task.Priority.String(), ForMS: ms(r.For),
		})
	}
	for _, r := range limiter.Reasons() {
		if n := s.RejectedFor(r); n > 0 {
			p.ByReason[string(r)] = n
		}
		if n := s.WouldRejectFor(r); n > 0 {
			p.WouldReject[string(r)] = n
		}
	}
	return p
}

func pointOf(r warden.Reading) point {
	s, l := r.Sample, r.Limiter
	lag, served := s.Lag.Count > 0, s.Service.Count > 0
	levels := make(map[string]plotted, len(r.Levels))
	for signal, level := range r.Levels {
		levels[truncate(signal, longestName)] = plotted(level)
	}
	known := func(r monitor.Reading) plotted { return plotted(reading(r.OK, r.Value)) }
	times := func(known bool, d time.Duration) plotted { return plotted(msIf(known, d)) }
	return point{
		Seq: r.Decision.Seq, At: jsonTime{s.At.Truncate(time.Millisecond)}, GapMS: times(true, s.Gap),
		Target: r.Decision.TargetConcurrency, Shed: plotted(r.Decision.ShedProbability),
		InFlight: l.Running, Queued: l.Queued, Executed: l.Executed, Rejected: l.Rejected, Canceled: l.Canceled,
		Abandoned: l.Abandoned, Failed: l.Failed,
		Pressure: plotted(reading(r.Pressure.OK, r.Pressure.Value)), Levels: levels,
		Utilization: known(s.Utilization), Runnable: known(s.Runnable), Throttled: known(s.Throttled),
		LagP50MS: times(lag, s.Lag.P50), LagP90MS: times(lag, s.Lag.P90), LagP99MS: times(lag, s.Lag.P99), LagCount: s.Lag.Count,
		ServiceP50MS: times(served, s.Service.P50), ServiceP90MS: times(served, s.Service.P90),
		Throughput: plotted(s.Service.Throughput), Concurrency: plotted(s.Service.Concurrency),
	}
}

func processOf(s monitor.Sample) processState {
	out := processState{
		ProcessorShare: reading(s.Share.OK, s.Share.Value), MemoryLive: null(), MemoryLimit: null(), Pools: []usedPool{},
		Remote: s.Remote,
	}
	if s.Memory.Live > 0 {
		out.MemoryLive = jsonNumber(s.Memory.Live)
	}
	if s.Memory.Limit > 0 {
		out.MemoryLimit = jsonNumber(s.Memory.Limit)
	}
	for _, p := range s.Pools[:min(len(s.Pools), mostPools)] {
		out.Pools = append(out.Pools, usedPool{
			Name: truncateName(p.Name), Part: truncateName(p.Part), InUse: p.InUse, Max: p.Max,
			Waiting: reading(p.Waiting.OK, p.Waiting.Value), Problem: truncate(p.Problem, longestName),
		})
	}
	return out
}

func reading(ok bool, v float64) jsonNumber {
	if !ok {
		return null()
	}
	return jsonNumber(v)
}

// appendRejections appends the explanations of tasks that were not started, or would not have been, under the given name, if
// any.
func appendRejections(out []decision.Explanation, name string, recent []decision.Explanation) []decision.Explanation {
	for _, e := range recent {
		if e.Outcome == decision.Rejected || e.Outcome == decision.OutcomeCanceled || e.WouldReject != "" {
			e.Limiter = cmp.Or(name, e.Limiter)
			out = append(out, e)
		}
	}
	return out
}

// latestRejections returns the last rejections, newest first. A limiter with thousands of rejections for one reason does not
// displace the others: half of the list is shared equally by limiters and reasons, at least one each, and the rest goes to the
// newest. Rejections of the same nanosecond get different IDs, counted from the oldest, because the oldest is dropped first.
func (c *Console) latestRejections(rejected []decision.Explanation) []rejection {
	byTime := func(a, b decision.Explanation) int { return a.At.Compare(b.At) }
	slices.SortStableFunc(rejected, byTime)
	type group struct {
		limiter string
		reason  decision.RejectionReason
	}
	of := func(e decision.Explanation) group { return group{e.Limiter, cmp.Or(e.Reason, e.WouldReject)} }
	bound := map[group]int{}
	for _, e := range rejected {
		bound[of(e)] = 0
	}
	each := max(1, c.maxRejections/2/max(1, len(bound)))
	var first, rest []decision.Explanation
	for _, e := range slices.Backward(rejected) {
		if bound[of(e)]++; bound[of(e)] <= each {
			first = append(first, e)
		} else {
			rest = append(rest, e)
		}
	}
	rejected = slices.Concat(first, rest)
	rejected = rejected[:min(len(rejected), c.maxRejections)]
	slices.Reverse(rejected) // restore the order of equal times: oldest first
	slices.SortStableFunc(rejected, byTime)
	out := make([]rejection, len(rejected))
	same := map[string]int{}
	for i, r := range rejected {
		j := rejectionJSON(r)
		if same[j.ID]++; same[j.ID] > 1 {
			j.ID += "+" + strconv.Itoa(same[j.ID])
		}
		out[len(out)-1-i] = j
	}
	return out
}
