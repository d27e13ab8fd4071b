// Mail: a dispatcher sends order confirmations. Those that fail permanently become dead letters, which the console shows.

package console

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden/console"
)

// deadLetters reads the dead letters for the console.
func deadLetters(letters deadletter.Store) func(context.Context) iter.Seq2[console.DeadLetter, error] {
	return func(ctx context.Context) iter.Seq2[console.DeadLetter, error] {
		return func(yield func(console.DeadLetter, error) bool) {
			for l, err := range letters.List(ctx, deadletter.Filter{}) {
				if !yield(console.DeadLetter{
					ID: l.ID().String(), Key: l.Record.Domain, At: l.At, Attempts: l.Attempts, Failure: l.Failure, Parked: l.Parked,
					Note: l.Note,
				}, err) {
					return
				}
			}
		}
	}
}

// mail sends confirmations until ctx ends.
func (s *service) mail(ctx context.Context) error {
	ledger, err := lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries})
	if err != nil {
		return err
	}
	outbox := &dispatch.Log{}
	d, err := dispatch.New(dispatch.Partition{Name: "mail/0", Ledger: ledger, Source: outbox}, dispatch.Config{
		DeadLetter: deadletter.Keep(&s.letters),
		Handler: func(_ context.Context, job dispatch.Job) error {
			if job.Record.Offset%20 == 7 {
				return fmt.Errorf("550 no such mailbox: %w", dispatch.ErrPermanent)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	for n := 0; ; n++ {
		outbox.Append(fmt.Sprint("customer-", n%13), fmt.Append(nil, "order ", n, " is on its way"))
		select {
		case err := <-ended:
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}
