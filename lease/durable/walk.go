// SPDX-License-Identifier: Apache-2.0

// Ready and Held: the store's index names the domains, and each is read before it is yielded.

package durable

import (
	"context"
	"iter"

	"github.com/stopbank/stopbank/lease/internal/step"
)

// List implements step.Engine. It costs one List of the Store, and a Load for each domain. It holds nothing while the body
// runs: no turn, no lock. A domain that has left the index since is passed over.
func (l *engine) List(ctx context.Context, index step.Index) iter.Seq2[step.Item, error] {
	return func(yield func(step.Item, error) bool) {
		for domain, err := range l.store.List(ctx, Index(index)) {
			var item step.Item
			listed := false
			if err != nil {
				err = storeError("List", "", err)
			} else if item, listed, err = l.item(ctx, domain, index); err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(step.Item{}, err)
				return
			}
			if listed && !yield(item, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(step.Item{}, err)
		}
	}
}

func (l *engine) item(ctx context.Context, domain string, index step.Index) (item step.Item, listed bool, err error) {
	data, version, err := l.read(ctx, l.store, domain, 1) // it was listed, so it is there
	if err != nil {
		return item, false, err
	}
	rec, err := l.decode(ctx, l.store, data, domain, version)
	if err != nil {
		return item, false, err
	}
	item, listed = rec.state.Item(domain, index)
	return item, listed, nil
}
