// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// The tests share a cluster, a topic, members that process it, and the register that their handlers write to.

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kafka is a cluster with a topic, and a group of the same name.
type kafka struct {
	*kfake.Cluster // nil with KAFKA_BROKERS
	dial           dial
	virtual        bool // its network is in memory
	brokers        []string
	topic          string
	partitions     int
	admin          *kgo.Client
	fresh          *kgo.Client // of produceTo; nil: none since the topic was created

	mu      sync.Mutex
	ledgers map[string]durable.Store
}

// start returns the cluster of KAFKA_BROKERS, or a fake one.
func start(t testing.TB, partitions int32) *kafka {
	t.Helper()
	if k := configured(); k != nil {
		return k.open(t, partitions)
	}
	return fake(t, partitions)
}

// configured is the cluster of KAFKA_BROKERS, or nil.
func configured() *kafka {
	list := os.Getenv("KAFKA_BROKERS")
	if list == "" {
		return nil
	}
	return &kafka{brokers: strings.Split(list, ","), dial: new(net.Dialer).DialContext}
}

// fake returns a cluster in this process, whose answers a test can bend, on a network in memory.
func fake(t testing.TB, partitions int32) *kafka {
	t.Helper()
	network := new(kfake.VirtualNetwork)
	k := fakeOn(t, network.DialContext, kfake.ListenFn(network.Listen))
	k.virtual = true
	return k.open(t, partitions)
}

// onLoopback returns the cluster of KAFKA_BROKERS, or a fake one on a network of this machine.
func onLoopback(t testing.TB, partitions int32) *kafka {
	t.Helper()
	k := configured()
	if k == nil {
		k = fakeOn(t, new(net.Dialer).DialContext)
	}
	return k.open(t, partitions)
}

func fakeOn(t testing.TB, dial dial, options ...kfake.Opt) *kafka {
	t.Helper()
	cluster := must(kfake.NewCluster(append(options, kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.SleepOutOfOrder())...))(t)
	t.Cleanup(cluster.Close)
	return &kafka{Cluster: cluster, dial: dial, brokers: cluster.ListenAddrs()}
}

type dial = func(ctx context.Context, network, address string) (net.Conn, error)

// virtually runs a test in virtual time; in real time with KAFKA_BROKERS.
func virtually(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if configured() != nil {
		test(t)
	} else {
		synctest.Test(t, test)
	}
}

// dialer is an option of every client.
func (k *kafka) dialer() kgo.Opt { return kgo.Dialer(k.dial) }

// line is the network of one member.
func (k *kafka) line(t testing.TB) *ownertest.Line {
	line := ownertest.NewLine(t)
	line.Dial = k.dial
	return line
}

// open makes the topic.
func (k *kafka) open(t testing.TB, partitions int32) *kafka {
	t.Helper()
	k.topic = fmt.Sprintf("stopbank-%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), time.Now().UnixNano())
	k.partitions, k.ledgers = int(partitions), map[string]durable.Store{}
	admin := must(kgo.NewClient(kgo.SeedBrokers(k.brokers...), k.dialer(), kgo.RecordPartitioner(kgo.ManualPartitioner())))(t)
	k.admin = admin
	t.Cleanup(admin.Close)
	noError(t, k.create(t))
	return k
}

// create creates the topic.
func (k *kafka) create(t testing.TB) error {
	t.Helper()
	k.fresh = nil
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = k.topic, int32(k.partitions), 1
	compact := kmsg.NewCreateTopicsRequestTopicConfig()
	policy := "compact"
	compact.Name, compact.Value = "cleanup.policy", &policy
	topic.Configs = append(topic.Configs, compact)
	req.Topics, req.TimeoutMillis = append(req.Topics, topic), 10_000
	resp, err := req.RequestWith(t.Context(), k.admin)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	return err
}

// produce appends records to the partitions that they name.
func (k *kafka) produce(t testing.TB, records ...*kgo.Record) {
	t.Helper()
	for _, r := range records {
		r.Topic = k.topic
	}
	noError(t, k.admin.ProduceSync(t.Context(), records...).FirstErr())
}

// of returns n records of keys, in turn, spread over partitions by key.
func of(n, keys int, partitions int32) []*kgo.Record {
	var records []*kgo.Record
	for i := range n {
		key := i % keys
		records = append(records, &kgo.Record{Key: fmt.Appendf(nil, "key-%d", key), Value: fmt.Appendf(nil, "%d", i),
			Partition: int32(key) % partitions})
	}
	return records
}

// store returns the store of a partition's ledger, the same for all members.
func (k *kafka) store(partition string) durable.Store {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ledgers[partition] == nil {
		k.ledgers[partition] = durable.NewMemStore()
	}
	return k.ledgers[partition]
}

// ledger is the durable ledger of a partition.
func (k *kafka) ledger(_ context.Context, partition string) (lease.Ledger, error) {
	return durable.New(durable.Config{Store: k.store(partition), MaxRetries: 20})
}

// config is that of a member.
func (k *kafka) config() leasekafka.GroupConfig {
	session := 6 * time.Second // a broker's least
	if k.Cluster != nil {
		session = time.Second
	}
	return leasekafka.GroupConfig{
		Brokers: k.brokers, Group: k.topic, Topics: []string{k.topic}, OpenLedger: k.ledger,
		Session: session, DrainTimeout: 2 * time.Second,
		Options: []kgo.Opt{k.dialer(), kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(50 * time.Millisecond)},
	}
}

// offsets returns what the group has committed of each partition: -1 for nothing.
func (k *kafka) offsets(t testing.TB, partitions int32) []kmsg.OffsetFetchResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = k.topic
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic = k.topic
	all := make([]kmsg.OffsetFetchResponseTopicPartition, partitions)
	for p := range partitions {
		topic.Partitions = append(topic.Partitions, p)
		all[p].Offset = -1
	}
	req.Topics = append(req.Topics, topic)
	for _, topic := range must(req.RequestWith(t.Context(), k.admin))(t).Topics {
		for _, p := range topic.Partitions {
			all[p.Partition] = p
		}
	}
	return all
}

// committed returns the offsets that the group has committed.
func (k *kafka) committed(t testing.TB, partitions int32) (offsets []int64) {
	t.Helper()
	for _, p := range k.offsets(t, partitions) {
		offsets = append(offsets, p.Offset)
	}
	return offsets
}

// describe returns what the broker knows of the group.
func (k *kafka) describe(ctx context.Context) (g kmsg.DescribeGroupsResponseGroup, err error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{k.topic}
	resp, err := req.RequestWith(ctx, k.admin)
	if err != nil {
		return g, err
	}
	return resp.Groups[0], nil
}

// members returns the IDs of the group's members, and whether the group is settled: stable, which it is halfway through a
// cooperative rebalance as well, and every partition given to one of them.
func (k *kafka) members(t *testing.T) (ids []string, settled bool) {
	t.Helper()
	group := must(k.describe(t.Context()))(t)
	given := 0
	for _, m := range group.Members {
		ids = append(ids, m.MemberID)
		var plan kmsg.ConsumerMemberAssignment
		if plan.ReadFrom(m.MemberAssignment) == nil {
			for _, topic := range plan.Topics {
				given += len(topic.Partitions)
			}
		}
	}
	return ids, group.State == "Stable" && given == k.partitions
}

// forget makes the group forget a member.
func (k *kafka) forget(ctx context.Context, id string) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = k.topic, id
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: id}}
	resp, err := req.RequestWith(ctx, k.admin)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// holding is a member whose partitions the test works off by itself.
type holding struct {
	running
	taken chan held
}

// held is a partition that a holding got; close over when it has been worked off.
type held struct {
	dispatch.Partition
	ctx  context.Context
	over chan struct{}
}

// end waits until a holding that was canceled has ended, and works off what it takes before that.
func (h *holding) end(t *testing.T) {
	t.Helper()
	for {
		select {
		case p := <-h.taken: // taken again before the end
			close(p.over)
		case err := <-h.result:
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
}

func hold(t *testing.T, cfg leasekafka.GroupConfig) *holding {
	t.Helper()
	group := must(leasekafka.OpenGroup(t.Context(), cfg))(t)
	ctx, cancel := context.WithCancel(context.Background())
	h := &holding{running{group, cancel, make(chan error, 1)}, make(chan held, 100)}
	go func() {
		h.result <- group.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
			over := make(chan struct{})
			h.taken <- held{p, ctx, over}
			<-over
		})
	}()
	t.Cleanup(cancel)
	return h
}

// running is a member at work.
type running struct {
	group  *leasekafka.Group
	cancel context.CancelFunc
	result chan error
}

// run starts a member whose partitions a dispatch.Consumer works off.
func run(t *testing.T, cfg leasekafka.GroupConfig, with dispatch.Config) *running {
	t.Helper()
	group := must(leasekafka.OpenGroup(t.Context(), cfg))(t)
	if with.DeadLetter == nil {
		with.DeadLetter = dispatch.Discard
	}
	if with.CommitEvery == 0 {
		with.CommitEvery = 50 * time.Millisecond
	}
	consumer := must(dispatch.NewConsumer(group, with))(t)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{group: group, cancel: cancel, result: make(chan error, 1)}
	go func() { r.result <- consumer.Run(ctx) }()
	t.Cleanup(cancel)
	return r
}

// stop leaves the group, having drained.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.result; err != nil {
		t.Errorf("a member ended with: %v", err)
	}
}

// register is a store downstream: of each partition and key it keeps what was done, behind a fence.
type register struct {
	mu       sync.Mutex
	done     map[string][]int64 // offsets, by partition and key
	token    map[string]lease.Token
	inside   map[string]int
	effects  int
	refused  int // by the fence, or since they were done
	runs     int
	overlaps int // of two runs for one key
}

func newRegister() *register {
	return &register{done: map[string][]int64{}, token: map[string]lease.Token{}, inside: map[string]int{}}
}

// write is what a handler does: it takes pause, and its effect counts once.
func (g *register) write(job dispatch.Job, pause time.Duration) {
	key := job.Lease.Domain
	g.mu.Lock()
	g.runs++
	if g.inside[key]++; g.inside[key] > 1 {
		g.overlaps++
	}
	g.mu.Unlock()
	time.Sleep(pause) // the work
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside[key]--
	done := g.done[key]
	if job.Lease.Token < g.token[key] || len(done) > 0 && done[len(done)-1] >= job.Record.Offset {
		g.refused++
		return
	}
	g.token[key] = job.Lease.Token
	g.done[key] = append(done, job.Record.Offset)
	g.effects++
}

// handler writes each record, in so much time.
func (g *register) handler(pause time.Duration) dispatch.Handler {
	return func(_ context.Context, job dispatch.Job) error {
		g.write(job, pause)
		return nil
	}
}

func (g *register) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.effects
}

// until polls until a condition holds.
func until(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !met(); time.Sleep(5 * time.Millisecond) { // a broker tells nobody
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
