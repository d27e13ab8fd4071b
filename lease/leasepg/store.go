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
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

// Config configures a Store.
type Config struct {
	// Pool is a pool of connections to a migrated database. Required. The caller owns it, may use it for anything else,
	// and closes it after the last call.
	Pool *pgxpool.Pool
	// Ledger is the ledger's name, unique in the database: 0 to 255 bytes of UTF-8 without a zero byte.
	Ledger string
}

// Store is a durable.Store in PostgreSQL. It must come from New: any other rejects every call. One ledger may have
// several Stores, in one process or in many; concurrent calls on one Store share statements.
type Store struct {
	pool     *pgxpool.Pool
	ledger   string
	identity string // of the database
	loads    gatherer[loading]
	swaps    gatherer[swapping]
}

var _ durable.Store = (*Store)(nil)

// New returns the store of a ledger, after two queries that check the database's schema and settings and identify it. It
// starts no goroutine, and there is nothing to close. Errors: *lease.InvalidError naming the field, *SchemaError,
// *SettingError, or the pool's.
func New(ctx context.Context, cfg Config) (*Store, error) {
	if ctx == nil {
		return nil, noContext()
	}
	if cfg.Pool == nil {
		return nil, &lease.InvalidError{Field: "leasepg.Config.Pool", Value: "nil", Allowed: "a pool"}
	}
	if len(cfg.Ledger) > maxLedger || !utf8.ValidString(cfg.Ledger) || strings.ContainsRune(cfg.Ledger, 0) {
		return nil, &lease.InvalidError{Field: "leasepg.Config.Ledger", Value: strconv.Quote(cfg.Ledger), Allowed: "0 to 255 bytes of UTF-8 without a zero byte"}
	}
	id, err := check(ctx, cfg.Pool)
	if err != nil {
		return nil, err
	}
	s := &Store{pool: cfg.Pool, ledger: cfg.Ledger, identity: id}
	s.loads.send, s.swaps.send = s.loadTogether, s.swapTogether
	return s, nil
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

// key is what a name is filed under: the name, or if that is too long for an index what begins like it and ends in its hash, which is longer than
// any name filed under itself. A long name is kept whole beside its key.
func key(name string) (key, long []byte) {
	if len(name) <= maxKey {
		return []byte(name), nil
	}
	hash := sha256.Sum256([]byte(name))
	return append([]byte(name[:maxKey]), hash[:]...), []byte(name)
}

const (
	listHeld = `SELECT domain, long_domain FROM stopbank.lease_domains
		WHERE ledger = $1 AND held AND domain >= $2 ORDER BY domain LIMIT $3`
	listReady = `SELECT domain, long_domain FROM stopbank.lease_domains
		WHERE ledger = $1 AND ready AND domain >= $2 ORDER BY domain LIMIT $3`
)

// made rejects a Store that New did not make.
func (s *Store) made() error {
	if s == nil || s.pool == nil {
		return &lease.InvalidError{Field: "leasepg.Store", Value: "nil or zero", Allowed: "a store made by New"}
	}
	return nil
}

// Limit implements durable.Store: 256 MiB. At a hundredth of that a swap takes tens of milliseconds; bound the backlog
// long before.
func (s *Store) Limit(string) int { return maxState }

// List implements durable.Store. It reads a page of names at a time, in the order of their keys, and holds no connection
// while the body runs. It blocks for one round trip per page.
func (s *Store) List(ctx context.Context, index durable.Index) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.made(); err != nil {
			yield("", err)
			return
		}
		var query string
		switch index {
		case durable.Held:
			query = listHeld
		case durable.Ready:
			query = listReady
		default:
			yield("", &lease.InvalidError{Field: "index", Value: index, Allowed: "Held or Ready"})
			return
		}
		next := []byte{}
		for {
			names, err := s.names(ctx, query, &next)
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
func (s *Store) names(ctx context.Context, query string, next *[]byte) (names []string, err error) {
	rows, err := s.pool.Query(ctx, query, s.ledger, *next, page)
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
