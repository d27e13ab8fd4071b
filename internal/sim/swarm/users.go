// Users: their arrival, work and patience, independent of the run.

package swarm

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// user is one request with all its attempts.
type user struct {
	at        time.Duration // arrival, since the start
	priority  limiter.Priority
	computes  time.Duration // processor time of one execution
	calls     time.Duration
	patience  time.Duration // per attempt
	backoff   float64       // factor 0.5 to 1.5 on the usual backoff
	attempts  int
	decided   bool
	satisfied bool
}

// users draws all users in order of arrival.
func (w *World) users() []user {
	r := rand.New(rand.NewPCG(w.Seed, 11))
	var all []user
	for at := 0.0; ; {
		at += r.ExpFloat64() / max(w.Rate, w.Low)
		if at >= w.Length {
			return all
		}
		// Thinning keeps a rate exact that changes between two arrivals.
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
