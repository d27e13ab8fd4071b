// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// A store rejects unsuitable buckets, leaves other programs' keys alone, and returns errors that say whether a write was applied.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/leasenats"
)

func TestConfig(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	for field, cfg := range map[string]leasenats.StoreConfig{
		"Conn":     {Bucket: "b"},
		"Bucket":   {Conn: nc, Bucket: "a.b"},
		"Name":     {Conn: nc, Bucket: "b", Name: "a/b"},
		"Replicas": {Conn: nc, Bucket: "b", Replicas: 6},
		"Storage":  {Conn: nc, Bucket: "b", Storage: 7},
	} {
		s, err := leasenats.OpenStore(ctx, cfg)
		var invalid *lease.InvalidError
		if s != nil || !errors.As(err, &invalid) || !errors.Is(err, lease.ErrInvalid) ||
			invalid.Field != "leasenats.StoreConfig."+field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for want, cfg := range map[string]leasenats.StoreConfig{
		"lease: leasenats.StoreConfig.Conn is nil; allowed: a connection":                      {Bucket: "b"},
		`lease: leasenats.StoreConfig.Bucket is ""; allowed: 1 to 64 letters, digits, - and _`: {Conn: nc},
		// The prefix of the sources' positions.
		`lease: leasenats.StoreConfig.Name is "source-S"; ` +
			`allowed: 1 to 64 letters, digits, - and _, not beginning with source-`: {Conn: nc, Bucket: "b", Name: "source-S"},
	} {
		if _, err := leasenats.OpenStore(ctx, cfg); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	var invalid *lease.InvalidError
	_, err := leasenats.OpenStore(nil, leasenats.StoreConfig{Conn: nc, Bucket: "b"}) //nolint:staticcheck // refused, not a panic
	if !errors.As(err, &invalid) || invalid.Field != "leasenats.ctx" {
		t.Errorf("a nil context: %v", err)
	}
}

// A bucket that would drop, expire or hide records is rejected, with the name of the wrong setting.
func TestBucketsThatAreRefused(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := must(jetstream.New(nc))(t)
	bucket := "" // one for each case: a server may still be removing the files of a deleted one
	kv := func(cfg jetstream.KeyValueConfig) error {
		cfg.Bucket = bucket
		_, err := js.CreateKeyValue(ctx, cfg)
		return err
	}
	stream := func(change func(*jetstream.StreamConfig)) error {
		cfg := jetstream.StreamConfig{Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, MaxMsgsPerSubject: 1,
			Discard: jetstream.DiscardNew}
		change(&cfg)
		_, err := js.CreateStream(ctx, cfg)
		return err
	}
	for field, make := range map[string]func() error{
		"":                  func() error { return kv(jetstream.KeyValueConfig{}) },
		"MaxMsgsPerSubject": func() error { return kv(jetstream.KeyValueConfig{History: 5}) },
		"MaxAge":            func() error { return kv(jetstream.KeyValueConfig{TTL: time.Hour}) },
		"AllowMsgTTL":       func() error { return kv(jetstream.KeyValueConfig{LimitMarkerTTL: time.Hour}) },
		"Storage":           func() error { return kv(jetstream.KeyValueConfig{Storage: jetstream.MemoryStorage}) },
		"Discard":           func() error { return stream(func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }) },
		"Subjects": func() error {
			return stream(func(c *jetstream.StreamConfig) { c.Subjects = []string{"$KV." + bucket + ".x"} })
		},
		"Retention": func() error {
			return stream(func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy })
		},
		"NoAck": func() error { return stream(func(c *jetstream.StreamConfig) { c.NoAck = true }) },
		"SubjectTransform": func() error {
			return stream(func(c *jetstream.StreamConfig) {
				c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "$KV." + bucket + ".>", Destination: "$KV.c.>"}
			})
		},
		"Mirror, Sources": func() error {
			return stream(func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "KV_other"}} })
		},
	} {
		bucket = strings.ToLower("b" + strings.NewReplacer(",", "", " ", "").Replace(field))
		if err := make(); err != nil {
			t.Fatalf("%s: %v", field, err)
		}
		_, err := leasenats.OpenStore(ctx, leasenats.StoreConfig{Conn: nc, Bucket: bucket})
		var refused *lease.InvalidError
		if field == "" {
			if err != nil {
				t.Errorf("a bucket of any key-value client: %v", err)
			}
		} else if !errors.As(err, &refused) || refused.Field != "leasenats.bucket "+bucket+": "+field {
			t.Errorf("%s: %v", field, err)
		}
	}
	openStore(t, leasenats.StoreConfig{Conn: nc, Bucket: "own"})
	openStore(t, leasenats.StoreConfig{Conn: nc, Bucket: "own"}) // its own
}

// A key-value client can read the records. Keys outside the ledger's prefix are ignored; a key within it that another program
// wrote or deleted is an error.
func TestForeignKeys(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	store := openStore(t, leasenats.StoreConfig{Conn: nc, Bucket: "b"})
	js := must(jetstream.New(nc))(t)
	kv := must(js.KeyValue(ctx, "b"))(t)
	for _, key := range []string{"other", "ledgers.d.A", "other.d.A"} {
		must(kv.Put(ctx, key, []byte("x")))(t)
	}
	l := open(t, store, lease.Config{})
	long := strings.Repeat("x", 1<<16-1)
	for _, domain := range []string{"order/17", "a.b c", long} {
		if a, err := l.TryAcquire(ctx, domain, 1); err != nil || a.Status != lease.Acquired {
			t.Fatal(a, err)
		}
	}
	keys := must(kv.Keys(ctx))(t)
	slices.Sort(keys)
	if want := []string{"ledger.d.a=2Eb=20c", "ledger.d.order/17"}; len(keys) != 7 || !slices.Equal(keys[:2], want) {
		t.Errorf("%q", keys)
	}
	held := 0
	for _, err := range l.Held(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		held++
	}
	if held != 3 {
		t.Errorf("%d leases", held)
	}
	refuses := func(what, key string, list bool) {
		t.Helper()
		l := open(t, store, lease.Config{})
		if a, err := l.TryAcquire(ctx, "order/17", 1); !errors.Is(err, durable.ErrStore) ||
			!strings.Contains(err.Error(), "bucket b, key "+key+": ") {
			t.Errorf("%s: TryAcquire = %+v, %v", what, a, err)
		}
		for item, err := range l.Held(ctx) {
			if item == (lease.Lease{}) != (err != nil) || err != nil && !strings.Contains(fmt.Sprint(err), ", key ") {
				t.Errorf("%s: Held yields %+v, %v", what, item, err)
			}
			list = list && err == nil
		}
		if list {
			t.Errorf("%s: not listed", what)
		}
	}
	must(kv.PutString(ctx, "ledger.d.order/17", "mine"))(t)
	refuses("a value of somebody else's", "ledger.d.order/17", true)
	noError(t, kv.Delete(ctx, "ledger.d.order/17"))
	refuses("deleted", "ledger.d.order/17", true)
	noError(t, kv.Purge(ctx, "ledger.d.order/17"))
	refuses("purged", "ledger.d.order/17", true)
	// The key of a long name holds another name.
	b, version, err := store.Load(ctx, long)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if strings.HasPrefix(key, "ledger.h.") {
			m := nats.NewMsg("$KV.b." + key)
			m.Header.Set("Lease", "held")
			m.Data = append([]byte{1, 'x'}, b...)
			if ack, err := js.PublishMsg(ctx, m); err != nil || ack.Sequence <= version {
				t.Fatal(ack, err)
			}
		}
	}
	if _, _, err := store.Load(ctx, long); !strings.Contains(fmt.Sprint(err), ", key ") {
		t.Errorf("another's name: %v", err)
	}
}

// A write that the server rejects is ErrNotApplied; a version that is not the latest is ErrConflict.
func TestRefusals(t *testing.T) {
	nc := connect(t, single(t, t.TempDir(), 0).ClientURL())
	js := must(jetstream.New(nc))(t)
	must(js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "b", MaxBytes: 4096, MaxValueSize: 1000}))(t)
	store := openStore(t, leasenats.StoreConfig{Conn: nc, Bucket: "b"})
	version, err := store.Swap(ctx, "A", 0, []byte("1"), durable.Neither)
	if err != nil || version == 0 {
		t.Fatal(version, err)
	}
	for _, old := range []uint64{0, version - 1, version + 1} {
		if old == version {
			continue
		}
		if v, err := store.Swap(ctx, "A", old, []byte("2"), durable.Neither); !errors.Is(err, durable.ErrConflict) || v != 0 {
			t.Errorf("old %d: %d, %v", old, v, err)
		}
	}
	for what, size := range map[string]int{"the bucket's largest": 1500, "the server's largest": 2 << 20} {
		if _, err := store.Swap(ctx, "A", version, make([]byte, size), durable.Neither); !errors.Is(err, durable.ErrNotApplied) {
			t.Errorf("%s: %v", what, err)
		}
	}
	full := false
	for i := range 20 {
		if _, err := store.Swap(ctx, string(rune('a'+i)), 0, make([]byte, 500), durable.Held); err != nil {
			full = true
			if !errors.Is(err, durable.ErrNotApplied) {
				t.Errorf("a full bucket: %v", err)
			}
		}
	}
	if !full {
		t.Error("the bucket is never full")
	}
	if b, v, err := store.Load(ctx, "A"); err != nil || string(b) != "1" || v != version {
		t.Errorf("%q, %d, %v", b, v, err)
	}
}

// While the server is away, calls soon return an UnreachableError, and the ledger is unchanged.
func TestUnreachable(t *testing.T) {
	dir := t.TempDir()
	server := single(t, dir, 0)
	at := port(t, server)
	nc := connect(t, server.ClientURL())
	store := openStore(t, leasenats.WithTimeout(leasenats.StoreConfig{Conn: nc, Bucket: "b"}, 300*time.Millisecond))
	l := open(t, store, lease.Config{})
	a, err := l.TryAcquire(ctx, "A", 1)
	if err != nil {
		t.Fatal(err)
	}
	stop(server)
	eventually(t, "the loss is noticed", func() bool { return !nc.IsConnected() })
	for what, call := range map[string]func() error{
		"Succeed":    func() error { _, err := l.Succeed(ctx, "A", a.Lease.Token); return err },
		"TryAcquire": func() error { _, err := l.TryAcquire(ctx, "B", 1); return err },
		"Inspect":    func() error { _, err := l.Inspect(ctx, "A"); return err },
		"Compact":    func() error { return l.Compact(ctx, 1) },
		"Held": func() (err error) {
			for _, err = range l.Held(ctx) {
			}
			return err
		},
	} {
		if err := call(); !is[*leasenats.UnreachableError](err) || !errors.Is(err, durable.ErrStore) ||
			errors.Is(err, durable.ErrAmbiguous) {
			t.Errorf("%s: %v", what, err)
		}
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := store.Swap(done, "A", 1, nil, durable.Neither); !errors.Is(err, durable.ErrNotApplied) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("a done ctx: %v", err)
	}
	if _, err := leasenats.OpenStore(ctx, leasenats.WithTimeout(leasenats.StoreConfig{Conn: nc, Bucket: "b"},
		100*time.Millisecond)); !is[*leasenats.UnreachableError](err) {
		t.Errorf("Open: %v", err)
	}
	single(t, dir, at)
	eventually(t, "the server is back", nc.IsConnected)
	if c, err := l.Succeed(ctx, "A", a.Lease.Token); err != nil || c.Status != lease.NoBacklog {
		t.Errorf("after the return: %+v, %v", c, err)
	}
	nc.Close()
	if _, err := l.TryAcquire(ctx, "A", 2); !is[*leasenats.UnreachableError](err) || !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("a closed connection: %v", err)
	}
}
