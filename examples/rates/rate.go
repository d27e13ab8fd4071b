// Limiters of golang.org/x/time/rate as the dispatcher's rates.

package main

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// limited is a limiter as a dispatch.Rate.
type limited struct{ *rate.Limiter }

// Delay implements dispatch.Rate.
func (l limited) Delay(now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	return time.Duration(math.Ceil(missing / float64(l.Limit()) * float64(time.Second)))
}

// Take implements dispatch.Rate.
func (l limited) Take(now time.Time) bool { return l.AllowN(now, 1) }

// perKey is a limiter for each key. One that is full remembers nothing that a new one would not know, so it can be forgotten: there are never more
// than twice as many as keys were used in the time in which one fills.
type perKey struct {
	limit rate.Limit
	burst int

	mu    sync.Mutex // guards all below
	of    map[string]limited
	sweep int // so many are looked through for those that are full
}

// Of returns the key's limiter: a dispatch.Config's RateOf.
func (k *perKey) Of(key string) dispatch.Rate {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, known := k.of[key]
	if known {
		return l
	}
	if now := time.Now(); len(k.of) >= k.sweep {
		for key, l := range k.of {
			if l.TokensAt(now) >= float64(k.burst) {
				delete(k.of, key)
			}
		}
		k.sweep = max(64, 2*len(k.of))
	}
	if k.of == nil {
		k.of = map[string]limited{}
	}
	l = limited{rate.NewLimiter(k.limit, k.burst)}
	k.of[key] = l
	return l
}
