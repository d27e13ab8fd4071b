// SPDX-License-Identifier: Apache-2.0

package leasekafka

// OpenGroup checks a Group's configuration before any broker is asked.

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// GroupConfig configures a Group. Brokers, Group and Topics are required; every other field may be zero.
type GroupConfig struct {
	// Brokers are host:port of some brokers of the cluster; the client finds the others.
	Brokers []string
	// Group is the consumer group's name.
	Group string
	// Topics are read whole: each of their partitions is a dispatch.Partition, named topic/number. A new group begins at
	// the first available offset.
	Topics []string
	// Domain returns a record's domain. It gets the record with the Domain that a nil function would give it: its key, or
	// dispatch.Keyless for a key that is null or empty. It is called once for each fetched record, by one goroutine for
	// all partitions, so it should be fast. It must not panic.
	Domain func(dispatch.Record) string

	// Ledger configures the partitions' ledgers, which are in memory and learn the work of other members from the group's
	// offsets, as far as they had committed it. Zero, they give a record up at its first failure. Not used with OpenLedger.
	Ledger lease.Config
	// OpenLedger returns another ledger for a partition, such as a durable one, which is the same for every member. It is
	// called when the partition is taken, and again after pauses up to 5 s while it fails. Its context ends with the partition.
	OpenLedger func(ctx context.Context, partition string) (lease.Ledger, error)
	// CommitEvery is how often a ledger in memory commits its progress above the floor (records done, attempts made),
	// beside the dispatcher's commits. 0: 500 ms. 1 ms to an hour. Not used with OpenLedger.
	CommitEvery time.Duration
	// Window bounds the memory for the fetched records of one partition that wait to be read, or may be read again, in
	// bytes; one answer of a broker, 4 MiB unless Options say otherwise, may exceed it. 0: 2 MiB. At least 1.
	Window int

	// Session is how long a member may be silent before the group takes its partitions: how long a broker waits for a
	// heartbeat, which the member sends every third of it, or every 3 s if that is less. 0: 45 s. 100 ms to a day. Brokers
	// have limits of their own, by default from 6 s to 30 minutes: beyond them Hold fails.
	Session time.Duration
	// DrainTimeout is how long a dispatcher may let its handlers go on when its partition is revoked: the
	// dispatch.Config.DrainTimeout of a Consumer, where that is 0. 0: 10 s. At most an hour.
	DrainTimeout time.Duration
	// RebalanceTimeout is how long the group waits in a rebalance for a live member to give partitions back, before it
	// takes all of its partitions away. 0: 60 s, or as much as DrainTimeout requires if that is more. At least three
	// DrainTimeouts, for the drain, the last commits, and some room, and at most a day.
	RebalanceTimeout time.Duration

	// OnError is called with the reason why the membership was lost or could not begin, why a broker cannot be connected
	// to, and why a partition's floor or ledger cannot be had. What goes on failing is reported at once and then once a
	// minute, until the member has joined, a broker is connected to, or the partition is opened. So is a member that has
	// not joined within a Session, or that no longer works on a partition of its own; and offsets that the log deleted
	// before they were read. It must be safe for concurrent use, and return soon. Nil: slog.Default logs it as a warning.
	OnError func(error)

	// Options are further options of the client: TLS, SASL, a logger, fetch sizes, an instance ID. Options that a field
	// sets, and those for offsets, commits, balancers and callbacks, are rejected; FetchMaxWait, DialTimeout,
	// RequestTimeoutOverhead and RetryTimeoutFn replace this package's.
	Options []kgo.Opt
}

// reserved returns the options that GroupConfig.Options must not contain.
func reserved() []any {
	return []any{
		kgo.SeedBrokers, kgo.WithContext, kgo.TransactionalID,
		kgo.ConsumerGroup, kgo.ConsumeTopics, kgo.ConsumePartitions, kgo.ConsumeRegex, kgo.ConsumeExcludeTopics,
		kgo.ConsumeStartOffset, kgo.ConsumeResetOffset, kgo.ShareGroup, kgo.KeepControlRecords,
		kgo.Balancers, kgo.GroupProtocol, kgo.SessionTimeout, kgo.RebalanceTimeout, kgo.HeartbeatInterval, kgo.BlockRebalanceOnPoll,
		kgo.OnPartitionsAssigned, kgo.OnPartitionsRevoked, kgo.OnPartitionsLost, kgo.OnOffsetsFetched, kgo.AdjustFetchOffsetsFn,
		kgo.OnPartitionsCallbackBlocked,
		kgo.AutoCommitMarks, kgo.AutoCommitInterval, kgo.AutoCommitCallback, kgo.GreedyAutoCommit,
	}
}

// complete checks cfg and sets the defaults.
func (cfg GroupConfig) complete() (GroupConfig, error) {
	for _, needed := range []struct {
		field  string
		values []string
	}{{"Brokers", cfg.Brokers}, {"Group", []string{cfg.Group}}, {"Topics", cfg.Topics}} {
		if slices.Contains(needed.values, "") {
			return cfg, invalidField("GroupConfig."+needed.field, `""`, "not empty")
		}
		if len(needed.values) == 0 {
			return cfg, invalidField("GroupConfig."+needed.field, "empty", "at least one")
		}
	}
	if err := kgo.ValidateOpts(kgo.SeedBrokers(cfg.Brokers...)); err != nil {
		return cfg, invalidField("GroupConfig.Brokers", err.Error(), "host:port")
	}
	if err := orDefault("Window", &cfg.Window, 2<<20, 1, math.MaxInt); err != nil {
		return cfg, err
	}
	if err := orDefault("DrainTimeout", &cfg.DrainTimeout, 10*time.Second, 1, time.Hour); err != nil {
		return cfg, err
	}
	if err := orDefault("Session", &cfg.Session, 45*time.Second, 100*time.Millisecond, 24*time.Hour); err != nil {
		return cfg, err
	}
	least := max(100*time.Millisecond, 3*cfg.DrainTimeout)
	if err := orDefault("RebalanceTimeout", &cfg.RebalanceTimeout, max(time.Minute, least), least, 24*time.Hour); err != nil {
		return cfg, err
	}
	if err := orDefault("CommitEvery", &cfg.CommitEvery, 500*time.Millisecond, time.Millisecond, time.Hour); err != nil {
		return cfg, err
	}
	if cfg.OpenLedger == nil {
		if _, err := lease.NewMemory(cfg.Ledger); err != nil {
			return cfg, invalidField("GroupConfig.Ledger", err.Error(), "a configuration that lease.NewMemory accepts")
		}
	}
	if cfg.OnError == nil {
		cfg.OnError = func(err error) { slog.Warn("leasekafka: a member has trouble", "group", cfg.Group, "err", err) }
	}
	return cfg, cfg.checkOptions()
}

// orDefault replaces 0 by the default, and rejects values out of range.
func orDefault[T int | time.Duration](field string, value *T, zero, least, most T) error {
	if *value == 0 {
		*value = zero
	}
	if *value < least || *value > most {
		return invalidField("GroupConfig."+field, *value, fmt.Sprintf("%v to %v, or 0 (the default, %v)", least, most, zero))
	}
	return nil
}

// checkOptions rejects options that this package sets itself. The clients made here never connect.
func (cfg GroupConfig) checkOptions() error {
	invalid := func(value any, allowed string) error {
		return invalidField("GroupConfig.Options", value, allowed)
	}
	custom, err := kgo.NewClient(cfg.Options...)
	if err != nil {
		return invalid(err.Error(), "options that kgo.NewClient accepts without a group; leasekafka joins and commits itself")
	}
	defer custom.Close()
	plain, err := kgo.NewClient()
	if err != nil {
		return invalid(err.Error(), "no options")
	}
	defer plain.Close()
	for _, option := range reserved() {
		if !reflect.DeepEqual(custom.OptValues(option), plain.OptValues(option)) {
			name := runtime.FuncForPC(reflect.ValueOf(option).Pointer()).Name()
			return invalid(name[strings.LastIndexByte(name, '/')+1:], "options that leasekafka does not set itself")
		}
	}
	if err := kgo.ValidateOpts(cfg.options()...); err != nil {
		return invalid(err.Error(), "options that agree with the other fields of GroupConfig")
	}
	return nil
}

// options returns the client's options, without the callbacks.
func (cfg GroupConfig) options() []kgo.Opt {
	start := kgo.NewOffset().AtStart()
	// A member without a connection must give up its partitions before the group gives them to others, a session after its last
	// heartbeat. The next heartbeat follows within a third of a session; it may be retried for a quarter, and the last try takes
	// up to a quarter.
	quarter := cfg.Session / 4
	requestTimeout := min(10*time.Second, max(100*time.Millisecond, quarter))
	own := []kgo.Opt{
		// A newly assigned partition is fetched only after the fetch under way, which by default waits 5 s for records of other
		// partitions.
		kgo.FetchMaxWait(500 * time.Millisecond),
		// An answer has to arrive within the request's timeout over a link of 400 KB/s, and is in memory beside the windows.
		kgo.FetchMaxBytes(int32(requestTimeout * (4 << 20) / (10 * time.Second))),
		kgo.DialTimeout(requestTimeout),
		kgo.RequestTimeoutOverhead(requestTimeout),
		kgo.RetryTimeoutFn(func(key int16) time.Duration {
			switch key {
			case int16(kmsg.Heartbeat):
				return quarter
			case int16(kmsg.JoinGroup), int16(kmsg.SyncGroup):
				return cfg.Session
			}
			return 30 * time.Second
		}),
	}
	return append(append(own, cfg.Options...), kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumerGroup(cfg.Group),
		kgo.ConsumeTopics(cfg.Topics...),
		kgo.ConsumeStartOffset(start), kgo.ConsumeResetOffset(start),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(cfg.Session), kgo.HeartbeatInterval(min(3*time.Second, cfg.Session/3)),
		kgo.RebalanceTimeout(cfg.RebalanceTimeout))
}
