package leasenats_test

// This file is a member of a group that is a process of its own.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasetest/faults"
)

const memberEnv = "STOPBANK_GROUP_MEMBER" // the server's address

// asMember makes this process a member if TestGroupProcesses started it as one, and does not return then.
func asMember() {
	address := os.Getenv(memberEnv)
	if address == "" {
		return
	}
	if err := memberProcess(address); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// memberProcess works until standard input ends, and says a line for each effect.
func memberProcess(address string) error {
	nc, err := nats.Connect(address, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	effects, err := js.KeyValue(ctx, "effects")
	if err != nil {
		return err
	}
	t := &process{}
	stop := consumer(t, nc, func(ctx context.Context, job dispatch.Job) error {
		time.Sleep(time.Millisecond) // the work
		if err := apply(ctx, effects, job); err != nil {
			return err
		}
		fmt.Println("done")
		return nil
	})
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
	}
	return stop()
}

// process is what a member that is no test has of a testing.TB.
type process struct{ testing.TB }

func (*process) Helper()        {}
func (*process) Cleanup(func()) {}
func (*process) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// apply has the effect of an order once: it refuses who has lost the lease, and knows what was done.
func apply(ctx context.Context, effects jetstream.KeyValue, job dispatch.Job) error {
	done, revision, err := load(ctx, effects, job.Record.Domain)
	if err != nil {
		return err
	}
	if n := len(done); n > 0 {
		switch last := done[n-1]; {
		case job.Lease.Token < last.Token:
			return errors.New("a later lease has written already")
		case last.Offset >= job.Record.Offset:
			return nil
		}
	}
	value, err := json.Marshal(append(done, faults.Entry{Domain: job.Record.Domain, Offset: job.Record.Offset, Token: job.Lease.Token}))
	if err != nil {
		return err
	}
	_, err = effects.Update(ctx, job.Record.Domain, value, revision)
	return err
}

func load(ctx context.Context, effects jetstream.KeyValue, domain string) (done []faults.Entry, revision uint64, err error) {
	e, err := effects.Get(ctx, domain)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, err
	}
	err = json.Unmarshal(e.Value(), &done)
	return done, e.Revision(), err
}
