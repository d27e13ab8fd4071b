// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// OnError is called at once for a new failure and then once a minute. Without OnError, the failure is logged.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

// reports collects the errors that OnError was called with.
type reports struct {
	mu  sync.Mutex
	all []error
}

func (r *reports) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, err)
}

// last returns the number of reports and the last one, nil if there is none.
func (r *reports) last() (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n = len(r.all); n > 0 {
		err = r.all[n-1]
	}
	return n, err
}

// unreachable runs a member whose brokers cannot be reached for some virtual time.
func unreachable(t *testing.T, onError func(error), lasts time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		group, err := leasekafka.OpenGroup(t.Context(), leasekafka.GroupConfig{
			Brokers: []string{"nowhere:9092"}, Group: "orders", Topics: []string{"t"}, OnError: onError,
			Options: []kgo.Opt{kgo.Dialer(func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("down") })},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		if err := group.Hold(ctx, func(context.Context, dispatch.Partition) {}); err != nil {
			t.Error(err)
		}
	})
}

func TestUnreachableBrokersAreToldOnceAMinute(t *testing.T) {
	var got reports
	unreachable(t, got.add, 150*time.Second)
	if n, err := got.last(); n != 3 || !strings.Contains(fmt.Sprint(err), "nowhere:9092") { // at 0, 1 and 2 minutes
		t.Errorf("%d reports in two and a half minutes, last: %v", n, err)
	}
}

func TestUnreachableBrokersAreLogged(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	unreachable(t, nil, 30*time.Second)
	if logged := log.String(); strings.Count(logged, "level=WARN") != 1 || !strings.Contains(logged, "group=orders") {
		t.Errorf("logged: %q", logged)
	}
}

// stalls collects the reasons of Stalled.
type stalls struct {
	mu  sync.Mutex
	all []string
}

func (s *stalls) Observe(e dispatch.Event) {
	if e.Kind == dispatch.Stalled {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, e.Reason)
	}
}

func (s *stalls) reasons() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// A partition whose ledger cannot be opened is held, reported, and stalled. Its work begins when the ledger opens.
func TestLedgerThatCannotBeOpenedIsTold(t *testing.T) {
	k := fake(t, 1)
	var got reports
	closed := errors.New("closed")
	cfg := k.config()
	cfg.OnError = got.add
	var opens atomic.Bool
	cfg.OpenLedger = func(ctx context.Context, partition string) (lease.Ledger, error) {
		if !opens.Load() {
			return nil, closed
		}
		return k.ledger(ctx, partition)
	}
	k.produce(t, of(1, 1, 1)...)
	var stalled stalls
	done := make(chan struct{})
	m := run(t, cfg, dispatch.Config{AttemptTimeout: 50 * time.Millisecond, Observer: &stalled,
		Handler: func(context.Context, dispatch.Job) error {
			close(done)
			return nil
		}})
	until(t, "a report", func() bool { n, _ := got.last(); return n > 0 })
	until(t, "D12: unopened", func() bool { return slices.Contains(stalled.reasons(), "unopened") })
	opens.Store(true)
	<-done
	m.stop(t)
	if n, err := got.last(); n != 1 || !errors.Is(err, closed) || !strings.Contains(err.Error(), k.topic+"/0") {
		t.Errorf("%d reports: %v", n, err)
	}
}

// The broker is reachable but does not answer JoinGroup. The member reports that within a session.
func TestMemberThatDoesNotGetInIsTold(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := fake(t, 1)
		hang := make(chan struct{})
		k.ControlKey(joinGroup, func(kmsg.Request) (kmsg.Response, error, bool) {
			k.SleepControl(func() { <-hang })
			return nil, nil, false
		})
		var got reports
		cfg := k.config()
		cfg.OnError = got.add
		m := run(t, cfg, dispatch.Config{Handler: func(context.Context, dispatch.Job) error { return nil }})
		time.Sleep(cfg.Session + time.Second/2)
		if n, err := got.last(); n != 1 || !strings.Contains(fmt.Sprint(err), "not in the group") {
			t.Errorf("%d reports: %v", n, err)
		}
		close(hang)
		m.stop(t)
	})
}
