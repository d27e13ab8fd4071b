// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// The torture of ledgers runs worker processes on JetStream, with a downstream register in another bucket.

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/testkit/faults"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasenats"
)

func TestMain(m *testing.M) {
	faults.Child(openSide)
	ownertest.Child(ownerChild)
	os.Exit(m.Run())
}

// register keeps what was applied in each domain under one key, by compare-and-swap.
type register struct {
	kv     jetstream.KeyValue
	ledger string
}

func (r register) key(domain string) string {
	return r.ledger + "." + base64.RawURLEncoding.EncodeToString([]byte(domain))
}

func (r register) load(ctx context.Context, key string) (entries []faults.Entry, revision uint64, err error) {
	e, err := r.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, err
	}
	err = json.Unmarshal(e.Value(), &entries)
	return entries, e.Revision(), err
}

func (r register) Apply(ctx context.Context, domain string, offset int64, token lease.Token) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	entries, revision, err := r.load(ctx, r.key(domain))
	if err != nil {
		return false, err
	}
	this := faults.Entry{Domain: domain, Offset: offset, Token: token}
	if slices.Contains(entries, this) {
		return true, nil
	}
	if n := len(entries); n > 0 && entries[n-1].Token > token {
		return false, nil
	}
	value, err := json.Marshal(append(entries, this))
	if err != nil {
		return false, err
	}
	if revision == 0 {
		_, err = r.kv.Create(ctx, r.key(domain), value)
	} else {
		_, err = r.kv.Update(ctx, r.key(domain), value, revision)
	}
	return err == nil, err // after any error the caller tries again
}

func (r register) Entries(ctx context.Context) (all []faults.Entry, err error) {
	keys, err := r.kv.ListKeysFiltered(ctx, r.ledger+".*")
	if err != nil {
		return nil, err
	}
	for key := range keys.Keys() {
		entries, _, err := r.load(ctx, key)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	return all, nil
}

func openSide(ctx context.Context, address, ledger string) (faults.Side, error) {
	nc, err := nats.Connect(address, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.RetryOnFailedConnect(true))
	if err != nil {
		return faults.Side{}, err
	}
	side, err := openOn(ctx, nc, ledger)
	if err != nil {
		nc.Close()
	}
	return side, err
}

func openOn(ctx context.Context, nc *nats.Conn, ledger string) (faults.Side, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return faults.Side{}, err
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // nothing tells when the server is up
		side, err := func() (faults.Side, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "register"})
			if err != nil {
				return faults.Side{}, err
			}
			store, err := leasenats.OpenStore(ctx, leasenats.WithTimeout(leasenats.StoreConfig{Conn: nc, Bucket: "ledgers", Name: ledger},
				300*time.Millisecond))
			return faults.Side{Store: store, Register: register{kv, ledger}, Close: nc.Close}, err
		}()
		if err == nil || time.Now().After(until) {
			return side, err
		}
	}
}

func TestTorture(t *testing.T) {
	dir := t.TempDir()
	s := single(t, dir, 0)
	at := port(t, s)
	faults.Run(t, faults.Server{
		Open: openSide, Address: fmt.Sprintf("nats://127.0.0.1:%d", at), TCP: fmt.Sprintf("127.0.0.1:%d", at),
		Via: func(hostport string) string { return "nats://" + hostport },
		Restart: func(context.Context) error {
			stop(s)
			s = single(t, dir, at)
			return nil
		},
	})
}
