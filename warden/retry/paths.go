// SPDX-License-Identifier: Apache-2.0

// Which paths of a dependency fail: one broken path must not throttle the calls of the others, and a stranger who chooses paths must
// not either (H25).

package retry

import "math"

const (
	maxPaths   = 32
	remembered = 300 // slices: a minute
	halving    = 50  // slices, ten seconds, after which an accepted answer weighs half
	rounding   = 1e-9
)

// paths are the paths that were answered last.
type paths []path

type path struct {
	hash   uint64
	at     int64 // number of the slice of its latest answer
	worked int64 // number of the slice of its latest accepted answer
	// accepted answers, which is what a stranger cannot have without being served: halved every ten seconds, at the slice at
	weight float64
	fails  bool
}

// weighs returns the weight at a slice, and 0 if the path has not worked for a minute.
func (p *path) weighs(now int64) float64 {
	if p.weight == 0 || p.worked < now-remembered {
		return 0
	}
	return p.halved(now)
}

func (p *path) halved(now int64) float64 { return p.weight * math.Exp2(float64(p.at-now)/halving) }

// answered records an answer. Beyond maxPaths, an accepted one takes the place of the path that weighs least, and of those of the one
// that was answered the longest ago, with its weight: so all weights together are what was accepted, whatever the names (Metwally,
// Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams", 2005).
func (all *paths) answered(hash uint64, at int64, fails bool) {
	var p *path
	least, weight := 0, math.Inf(1)
	for i := range *all {
		q := &(*all)[i]
		if q.hash == hash {
			p = q
			break
		}
		if w := q.weighs(at); w < weight || w == weight && q.at < (*all)[least].at {
			least, weight = i, w
		}
	}
	switch {
	case p != nil:
	case len(*all) < maxPaths:
		*all = append(*all, path{hash: hash})
		p = &(*all)[len(*all)-1]
	case fails && weight > 0:
		return // it is no vote
	default:
		p = &(*all)[least]
		*p = path{hash: hash, at: p.at, weight: p.weight}
		if fails {
			p.weight = 0
		}
	}
	p.weight, p.at, p.fails = p.halved(at), at, fails
	if !fails {
		p.weight, p.worked = p.weight+1, at
	}
}

// mostFail reports whether, seen from a path that fails, most others that have worked in the last minute fail too, by their number and
// by their weight, or none has worked. Only those count that were answered in the last ten seconds: the others say nothing of now.
func (all *paths) mostFail(now int64) bool {
	fails, worked, failing := false, 0, 0
	var whole, lost float64
	for i := range *all {
		p := &(*all)[i]
		fails = fails || p.fails && p.at >= now-remembered
		w := p.weighs(now)
		if w == 0 || p.at < now-slices {
			continue
		}
		worked, whole = worked+1, whole+w
		if p.fails {
			failing, lost = failing+1, lost+w
		}
	}
	if worked <= 1 {
		return fails && failing == worked
	}
	return 2*(failing-1) > worked-1 && 2*lost > whole*(1+rounding)
}
