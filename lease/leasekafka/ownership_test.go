package leasekafka_test

// This file runs the contract's own suite.

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease/leasekafka"
	"github.com/stopbank/stopbank/lease/leasetest/ownertest"
)

func TestOwnership(t *testing.T) {
	ownertest.Run(t, func(t testing.TB, partitions int) ownertest.Group {
		k := start(t, int32(partitions))
		g := ownertest.Group{Append: func(partition, domain string, payload []byte) {
			number, err := strconv.Atoi(partition[strings.LastIndexByte(partition, '/')+1:])
			if err != nil {
				t.Fatal(err)
			}
			k.produce(t, &kgo.Record{Key: []byte(domain), Value: payload, Partition: int32(number)})
		}}
		for i := range partitions {
			g.Partitions = append(g.Partitions, k.topic+"/"+strconv.Itoa(i))
		}
		g.Join = func() ownertest.Member {
			line := ownertest.NewLine(t)
			cfg := k.config()
			if k.Cluster != nil {
				cfg.SessionTimeout = 500 * time.Millisecond
			}
			cfg.Options = append(cfg.Options, kgo.Dialer(line.DialContext))
			group, err := leasekafka.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return ownertest.Member{Ownership: group, Cut: line.Cut, Mend: line.Mend}
		}
		return g
	})
}
