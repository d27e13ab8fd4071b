// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// The torture of owners runs members of a Group in this process and in child processes.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasenats"
)

func TestMain(m *testing.M) {
	ownertest.Child(ownerChild)
	os.Exit(m.Run())
}

// joining is the configuration of a member, which a child process gets as JSON.
type joining struct {
	URL, Stream string
	Partitions  int
	Journal     bool
	line        *ownertest.Line // nil: an ordinary connection
}

const joiningSession = 400 * time.Millisecond

// Dial implements the client's custom dialer.
func (j joining) Dial(network, address string) (net.Conn, error) {
	if j.line == nil {
		return net.Dial(network, address)
	}
	return j.line.DialContext(context.Background(), network, address)
}

// join opens a member with its own connection. It waits while the server is away.
func (j joining) join() (*leasenats.Group, *nats.Conn, error) {
	nc, err := nats.Connect(j.URL, nats.SetCustomDialer(j), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // what goes wrong comes back to the caller as well
	if err != nil {
		return nil, nil, err
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // nothing tells when the server is up
		g, err := leasenats.OpenGroup(ctx, leasenats.GroupConfig{
			Conn: nc, Stream: j.Stream, Subject: j.Stream + ".*.>", Partitions: j.Partitions, Bucket: j.Stream, Group: "g",
			Session: joiningSession, Journal: j.Journal,
			Domain: func(r dispatch.Record) string { return r.Domain[strings.LastIndex(r.Domain, ".")+1:] },
			Ledger: lease.Config{MaxRetries: 100},
		})
		if err == nil || time.Now().After(until) {
			return g, nc, err
		}
	}
}

// ownerChild opens the member of a child process.
func ownerChild(process string) (dispatch.Ownership, error) {
	var j joining
	if err := json.Unmarshal([]byte(process), &j); err != nil {
		return nil, err
	}
	g, _, err := j.join()
	return g, err
}

func TestOwnership(t *testing.T) { ownertest.Run(t, owners(t, false)) }

func TestTortureOwners(t *testing.T) { ownertest.Torture(t, owners(t, false)) }

// The ledgers are written per window.
func TestTortureOwnersOfJournals(t *testing.T) { ownertest.Torture(t, owners(t, true)) }

// owners opens groups, each on a stream of its own.
func owners(t *testing.T, inJournals bool) ownertest.Open {
	dir := t.TempDir()
	server := single(t, dir, 0)
	at := port(t, server)
	restart := func() error {
		stop(server)
		server = single(t, dir, at)
		return nil
	}
	groups := make(chan int, 1)
	groups <- 0
	return func(t testing.TB, partitions int) ownertest.Group {
		number := <-groups
		groups <- number + 1
		j := joining{URL: fmt.Sprintf("nats://127.0.0.1:%d", at), Stream: fmt.Sprint("owners", number), Partitions: partitions, Journal: inJournals}
		process := must(json.Marshal(j))(t)
		nc := must(nats.Connect(j.URL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
			nats.RetryOnFailedConnect(true)))(t)
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		// again calls until it succeeds: a restarted server does not know its streams for a moment.
		again := func(call func(ctx context.Context) error) {
			var err error
			// nothing tells when it does
			for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
				err = func() error {
					ctx, cancel := context.WithTimeout(ctx, time.Second)
					defer cancel()
					return call(ctx)
				}()
				if err == nil {
					return
				}
			}
			t.Fatal(err)
		}
		again(func(ctx context.Context) error {
			_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: j.Stream, Subjects: []string{j.Stream + ".>"},
				Duplicates: 2 * time.Minute})
			return err
		})
		g := ownertest.Group{
			Lease: joiningSession, Process: string(process),
			HandOver: 10 * joiningSession, // members are processes, which a busy machine delays
			Append: func(partition, domain string, payload []byte) {
				subject := j.Stream + "." + partition[strings.LastIndex(partition, "-")+1:] + "." + domain
				again(func(ctx context.Context) error {
					_, err := js.Publish(ctx, subject, payload, jetstream.WithMsgID(ownertest.Name(payload)))
					return err
				})
			},
			Behind: func() (behind []string, err error) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				stream, err := js.Stream(ctx, j.Stream)
				if err != nil {
					return nil, err
				}
				kv, err := js.KeyValue(ctx, j.Stream)
				if err != nil {
					return nil, err
				}
				for i := range partitions {
					last, err := stream.GetLastMsgForSubject(ctx, fmt.Sprintf("%s.%d.>", j.Stream, i))
					if errors.Is(err, jetstream.ErrMsgNotFound) {
						continue
					} else if err != nil {
						return nil, err
					}
					name := fmt.Sprint("g-", i)
					position, err := kv.Get(ctx, "source-"+j.Stream+"."+name)
					if err != nil {
						return nil, err
					}
					var floor uint64
					if _, err := fmt.Sscan(string(position.Value()), &floor); err != nil {
						return nil, err
					}
					if floor <= last.Sequence {
						behind = append(behind, name)
					}
				}
				return behind, nil
			},
			Join: func() ownertest.Member {
				member := j
				member.line = ownertest.NewLine(t)
				group, nc, err := member.join()
				if err != nil {
					t.Fatal(err)
				}
				return ownertest.Member{Ownership: group, Cut: member.line.Cut, Mend: member.line.Mend, Line: member.line,
					Close: nc.Close}
			},
			Restart: restart,
		}
		for i := range partitions {
			g.Partitions = append(g.Partitions, fmt.Sprint("g-", i))
		}
		return g
	}
}
