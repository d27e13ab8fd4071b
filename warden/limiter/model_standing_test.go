// The part of the model that says when the queue of a priority stands.

package limiter

import "time"

// stands is whether the oldest of a priority has waited too long for a burst.
func (m *model) stands(p Priority) bool {
	all := m.of(p)
	if len(all) == 0 {
		return false
	}
	w := all[0]
	most := max(25*time.Millisecond, m.d.Expected)
	if w.due != never {
		most = min((w.due-w.since)/2, max(time.Second, m.d.Expected))
	}
	return m.now-w.since > most
}
