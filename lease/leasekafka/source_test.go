// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// A partition hands out its records in order, and the window saves seeks.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// read fetches from on until it has n records.
func read(t *testing.T, s dispatch.Source, from int64, n int) []dispatch.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all []dispatch.Record
	for len(all) < n {
		records := must(s.Fetch(ctx, from, n-len(all)))(t)
		all = append(all, records...)
		from = all[len(all)-1].Offset + 1
	}
	return all
}

// Keys, null and empty keys, tombstones, headers and times arrive as they were sent.
func TestRecords(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := start(t, 1)
		at := time.UnixMilli(1_700_000_000_123)
		k.produce(t,
			&kgo.Record{Key: []byte("a"), Value: []byte("v"), Timestamp: at,
				Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}}},
			&kgo.Record{Key: []byte("a"), Value: nil},
			&kgo.Record{Key: nil, Value: []byte("no key")},
			&kgo.Record{Key: []byte{}, Value: []byte{}},
		)
		h := hold(t, k.config())
		p := <-h.taken
		records := read(t, p.Source, 0, 4)
		var got []string
		for _, r := range records {
			got = append(got, fmt.Sprintf("%d %s %q nil=%v", r.Offset, r.Domain, r.Payload, r.Payload == nil))
		}
		want := []string{
			`0 a "v" nil=false`, `1 a "" nil=true`, "2 " + dispatch.Keyless(2) + ` "no key" nil=false`,
			"3 " + dispatch.Keyless(3) + ` "" nil=false`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("records:\n%q, want\n%q", got, want)
		}
		if first := records[0]; !first.Time.Equal(at) || len(first.Headers) != 2 || string(first.Headers[0].Value) != "1" ||
			first.Headers[1].Value != nil {
			t.Errorf("time %v, headers %v", first.Time, first.Headers)
		}
		if end, err := p.Source.(dispatch.Ended).End(t.Context()); end != 4 || err != nil {
			t.Errorf("End: %d, %v", end, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := p.Source.Fetch(ctx, 4, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Fetch at the end: %v", err)
		}
		close(p.over)
		h.stop(t)
	})
}

// transact produces n records in transactions of their own, of which one is aborted.
func (k *kafka) transact(t *testing.T, n int, key func(int) string, aborted int) {
	t.Helper()
	producer := must(kgo.NewClient(kgo.SeedBrokers(k.brokers...), kgo.TransactionalID(k.topic), k.dialer(),
		kgo.DefaultProduceTopic(k.topic)))(t)
	defer producer.Close()
	for i := range n {
		noError(t, producer.BeginTransaction())
		noError(t, producer.ProduceSync(t.Context(), kgo.KeyStringRecord(key(i), fmt.Sprint(i))).FirstErr())
		noError(t, producer.EndTransaction(t.Context(), kgo.TransactionEndTry(i != aborted)))
	}
}

// Offsets that are missing in the log, after compaction or because of transaction markers, are not lost records.
func TestGaps(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := start(t, 1)
		const transactions = 5
		k.transact(t, transactions, func(i int) string { return fmt.Sprint(i % 2) }, 2)
		if k.Cluster != nil {
			k.Compact()
		}
		cfg := k.config()
		cfg.Options = append(cfg.Options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		g := newRegister()
		m := run(t, cfg, dispatch.Config{Handler: g.handler(0)})
		until(t, "the last records", func() bool {
			floor := k.committed(t, 1)[0]
			return floor > 2*(transactions-1)
		})
		m.stop(t)
		if n := g.count(); n == 0 || n > transactions-1 {
			t.Errorf("%d effects: %v", n, g.done)
		}
		if last := g.done["0"]; len(last) == 0 || last[len(last)-1] != 2*(transactions-1) {
			t.Errorf("the last record was not done: %v", g.done)
		}
	})
}

// A key with a quarter of all records falls behind and is read again, from the window: the client goes on where it is.
func TestHotKey(t *testing.T) {
	for name, c := range map[string]struct {
		window int
		seeks  bool
	}{"as it is": {0, false}, "with a window of 10 records": {2000, true}} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				const partitions = 2
				records := 8000
				if c.seeks {
					records = 800
				}
				k := start(t, partitions)
				all := of(records, 500, partitions)
				for i, r := range all {
					if i%8 < 2 { // a quarter of each partition
						r.Key = fmt.Appendf(nil, "hot-%d", r.Partition)
					}
				}
				k.produce(t, all...)
				g := newRegister()
				cfg := k.config()
				cfg.Window = c.window
				m := run(t, cfg, dispatch.Config{MaxInFlight: 32, MaxBuffered: 256, Handler: g.handler(0)})
				until(t, "all of them", func() bool { return g.count() >= records })
				m.stop(t)
				k.check(t, g, records, partitions)
				t.Logf("%d seeks for %d records", m.group.Seeks(), records)
				if seeks := m.group.Seeks(); (seeks > 0) != c.seeks {
					t.Errorf("%d seeks", seeks)
				}
			})
		})
	}
}

// A fetch that finds nothing is over soon: partitions that come meanwhile stand behind it. An option may say otherwise.
func TestFetchWait(t *testing.T) {
	virtually(t, func(t *testing.T) {
		for want, options := range map[int32][]kgo.Opt{500: nil, 100: {kgo.FetchMaxWait(100 * time.Millisecond)}} {
			k := fake(t, 1)
			waits := make(chan int32, 1000)
			k.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
				k.KeepControl()
				select {
				case waits <- req.(*kmsg.FetchRequest).MaxWaitMillis:
				default:
				}
				return nil, nil, false
			})
			cfg := k.config()
			cfg.Options = append(slices.Clip(options), k.dialer())
			h := hold(t, cfg)
			p := <-h.taken
			if got := <-waits; got != want {
				t.Errorf("a fetch waits %d ms, want %d", got, want)
			}
			close(p.over)
			h.stop(t)
		}
	})
}

// Offsets that the log deletes before they are read are passed over, and told once.
func TestDeletedRecordsAreTold(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := fake(t, 1)
		var got reports
		cfg := k.inMemory(3)
		cfg.OnError = got.add
		g := newRegister()
		work := dispatch.Config{Handler: g.handler(0)}
		done := func(m *running, records int64) {
			until(t, "the records", func() bool { return k.committed(t, 1)[0] == records })
			m.stop(t)
		}
		k.produce(t, of(2, 1, 1)...)
		done(run(t, cfg, work), 2)
		k.produce(t, of(6, 1, 1)...)
		k.purge(t, k.topic, 5)
		done(run(t, cfg, work), 8)
		done(run(t, cfg, work), 8) // has nothing to tell
		if n, err := got.last(); n != 1 || !strings.Contains(fmt.Sprint(err), k.topic+"/0: the log has deleted the offsets from 2 to 4:") {
			t.Errorf("%d reports, the last: %v", n, err)
		}
		if n := g.count(); n != 5 {
			t.Errorf("%d effects: %v", n, g.done)
		}
	})
}
