// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file is the store: its configuration, the keys of its rows, and its lists.

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

// StoreConfig configures OpenStore.
type StoreConfig struct {
	// Pool is a pool of connections to a migrated database. Required. The caller owns it, may use it for anything else,
	// and closes it after the last call.
	Pool *pgxpool.Pool
	// Name is the ledger's name, unique in the database: 0 to 255 bytes of UTF-8 without a zero byte.
	Name string
}

// store is a durable.Store in PostgreSQL.
type store struct {
	pool     *pgxpool.Pool
	ledger   string
	identity string // of the database
	loads    gatherer[loading]
	swaps    gatherer[swapping]
	unlisted atomic.Pointer[time.Time] // when the list was shortened last; nil: it is time
}

var _ durable.Store = (*store)(nil)

// OpenStore returns the store of a ledger, after three queries that check the database's schema and settings, identify it, and
// look whether the ledger is written in another way (GroupConfig.Journal). It starts no goroutine, and there is nothing to close.
// Errors: *lease.InvalidError naming the field, the schema (run Migrate, or upgrade the program) or the server's setting; or the
// pool's.
//
// One ledger may have several stores, in one process or in many. A call takes one round trip; a write waits for an earlier
// writer of the same record. Concurrent calls on one store share statements. A list takes a round trip for each 256 names
// and holds no connection while the caller's loop runs. A record may take 256 MiB, and each write sends all of it: bound the
// backlog long before.
func OpenStore(ctx context.Context, cfg StoreConfig) (durable.Store, error) {
	if ctx == nil {
		return nil, noContext()
	}
	if cfg.Pool == nil {
		return nil, &lease.InvalidError{Field: "leasepg.StoreConfig.Pool", Value: "nil", Allowed: "a pool"}
	}
	if err := checkLedgerName(cfg.Name); err != nil {
		return nil, err
	}
	id, err := check(ctx, cfg.Pool)
	if err != nil {
		return nil, err
	}
	if err := checkLayout(ctx, cfg.Pool, cfg.Name, false); err != nil {
		return nil, err
	}
	return newStore(cfg, id), nil
}

func checkLedgerName(name string) error {
	if len(name) > maxLedger || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return &lease.InvalidError{Field: "leasepg.StoreConfig.Name", Value: strconv.Quote(name),
			Allowed: "0 to 255 bytes of UTF-8 without a zero byte"}
	}
	return nil
}

// newStore returns the store of a ledger in a database that check has identified.
func newStore(cfg StoreConfig, identity string) *store {
	s := &store{pool: cfg.Pool, ledger: cfg.Name, identity: identity}
	s.loads.send, s.swaps.send = s.loadTogether, s.swapTogether
	return s
}

const (
	// An entry of an index may take 2,700 bytes: the ledger's name and a key have to fit in.
	maxLedger = 255
	maxKey    = 1024
	maxName   = math.MaxUint16

	// maxStep is how far a version may move at once. Half of it on average, a row lasts for 2⁴⁰ swaps.
	maxStep = 1 << 24

	// maxState is a quarter of what a value may take, because a driver may send it in hexadecimal digits.
	maxState = 1 << 28

	// page is how many names List asks for at once.
	page = 256
)

// key is what a name is filed under: the name, or if that is too long for an index what begins like it and ends in its hash,
// which is longer than any name filed under itself. A long name is kept whole beside its key.
func key(name string) (key, long []byte) {
	if len(name) <= maxKey {
		return []byte(name), nil
	}
	hash := sha256.Sum256([]byte(name))
	return append([]byte(name[:maxKey]), hash[:]...), []byte(name)
}

// listed names what is filed somewhere, in the order of its keys.
const listed = `SELECT domain, long_domain FROM stopbank.lease_domains
	WHERE ledger = $1 AND listed AND filed = $4 AND domain >= $2 ORDER BY domain LIMIT $3`

// Limit implements durable.Store.
func (s *store) Limit(string) int { return maxState }

// List implements durable.Store. It reads a page of names at a time, in the order of their keys.
func (s *store) List(ctx context.Context, index durable.Index) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if index != durable.Held && index != durable.Ready {
			yield("", &lease.InvalidError{Field: "index", Value: index, Allowed: "Held or Ready"})
			return
		}
		next := []byte{}
		for {
			names, err := s.names(ctx, index, &next)
			if err != nil {
				yield("", fmt.Errorf("leasepg: list: %w", err))
				return
			}
			for _, name := range names {
				if err := ctx.Err(); err != nil {
					yield("", err)
					return
				}
				if !yield(name, nil) {
					return
				}
			}
			if len(names) < page {
				return
			}
		}
	}
}

// names returns the page of names from the key next on, and leaves in next the least key after the page.
func (s *store) names(ctx context.Context, index durable.Index, next *[]byte) (names []string, err error) {
	rows, err := s.pool.Query(ctx, listed, s.ledger, *next, page, int16(index))
	if err != nil {
		return nil, err
	}
	var domain, long []byte
	_, err = pgx.ForEachRow(rows, []any{&domain, &long}, func() error {
		if long != nil {
			names = append(names, string(long))
		} else {
			names = append(names, string(domain))
		}
		return nil
	})
	domain = append(domain, 0)
	*next = domain
	return names, err
}
