// Package rates adapts golang.org/x/time/rate to the dispatcher's Rate and RateOf. Its test sends webhooks under both: 50 per
// second in total and one per second to each address.
package rates

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// limited adapts a rate.Limiter to dispatch.Rate.
type limited struct{ *rate.Limiter }

// Delay implements dispatch.Rate.
func (l limited) Delay(now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	return time.Duration(math.Ceil(missing / float64(l.Limit()) * float64(time.Second)))
}

// Take implements dispatch.Rate.
func (l limited) Take(now time.Time) bool { return l.AllowN(now, 1) }

// perKey has a limiter for each key. A full limiter is equal to a new one and can be removed: perKey never has more than twice as
// many limiters (at least 64) as keys were used in the time that a limiter needs to fill.
type perKey struct {
	limit rate.Limit
	burst int

	mu    sync.Mutex // guards of and sweep
	of    map[string]limited
	sweep int // number of limiters at which full ones are removed
}

// Of returns the key's limiter. It is the RateOf of a dispatch.Config.
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
