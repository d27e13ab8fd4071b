// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"
)

func etcdProgram() program { return program{"etcd", serveEtcd, driveEtcd} }

func serveEtcd(addr, dir string, by shield) error {
	peer, err := freeAddr()
	if err != nil {
		return err
	}
	clients, peers := url.URL{Scheme: "http", Host: addr}, url.URL{Scheme: "http", Host: peer}
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = dir, "error"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true // this machine's disk is no part of the comparison
	cfg.GRPCAdditionalServerOptions = by.options
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	return <-server.Err()
}

// driveEtcd opens 600 watches at once, each on a stream of its own as 600 clients would, while short calls come at about a tenth
// of what the server can do. Then each watch gets ten events a second.
func driveEtcd(ctx context.Context, addr string, t *tally) error {
	const (
		watches, calls = 600, 800
		every          = 5 * time.Millisecond
	)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Put(ctx, "key", "value"); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var (
		short, streams sync.WaitGroup
		events         atomic.Int64
		stopped        atomic.Bool
	)
	watch := func(n int) {
		began, what := time.Now(), "a watch is opened"
		err := errors.New("ended early")
		own := metadata.AppendToOutgoingContext(watching, "client", strconv.Itoa(n))
		for r := range client.Watch(own, "watched", clientv3.WithCreatedNotify()) {
			if r.Created {
				t.add(what, began, nil)
				what = "a watch lives on"
			}
			if r.Err() != nil {
				err = r.Err()
			}
			events.Add(int64(len(r.Events)))
		}
		if stopped.Load() {
			err = nil
		}
		t.add(what, began, err)
	}
	call := func(n int, when string) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		began, what, key := time.Now(), "a get", clientv3.OpGet("key")
		if n%4 == 0 {
			what, key = "a put", clientv3.OpPut("key", "value")
		}
		_, err := client.Do(ctx, key)
		t.add(what+" while "+when, began, err)
	}
	when := "all is quiet"
	for n := range calls {
		switch n {
		case calls / 4:
			when = "watches are opened"
			for n := range watches {
				streams.Go(func() { watch(n) })
			}
		case calls / 2:
			when = "events come"
		}
		if n >= calls/2 && n%20 == 0 {
			short.Go(func() { _, _ = client.Put(ctx, "watched", "value") })
		}
		now := when
		short.Go(func() { call(n, now) })
		time.Sleep(every)
	}
	short.Wait()
	const puts = calls / 2 / 20
	wait(ctx, func() bool { return events.Load() == watches*puts })
	t.came("an event of a watch", int(events.Load()), watches*puts)
	stopped.Store(true)
	stop()
	streams.Wait()
	return nil
}

// wait gives what is under way five seconds to come.
func wait(ctx context.Context, come func() bool) {
	for began := time.Now(); !come() && time.Since(began) < 5*time.Second && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
	}
}
