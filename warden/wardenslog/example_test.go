// A limiter that logs.

package wardenslog_test

import (
	"context"
	"log/slog"
	"os"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

func ExampleNew() {
	text := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	log := wardenslog.New(slog.New(text))
	l, _ := limiter.New(limiter.Config{
		Name: "prices", Observer: log.Limiter(),
		Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 0},
	})
	for range 2 {
		_, _ = l.TryAcquire(limiter.Task{Name: "quote"})
	}
	_ = log.Flush(context.Background())
	// Output:
	// level=WARN msg="stopbank: rejecting started" limiter=prices reason=pressure_high priority=normal why.limiter=prices why.outcome=rejected why.reason=pressure_high why.task.name=quote why.task.priority=normal why.waited=0s why.in_flight=0 why.queued=0 why.bound=target why.limit=0 why.decision_state=initial why.decision.seq=1 why.decision.target=0 why.decision.shed=0
	// level=INFO msg="stopbank: rejected" limiter=prices reason=pressure_high priority=normal why.limiter=prices why.outcome=rejected why.reason=pressure_high why.task.name=quote why.task.priority=normal why.waited=0s why.in_flight=0 why.queued=0 why.bound=target why.limit=0 why.decision_state=initial why.decision.seq=1 why.decision.target=0 why.decision.shed=0 left_out=0
}
