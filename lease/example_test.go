// SPDX-License-Identifier: Apache-2.0

// Every call of a ledger at work.

package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sort"

	"github.com/stopbank/stopbank/lease"
)

func ExampleNewMemory() {
	ledger, err := lease.NewMemory(lease.Config{MaxRetries: 3, MaxBacklog: 1000})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	first, _ := ledger.TryAcquire(ctx, "order-17", 1)
	second, _ := ledger.TryAcquire(ctx, "order-17", 2)
	fmt.Println(first.Status, second.Status)

	done, _ := ledger.Succeed(ctx, "order-17", first.Lease.Token)
	fmt.Println(done.Status, done.Next)

	_, err = lease.NewMemory(lease.Config{MaxRetries: -1})
	fmt.Println(err)
	// Output:
	// ACQUIRED ENQUEUED
	// NEXT_HINT 2
	// lease: Config.MaxRetries is -1; allowed: 0 (no retries) to 2147483647
}

func ExampleLedger_tryAcquire() {
	ledger, _ := lease.NewMemory(lease.Config{})
	ctx := context.Background()
	held, _ := ledger.TryAcquire(ctx, "A", 1)
	queued, _ := ledger.TryAcquire(ctx, "A", 2)
	again, _ := ledger.TryAcquire(ctx, "A", 1)
	fmt.Println(held.Status, queued.Status, again.Status, again.Lease.Token == held.Lease.Token)

	_, _ = ledger.Succeed(ctx, "A", held.Lease.Token)
	_, err := ledger.TryAcquire(ctx, "A", 3) // 2 is first
	var ordering *lease.BacklogOrderingError
	fmt.Println(errors.As(err, &ordering), ordering.Expected, ordering.Got)
	// Output:
	// ACQUIRED ENQUEUED ALREADY_ACQUIRED true
	// true 2 3
}

// A reply may be lost. The same call again tells a lease that is done from one that was never held.
func ExampleLedger_succeed() {
	ledger, _ := lease.NewMemory(lease.Config{})
	ctx := context.Background()
	held, _ := ledger.TryAcquire(ctx, "A", 1)
	_, _ = ledger.Succeed(ctx, "A", held.Lease.Token) // suppose that this reply got lost

	_, err := ledger.Succeed(ctx, "A", held.Lease.Token)
	var gone *lease.LeaseNotFoundError
	fmt.Println(errors.As(err, &gone), gone.Status, gone.Offset)
	// Output: true ALREADY_PROCESSED 1
}

// MaxRetries+1 attempts.
func ExampleLedger_fail() {
	ledger, _ := lease.NewMemory(lease.Config{MaxRetries: 2})
	ctx := context.Background()
	held, _ := ledger.TryAcquire(ctx, "A", 1)
	for range 3 {
		f, _ := ledger.Fail(ctx, "A", held.Lease.Token)
		fmt.Println(f.Status, f.RetryCount)
	}
	again, _ := ledger.TryAcquire(ctx, "A", 1)
	fmt.Println(again.Status)
	// Output:
	// RETRY_SCHEDULED 1
	// RETRY_SCHEDULED 2
	// GIVE_UP_NO_BACKLOG 2
	// ALREADY_FAILED
}

// The arrival race: between a completion and the hand-off a record arrives. TryAcquire would call that a bug; Offer
// just queues it, and AcquireNext takes whatever is first.
func ExampleLedger_offer() {
	ledger, _ := lease.NewMemory(lease.Config{})
	ctx := context.Background()
	_, _ = ledger.Offer(ctx, "A", 1)
	_, _ = ledger.Offer(ctx, "A", 2)
	status, err := ledger.Offer(ctx, "A", 3)
	fmt.Println(status, err)

	next, _ := ledger.AcquireNext(ctx, "A")
	fmt.Println(next.Status, next.Lease.Offset)
	// Output:
	// ENQUEUED <nil>
	// ACQUIRED 1
}

func ExampleLedger_acquireNext() {
	ledger, _ := lease.NewMemory(lease.Config{})
	ctx := context.Background()
	for offset := range int64(3) {
		_, _ = ledger.Offer(ctx, "A", offset)
	}
	for {
		next, _ := ledger.AcquireNext(ctx, "A")
		fmt.Println(next.Status)
		if next.Status != lease.Acquired {
			break
		}
		_, _ = ledger.Succeed(ctx, "A", next.Lease.Token)
	}
	// Output:
	// ACQUIRED
	// ACQUIRED
	// ACQUIRED
	// NOTHING_TO_DO
}

// Whoever takes over from a dead holder rotates the token; should the dead come back, it is refused.
func ExampleLedger_reclaim() {
	ledger, _ := lease.NewMemory(lease.Config{})
	ctx := context.Background()
	dead, _ := ledger.TryAcquire(ctx, "A", 1)

	heir, _ := ledger.Reclaim(ctx, "A", dead.Lease.Token)
	fmt.Println(heir.Offset, heir.Token > dead.Lease.Token)

	_, err := ledger.Succeed(ctx, "A", dead.Lease.Token)
	fmt.Println(errors.Is(err, lease.ErrTokenMismatch))
	// Output:
	// 1 true
	// true
}

// A worker that has to stop gives its lease back. Whoever takes it over knows that nobody died of it.
func ExampleLedger_release() {
	ledger, _ := lease.NewMemory(lease.Config{MaxRetries: 3})
	ctx := context.Background()
	mine, _ := ledger.TryAcquire(ctx, "A", 1)
	_ = ledger.Release(ctx, "A", mine.Lease.Token)

	for held, err := range ledger.Held(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		heir, _ := ledger.Reclaim(ctx, held.Domain, held.Token)
		if !held.Released {
			_, _ = ledger.Fail(ctx, heir.Domain, heir.Token) // the attempt that its holder did not survive
		}
		fmt.Println(heir.Offset, held.Released, heir.Released, heir.RetryCount)
	}
	// Output: 1 true false 0
}

func ExampleLedger_compact() {
	ledger, _ := lease.NewMemory(lease.Config{})
	ctx := context.Background()
	held, _ := ledger.TryAcquire(ctx, "A", 1)
	_, _ = ledger.Succeed(ctx, "A", held.Lease.Token)
	_ = ledger.Compact(ctx, 2) // everything below 2 is done

	again, _ := ledger.TryAcquire(ctx, "A", 1)
	fmt.Println(again.Status, again.BelowFloor)
	fmt.Println(ledger.Compact(ctx, 1))
	// Output:
	// ALREADY_PROCESSED true
	// lease: floor 1 is below the ledger's floor 2
}

func ExampleLedger_ready() {
	ledger, _ := lease.NewMemory(lease.Config{})
	ctx := context.Background()
	_, _ = ledger.Offer(ctx, "A", 1)
	_, _ = ledger.Offer(ctx, "B", 2)
	_, _ = ledger.TryAcquire(ctx, "C", 3)
	var lines []string
	for head, err := range ledger.Ready(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(head.Domain, " waits with ", head.Offset))
	}
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
	// Output:
	// A waits with 1
	// B waits with 2
}

func ExampleLedger_held() {
	ledger, _ := lease.NewMemory(lease.Config{})
	ctx := context.Background()
	_, _ = ledger.TryAcquire(ctx, "A", 1)
	for held, err := range ledger.Held(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		heir, _ := ledger.Reclaim(ctx, held.Domain, held.Token)
		fmt.Println(held.Domain, held.Offset, heir.Token > held.Token)
	}
	// Output: A 1 true
}

func ExampleLedger_inspect() {
	ledger, _ := lease.NewMemory(lease.Config{})
	ctx := context.Background()
	_, _ = ledger.TryAcquire(ctx, "A", 7)
	_, _ = ledger.TryAcquire(ctx, "A", 9)
	_, _ = ledger.TryAcquire(ctx, "A", 8)
	v, _ := ledger.Inspect(ctx, "A")
	fmt.Println(v.Lease.Offset, v.Backlog, v.Processed, v.Failed)
	// Output: 7 [9 8] 0 0
}

// decisions logs what a ledger decides. Op and Result also suit the labels of a metric.
type decisions struct{ log *slog.Logger }

func (d decisions) Observe(e lease.Event) {
	d.log.Info("ledger", "op", e.Op, "result", e.Result, "domain", e.Domain, "offset", e.Offset,
		"leased", e.Token != 0, "retries", e.RetryCount, "err", e.Err)
}

func ExampleObserver() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
	ledger, _ := lease.NewMemory(lease.Config{MaxRetries: 1, Observer: decisions{logger}})
	ctx := context.Background()
	held, _ := ledger.TryAcquire(ctx, "A", 1)
	_, _ = ledger.Offer(ctx, "A", 2)
	_, _ = ledger.Fail(ctx, "A", held.Lease.Token)
	_ = ledger.Compact(ctx, -1)
	_ = ledger.Compact(ctx, -2)
	// Output:
	// msg=ledger op=try_acquire result=acquired domain=A offset=1 leased=true retries=0 err=<nil>
	// msg=ledger op=offer result=enqueued domain=A offset=2 leased=false retries=0 err=<nil>
	// msg=ledger op=fail result=retry_scheduled domain=A offset=1 leased=true retries=1 err=<nil>
	// msg=ledger op=compact result=ok domain="" offset=-1 leased=false retries=0 err=<nil>
	// msg=ledger op=compact result=floor domain="" offset=-2 leased=false retries=0 err="lease: floor -2 is below the ledger's floor -1"
}
