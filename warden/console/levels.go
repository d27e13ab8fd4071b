// Levels of the controller. It may be a custom one, so a page does not wait long for it.

package console

import (
	"time"

	"github.com/stopbank/stopbank/warden"
)

// patience is how long a page waits for the controller, 2 s. No other source of a page can hang.
const patience = 2 * time.Second

// levels returns the controller's levels of each reading, by signal; nil and false if it panics or does not answer in time.
// It is called on its own goroutine, and while that hangs, on no other. The caller does not hold mu.
func (c *Console) levels(w *warden.Warden, readings []warden.Reading) (levels []map[string]num, answers bool) {
	if len(readings) == 0 || c.mute.Load() && len(c.asking) > 0 {
		return nil, !c.mute.Load()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	answer := make(chan []map[string]num, 1)
	select {
	case c.asking <- struct{}{}:
		go func() {
			var whole []map[string]num
			defer func() {
				_ = recover() // or it has ended the goroutine
				<-c.asking
				answer <- whole
			}()
			whole = evaluated(w, readings)
		}()
	case <-timer.C: // another look waits for it
		return nil, false
	}
	select {
	case levels = <-answer:
	case <-timer.C:
	}
	c.mute.Store(levels == nil)
	return levels, levels != nil
}

func evaluated(w *warden.Warden, readings []warden.Reading) []map[string]num {
	all := make([]map[string]num, len(readings))
	for i, r := range readings {
		all[i] = map[string]num{}
		for _, level := range w.Levels(r.Sample) {
			all[i][clip(level.Signal, longestName)] = num(level.Level)
		}
	}
	return all
}
