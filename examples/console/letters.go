// Package console reads dead letters for the console. Its tests look at the page in a browser.
package console

import (
	"context"
	"iter"

	"github.com/stopbank/stopbank/lease/deadletter"
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
