// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// Owners of partitions with ledgers in memory are killed; the next owner repeats only what was not committed.

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

// inMemory returns a member's configuration with ledgers in memory.
func (k *kafka) inMemory(retries int) leasekafka.GroupConfig {
	cfg := k.config()
	cfg.OpenLedger, cfg.Ledger, cfg.CommitEvery = nil, lease.Config{MaxRetries: retries}, 10*time.Millisecond
	return cfg
}

// mortal is a member that can be killed: then it is cut off from the brokers, and its handlers have no effect.
type mortal struct {
	*running
	line *ownertest.Line
	once sync.Once
	dead chan struct{}
}

func (m *mortal) kill() {
	m.once.Do(func() {
		m.line.Cut()
		close(m.dead)
	})
}

// alive starts a mortal. After its death its handler is not called, and the results of running handlers do not count.
func (k *kafka) alive(t *testing.T, cfg leasekafka.GroupConfig, with dispatch.Config) *mortal {
	t.Helper()
	m := &mortal{line: k.line(t), dead: make(chan struct{})}
	cfg.Options = append(slices.Clip(cfg.Options), kgo.Dialer(m.line.DialContext))
	handle := with.Handler
	with.Handler = func(ctx context.Context, job dispatch.Job) (err error) {
		select {
		case <-m.dead:
		default:
			err = handle(ctx, job)
		}
		select {
		case <-m.dead:
			<-ctx.Done()
			return ctx.Err()
		default:
			return err
		}
	}
	m.running = run(t, cfg, with)
	t.Cleanup(func() { // dead members leave at the end of the test
		m.cancel()
		m.line.Mend()
		<-m.result
	})
	return m
}

// committedMetadata returns the committed offset and metadata of partition 0.
func (k *kafka) committedMetadata(t testing.TB) (floor int64, metadata string) {
	t.Helper()
	part := k.offsets(t, 1)[0]
	if part.Metadata != nil {
		metadata = *part.Metadata
	}
	return part.Offset, metadata
}

// runs counts the runs of handlers by offset.
type runs struct {
	mu sync.Mutex
	of map[int64]int
}

func (r *runs) add(offset int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[int64]int{}
	}
	r.of[offset]++
}

func (r *runs) count(offset int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[offset]
}

func (r *runs) all() map[int64]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.of)
}

// A stuck record of the first key holds the floor. The partition's next owner does each record that was not committed as done,
// once, and no other.
func TestKilledOwnerAboveAStuckKey(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const records = 400
		k := start(t, 1)
		k.produce(t, &kgo.Record{Key: []byte("stuck")})
		k.produce(t, of(records-1, 40, 1)...)
		var first, second runs
		a := k.alive(t, k.inMemory(3), dispatch.Config{MaxInFlight: 8, Handler: func(ctx context.Context, job dispatch.Job) error {
			first.add(job.Record.Offset)
			if job.Record.Offset == 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(time.Duration(job.Record.Offset%5) * time.Millisecond) // the work
			return nil
		}})
		until(t, "a half", func() bool { return len(first.all()) > records/2 })
		a.kill()
		floor, metadata := k.committedMetadata(t)
		done, wrong := leasekafka.Done(metadata, floor)
		if floor != 0 || wrong != "" || len(done) < records/4 {
			t.Fatalf("D4: floor %d, %d done, %s", floor, len(done), wrong)
		}
		b := run(t, k.inMemory(3), dispatch.Config{MaxInFlight: 8, Handler: func(_ context.Context, job dispatch.Job) error {
			second.add(job.Record.Offset)
			return nil
		}})
		until(t, "the end of the log", func() bool {
			floor, _ := k.committedMetadata(t)
			return floor == records
		})
		b.stop(t)
		want := map[int64]int{}
		for o := range int64(records) {
			if !slices.Contains(done, o) {
				want[o] = 1
			}
		}
		if got := second.all(); !maps.Equal(got, want) {
			t.Errorf("D4: of %d that were not done the next owner did %d: %v", len(want), len(got), got)
		}
		for _, o := range done {
			if first.count(o) != 1 {
				t.Errorf("D4: %d counts as done, and was run %d times", o, first.count(o))
			}
		}
		t.Logf("%d done by the first, %d of them committed, %d done by the second", len(first.all())-1, len(done), len(want))
	})
}

// The attempts of a key that always fails are counted over all owners, although each is killed before the next CommitEvery.
func TestAttemptsSurviveOwners(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const retries = 5
		k := start(t, 1)
		k.produce(t, &kgo.Record{Key: []byte("poison")}, &kgo.Record{Key: []byte("other")})
		cfg := k.inMemory(retries)
		cfg.CommitEvery = time.Hour
		var all runs
		letters := make(chan dispatch.DeadLetter, 10)
		with := func(die func()) dispatch.Config {
			n := 0
			return dispatch.Config{
				Backoff: 5 * time.Millisecond, MaxBackoff: 20 * time.Millisecond, CommitEvery: time.Hour,
				Handler: func(_ context.Context, job dispatch.Job) error {
					all.add(job.Record.Offset)
					if job.Record.Domain != "poison" {
						return nil
					}
					if n++; n == 3 {
						die()
					}
					return errors.New("poison")
				},
				DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
					letters <- letter
					return nil
				},
			}
		}
		for range 2 {
			m := make(chan *mortal, 1)
			owner := k.alive(t, cfg, with(func() { (<-m).kill() }))
			m <- owner
			<-owner.dead
		}
		last := run(t, cfg, with(func() {}))
		letter := <-letters
		if letter.Record.Domain != "poison" || letter.Lease.RetryCount != retries {
			t.Errorf("D6: given up: %+v", letter)
		}
		last.stop(t)
		// Each killed owner had a third run, which nobody has counted.
		if n := all.count(0); n != retries+1+2 {
			t.Errorf("D6: the poisoned record was run %d times, want %d", n, retries+1+2)
		}
		if floor, _ := k.committedMetadata(t); floor != 2 {
			t.Errorf("D6: committed: %d", floor)
		}
	})
}

// A record that kills its process each time, after a commit since it was begun, is given up after MaxRetries + 1 runs. Records
// that run beside it lose no attempts.
func TestKillerDiesAlone(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const retries, innocents = 2, 6
		k := start(t, 1)
		k.produce(t, &kgo.Record{Key: []byte("killer")})
		for i := range innocents {
			k.produce(t, &kgo.Record{Key: []byte{'a' + byte(i)}})
		}
		cfg := k.inMemory(retries)
		var all runs
		var mu sync.Mutex
		var letters []dispatch.DeadLetter
		deaths := 0
		for over := false; !over; {
			var m *mortal
			ready, finished := make(chan struct{}), make(chan struct{})
			m = k.alive(t, cfg, dispatch.Config{
				AttemptTimeout: time.Minute,
				Handler: func(ctx context.Context, job dispatch.Job) error {
					<-ready
					all.add(job.Record.Offset)
					if job.Record.Domain == "killer" {
						until(t, "a commit that knows of it", func() bool {
							floor, metadata := k.committedMetadata(t)
							return slices.Contains(leasekafka.Running(metadata, floor), 0)
						})
						m.kill()
						return nil
					}
					select { // the innocent take longer
					case <-m.dead:
					case <-time.After(200 * time.Millisecond):
					}
					return nil
				},
				DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
					mu.Lock()
					defer mu.Unlock()
					letters = append(letters, letter)
					close(finished)
					return nil
				},
			})
			close(ready)
			select {
			case <-m.dead:
				deaths++
			case <-finished:
				until(t, "the end of the log", func() bool {
					floor, _ := k.committedMetadata(t)
					return floor == innocents+1
				})
				over = true
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(letters) != 1 || letters[0].Record.Domain != "killer" || !errors.Is(letters[0].Err, dispatch.ErrDied) {
			t.Errorf("D6: given up: %+v", letters)
		}
		if deaths != retries+1 || all.count(0) != retries+1 {
			t.Errorf("D6: %d deaths, %d runs of the killer, want %d", deaths, all.count(0), retries+1)
		}
	})
}

// If every second record is stuck, the metadata of a commit is soon full. Then no new records are read until some are done, and
// no commit exceeds the brokers' limit.
func TestMetadataFull(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const records = 6000
		k := fake(t, 1)
		k.produce(t, of(records, records, 1)...)
		var most atomic.Int64
		k.ControlKey(offsetCommit, func(req kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			for _, topic := range req.(*kmsg.OffsetCommitRequest).Topics {
				for _, p := range topic.Partitions {
					if p.Metadata != nil {
						most.Store(max(most.Load(), int64(len(*p.Metadata))))
					}
				}
			}
			return nil, nil, false
		})
		var all runs
		release := make(chan struct{})
		cfg := k.inMemory(3)
		cfg.Session = 10 * time.Second
		m := run(t, cfg, dispatch.Config{MaxInFlight: 3000, MaxBuffered: 3000, AttemptTimeout: time.Hour,
			Handler: func(_ context.Context, job dispatch.Job) error {
				all.add(job.Record.Offset)
				if job.Record.Offset%2 == 0 {
					<-release
				}
				return nil
			}})
		before := -1
		until(t, "rest", func() bool {
			n := len(all.all())
			same := n == before
			before = n
			time.Sleep(200 * time.Millisecond) // in which an owner that reads on would
			return same && n > 0 && most.Load() >= 3072
		})
		if before == records {
			t.Error("all was read")
		}
		close(release)
		until(t, "all of them", func() bool {
			floor, _ := k.committedMetadata(t)
			return floor == records
		})
		m.stop(t)
		for o := range int64(records) {
			if n := all.count(o); n != 1 {
				t.Fatalf("%d was run %d times", o, n)
			}
		}
		t.Logf("at rest after %d records; the longest metadata: %d characters", before, most.Load())
		if most.Load() > 4096 {
			t.Errorf("a commit has %d characters of metadata", most.Load())
		}
	})
}

// Offsets that are missing in the log count as done: behind a stuck record, with a transaction marker at every second offset, the
// offsets that are done are one span.
func TestMetadataOfGaps(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const transactions = 40
		k := start(t, 1)
		k.transact(t, transactions, func(i int) string { return string(rune('a' + i)) }, -1)
		release := make(chan struct{})
		m := run(t, k.inMemory(3), dispatch.Config{Handler: func(_ context.Context, job dispatch.Job) error {
			if job.Record.Offset == 0 {
				<-release
			}
			return nil
		}})
		until(t, "one span of all that is done", func() bool {
			floor, metadata := k.committedMetadata(t)
			done, _ := leasekafka.Done(metadata, floor)
			return floor == 0 && len(done) >= 2*(transactions-1) && leasekafka.Spans(metadata, floor) == 1
		})
		close(release)
		m.stop(t)
	})
}

// Metadata of another program is ignored. Metadata of a newer version stalls the partition, with a report, until it is replaced.
func TestMetadataOfOthers(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := start(t, 1)
		k.produce(t, of(10, 5, 1)...)
		k.commit(t, 3, "consumer-7@host")
		var all runs
		work := dispatch.Config{Handler: func(_ context.Context, job dispatch.Job) error {
			all.add(job.Record.Offset)
			return nil
		}}
		m := run(t, k.inMemory(3), work)
		until(t, "all from there on", func() bool { return len(all.all()) == 7 })
		m.stop(t)
		floor, metadata := k.committedMetadata(t)
		if floor != 10 || !strings.HasPrefix(metadata, "stopbank-2.") {
			t.Errorf("committed: %d, %q", floor, metadata)
		}

		k.commit(t, 5, "stopbank-3.something")
		var got reports
		cfg := k.inMemory(3)
		cfg.OnError = got.add
		all = runs{}
		m = run(t, cfg, work)
		until(t, "a word on it", func() bool {
			_, err := got.last()
			return err != nil && strings.Contains(err.Error(), k.topic+"/0: the metadata of offset 5 is ")
		})
		m.stop(t)
		if n := len(all.all()); n != 0 {
			t.Errorf("%d records were worked on", n)
		}
		if floor, metadata := k.committedMetadata(t); floor != 5 || metadata != "stopbank-3.something" {
			t.Errorf("committed: %d, %q", floor, metadata)
		}
		k.commit(t, 5, "") // as Kafka's tools do
		m = run(t, cfg, work)
		until(t, "the rest", func() bool { return len(all.all()) == 5 })
		m.stop(t)
	})
}

// commit commits an offset of partition 0 as another program does, while the group has no members.
func (k *kafka) commit(t *testing.T, offset int64, metadata string) {
	t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = k.topic, -1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = k.topic
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Offset, part.LeaderEpoch, part.Metadata = offset, -1, &metadata
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	if ids, err := k.admin.RequestCachedMetadata(t.Context(), kmsg.NewPtrMetadataRequest(), time.Minute); err == nil {
		for _, known := range ids.Topics {
			if known.Topic != nil && *known.Topic == k.topic {
				req.Topics[0].TopicID = known.TopicID
			}
		}
	}
	if _, err := req.RequestWith(t.Context(), k.admin); err != nil {
		t.Fatal(err)
	}
	if floor, got := k.committedMetadata(t); floor != offset || got != metadata {
		t.Fatalf("committed: %d, %q", floor, got)
	}
}

// A group may stay in a rebalance, or a broker that lost its way may say so. A member leaves all the same, as fast as it drains.
func TestALeavingMemberWaitsForNoRebalance(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := fake(t, 1)
		k.produce(t, of(10, 2, 1)...)
		refused := make(chan struct{})
		refuse := sync.OnceFunc(func() { close(refused) })
		var commits atomic.Int64
		k.ControlKey(offsetCommit, func(req kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			if commits.Add(1) == 1 {
				return nil, nil, false // it says who works here now
			}
			refuse()
			return answer(req.(*kmsg.OffsetCommitRequest), kerr.RebalanceInProgress), nil, true
		})
		cfg := k.inMemory(1)
		m := run(t, cfg, dispatch.Config{CommitEvery: time.Hour, Handler: func(context.Context, dispatch.Job) error { return nil }})
		<-refused
		began := time.Now()
		m.cancel()
		err := <-m.result
		if took := time.Since(began); took > 2*cfg.DrainTimeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it left after %v, with %v to drain: %v", took, cfg.DrainTimeout, err)
		}
	})
}
