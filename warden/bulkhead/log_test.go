// The errors of a call in a log have all their parts, and the words that the counters have.

package bulkhead

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

func TestLogValues(t *testing.T) {
	why := &limiter.Rejection{Reason: limiter.DeadlineExceeded, Decision: &decision.ControlDecision{Seq: 3}}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&TimeoutError{Compartment: "a", Phase: Queued, After: time.Second, Rejection: why}, "e.compartment=a e.phase=queued e.after=1s e.reason=queue_timeout e.rejection.limiter="},
		{&TimeoutError{Compartment: "a", Phase: Queued, After: time.Second, Rejection: why}, "e.rejection.reason=deadline_exceeded"},
		{&TimeoutError{Compartment: "a", Phase: Running, After: time.Minute}, "e.compartment=a e.phase=running e.after=1m0s\n"},
		{&BreakerOpenError{Compartment: "a", Err: errors.New("open")}, "e.compartment=a e.reason=breaker_open e.err=open\n"},
		{&ReentryError{Compartment: "a"}, "e.compartment=a e.reason=reentry\n"},
		{&StaleError{Given: 1, Current: 2}, "e.given=1 e.current=2\n"},
	} {
		var b bytes.Buffer
		slog.New(slog.NewTextHandler(&b, nil)).Info("m", "e", c.err)
		if !strings.Contains(b.String(), " "+c.want) {
			t.Errorf("%T: %q lacks %q", c.err, b.String(), c.want)
		}
		_, counted := c.err.(*StaleError) // no call was refused
		if reason := " e.reason=" + reasonOf(c.err); !counted && !strings.Contains(b.String(), "phase=running") && !strings.Contains(b.String(), reason) {
			t.Errorf("%T: %q lacks %q", c.err, b.String(), reason)
		}
	}
}
