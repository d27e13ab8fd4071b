// Users: who comes when, with what work, and waits how long. Nothing of it depends on what happens to them.

package swarm

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// user is one request and all its attempts.
type user struct {
	at        time.Duration // since the start
	priority  limiter.Priority
	computes  time.Duration // work of one execution
	calls     time.Duration
	patience  time.Duration // for each attempt
	backoff   float64       // 0.5 to 1.5 of what is usual
	attempts  int
	decided   bool
	satisfied bool
}

// users draws them all, in order of arrival.
func (w *World) users() []user {
	r := rand.New(rand.NewPCG(w.Seed, 11))
	var all []user
	for at := 0.0; ; {
		at += r.ExpFloat64() / max(w.Rate, w.Low)
		if at >= w.Length {
			return all
		}
		// Thinned, so that a rate that changes within a gap is right.
		if r.Float64()*max(w.Rate, w.Low) >= w.rate(at) {
			continue
		}
		u := user{at: seconds(at), priority: w.priority(r)}
		f := w.factor(r)
		u.computes, u.calls = seconds(w.Service*w.Share*f), seconds(w.Service*(1-w.Share)*f)
		u.patience = seconds(w.Patience * math.Exp(w.Vary*r.NormFloat64()))
		u.backoff = 0.5 + r.Float64()
		all = append(all, u)
	}
}

func (w *World) priority(r *rand.Rand) limiter.Priority {
	switch x := r.Float64(); {
	case x < 0.2:
		return limiter.Critical
	case x < 0.7 || w.Priorities == 2:
		return limiter.Normal
	}
	return limiter.Background
}
