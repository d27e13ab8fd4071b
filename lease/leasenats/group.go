// SPDX-License-Identifier: Apache-2.0

package leasenats

// A Group shares the partitions of a stream among its members.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/journal"
)

// GroupConfig configures a Group. All members of a group must have the same Stream, Subject, Partitions and Journal, for good: a
// member with others is rejected. Sessions may differ.
type GroupConfig struct {
	// Conn is the connection to use. Required. The caller owns it and closes it after Hold has returned. Records come over a
	// connection that Hold makes and closes, with Conn's options, but for the callbacks on what becomes of it, and its Name and
	// " records": so the membership is renewed however large they are, on a link however slow.
	Conn *nats.Conn
	// Stream is the stream to read. Required; it must exist.
	Stream string
	// Subject is the partitions' subject; its first token * stands for a partition's number: "orders.*.>". Required. A
	// subject transform of the stream, {{partition(n,1)}} of the key, puts messages there.
	Subject string
	// Partitions is the number of partitions, 1 to 4,096, numbered from 0. Required. It must be that of the stream's
	// transform, if there is one.
	Partitions int
	// Bucket is the key-value bucket for the group, the positions and the ledgers: letters, digits, - and _, at most 64. Required.
	// OpenGroup creates it if it does not exist.
	Bucket string
	// Group is the group's name in the bucket: letters, digits, - and _, at most 48. "": "group". A partition's name is
	// the group's, - and its number.
	Group string
	// Domain returns a record's domain. It gets the record with the Domain that a nil function would give it: the
	// message's subject. It must not panic.
	Domain func(dispatch.Record) string
	// Ledger configures the partitions' ledgers, which are in the bucket. Zero, they give a record up at its first failure.
	Ledger lease.Config
	// Journal has the partitions' ledgers written per window, in place of twice for each record: that records have begun,
	// before they do and hundreds at a time; that they are done, within 50 ms; and failures one by one. They are in a stream
	// JOURNAL_ and the bucket's name, which OpenGroup creates if it does not exist. After a crash what ended in the last 50 ms
	// or during a write runs again too, and a record that kills its process is given up after two runs more. All members must
	// have the same, for good.
	Journal bool
	// Session is how long a member may be silent before the group takes its partitions. A member writes the group's
	// record ten times in that time. 0: 10 s. 100 ms to an hour.
	Session time.Duration
	// OnError is called with the reason why the membership was lost or could not begin: why a member cannot read or write
	// the group's record. What goes on failing is reported at once and then once a minute, until the record is written. It
	// must be safe for concurrent use, and return soon. Nil: slog.Default logs it as a warning.
	OnError func(error)
	// Replicas and Storage are those of the bucket and of the journals, as in StoreConfig.
	Replicas int
	Storage  jetstream.StorageType
}

// Group is membership of a group that shares out the partitions of a stream. The members keep one record, the list of
// members and their partitions, and update it by compare-and-swap. A member whose entry has not changed for its Session,
// by the reader's clock, is removed. No clocks are compared, and an unreachable server makes no member suspect.
//
// The group only says who should work. The position's key fences commits, and the ledger's tokens fence effects.
//
// A Group must come from OpenGroup: any other rejects Hold.
type Group struct {
	cfg      GroupConfig
	js       jetstream.JetStream
	kv       jetstream.KeyValue
	journals jetstream.Stream // nil: without
	store    *store
	key      string
	options  nats.Options // of the connection for records
}

var _ dispatch.Ownership = (*Group)(nil)

const (
	mostPartitions = 4096
	leastSession   = 100 * time.Millisecond
	mostSession    = time.Hour
	mostGroupName  = 48
)

// OpenGroup returns a Group, and creates its bucket if it does not exist; ctx bounds that, and 5 seconds bound each
// request; later ones half a Session, if that is less. It joins nothing: Hold does. Errors: *lease.InvalidError naming the
// field, also for an existing bucket that would lose records; or the client's.
func OpenGroup(ctx context.Context, cfg GroupConfig) (*Group, error) {
	if cfg.Group == "" {
		cfg.Group = "group"
	}
	if cfg.Session == 0 {
		cfg.Session = 10 * time.Second
	}
	if cfg.OnError == nil {
		cfg.OnError = func(err error) {
			slog.Warn("leasenats: a member cannot go on", "group", cfg.Group, "bucket", cfg.Bucket, "err", err)
		}
	}
	if err := cfg.check(ctx); err != nil {
		return nil, err
	}
	g := &Group{cfg: cfg, key: "group-" + cfg.Group, options: recordOptions(cfg.Conn.Opts)}
	var err error
	of := StoreConfig{Conn: cfg.Conn, Bucket: cfg.Bucket, Name: cfg.Group, Replicas: cfg.Replicas, Storage: cfg.Storage}
	g.store, err = open(ctx, of)
	if err != nil {
		return nil, err
	}
	if cfg.Journal {
		if g.journals, err = openJournals(ctx, g.store, of); err != nil {
			return nil, err
		}
	}
	if _, err := g.ledger(cfg.Group); err != nil {
		return nil, err
	}
	g.js = g.store.js
	ctx, cancel := context.WithTimeout(ctx, g.store.timeout)
	defer cancel()
	stream, err := g.js.Stream(ctx, cfg.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, invalidField("GroupConfig.Stream", strconv.Quote(cfg.Stream), "the name of an existing stream")
	}
	if err == nil {
		g.kv, err = g.js.KeyValue(ctx, cfg.Bucket)
	}
	if err != nil {
		return nil, g.store.unreachable(err)
	}
	// A reply that is lost with the server must not cost more than a session.
	g.store.timeout = min(g.store.timeout, cfg.Session/2)
	return g, cfg.checkTransform(stream.CachedInfo().Config)
}

// check rejects mistakes that can be found without the server.
func (cfg *GroupConfig) check(ctx context.Context) error {
	const of = "GroupConfig."
	err := validate(ctx, of, StoreConfig{Conn: cfg.Conn, Bucket: cfg.Bucket, Name: "group",
		Replicas: cfg.Replicas, Storage: cfg.Storage})
	if err != nil {
		return err
	}
	switch {
	case cfg.Stream == "":
		return invalidField(of+"Stream", strconv.Quote(cfg.Stream), "the name of a stream")
	case !slices.Contains(strings.Split(cfg.Subject, "."), "*"):
		return invalidField(of+"Subject", strconv.Quote(cfg.Subject),
			`a subject with a token * for the partition's number, such as "orders.*.>"`)
	case cfg.Partitions < 1 || cfg.Partitions > mostPartitions:
		return invalidField(of+"Partitions", cfg.Partitions, fmt.Sprint("1 to ", mostPartitions))
	case !token(cfg.Group) || len(cfg.Group) > mostGroupName:
		return invalidField(of+"Group", strconv.Quote(cfg.Group), fmt.Sprintf("1 to %d letters, digits, - and _", mostGroupName))
	case cfg.Session < leastSession || cfg.Session > mostSession:
		return invalidField(of+"Session", cfg.Session, fmt.Sprintf("%v to %v, or 0 (the default, 10s)", leastSession, mostSession))
	}
	return nil
}

var partitionFunction = regexp.MustCompile(`(?i)\{\{\s*partition\(\s*(\d+)`)

// checkTransform rejects a number of partitions that differs from the transform's: messages of the others would never be read.
func (cfg *GroupConfig) checkTransform(stream jetstream.StreamConfig) error {
	if stream.SubjectTransform == nil {
		return nil
	}
	for _, m := range partitionFunction.FindAllStringSubmatch(stream.SubjectTransform.Destination, 1) {
		if m[1] != strconv.Itoa(cfg.Partitions) {
			return invalidField("GroupConfig.Partitions", cfg.Partitions, m[1]+", the number in the stream's subject transform")
		}
	}
	return nil
}

// partitionName returns the name of a partition.
func (g *Group) partitionName(partition int) string {
	return g.cfg.Group + "-" + strconv.Itoa(partition)
}

// partition opens a partition for its owner; end closes what it has opened. It makes no request.
func (g *Group) partition(number int, records *records) (partition dispatch.Partition, end func()) {
	subject := strings.Split(g.cfg.Subject, ".")
	subject[slices.Index(subject, "*")] = strconv.Itoa(number)
	name := g.partitionName(number)
	s := newSource(sourceConfig{
		Conn: records.open, Bytes: min(mostBytes, max(leastBytes, allBytes/g.cfg.Partitions)),
		Stream: g.cfg.Stream, Subjects: []string{strings.Join(subject, ".")},
		Bucket: g.cfg.Bucket, Partition: name, Domain: g.cfg.Domain, Timeout: g.store.timeout,
	}, g.js, g.kv)
	if !g.cfg.Journal {
		ledger, _ := g.ledger(name) // OpenGroup has checked the configuration
		return dispatch.Partition{Name: name, Source: s, Ledger: ledger}, s.Close
	}
	var opened *journal.Ledger // by Open, which one goroutine calls until it succeeds
	open := func(ctx context.Context) (dispatch.Source, lease.Ledger, error) {
		l, err := journal.Open(ctx, journal.Config{Store: g.store.journal(g.journals, name, records.open), Name: name, Fresh: g.cfg.Session / 4,
			Ledger: g.cfg.Ledger})
		if err != nil {
			return nil, nil, err
		}
		opened = l
		return s, l, nil
	}
	return dispatch.Partition{Name: name, Open: open}, func() {
		defer s.Close()
		if opened != nil {
			ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Session/4)
			defer cancel()
			_ = opened.Close(ctx) // without it the next owner takes more care than it need
		}
	}
}

func (g *Group) ledger(name string) (lease.Ledger, error) {
	cfg := g.cfg.Ledger
	return durable.New(durable.Config{Store: g.store.named(name), MaxRetries: cfg.MaxRetries, MaxBacklog: cfg.MaxBacklog,
		Observer: cfg.Observer})
}
