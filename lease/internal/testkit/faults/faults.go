// SPDX-License-Identifier: Apache-2.0

// Package faults tortures an engine by the faults of real operation: processes that die or stall at the worst moment, lost
// replies, crashing servers. It counts the faults and checks the results.
//
// A test binary of the engine plays both parts. Its TestMain calls [Child] first, which turns a restarted binary into a worker
// process; its test calls [Run], which starts such workers, kills and stops them, and reads the ledger afterwards.
//
//	func TestMain(m *testing.M) {
//		faults.Child(openSide)
//		os.Exit(m.Run())
//	}
//
//	func TestTorture(t *testing.T) {
//		faults.Run(t, faults.Server{Open: openSide, Address: url, TCP: hostport, Via: through, Restart: restart})
//	}
//
// # Verdict
//
// Every round has a ledger of its own, offsets waiting in a few domains, and a [Register]: the downstream store in which a worker
// records its effects, and which compares tokens. At the end of a round
//
//   - nothing is lost: each offset is in the register and processed in the ledger, or was given up after its last attempt;
//   - nothing is duplicated: within a domain the register has the order of arrival, no offset is handled again once its
//     completion was acknowledged, and an offset that was handled again (its first holder died before it could complete it)
//     has a greater token;
//   - no token was granted twice, and tokens never decreased;
//   - a worker that lost a lease was told so by the ledger and by the register.
package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/child"
)

var (
	tortureTime = flag.Duration("torture.time", 0, "how long faults are injected; 0: one round of each kind")
	tortureSeed = flag.Uint64("torture.seed", 0, "seed of the choices; 0: a new one, which is printed")
)

// Budget returns the values of -torture.time and -torture.seed.
func Budget() (long time.Duration, seed uint64) { return *tortureTime, *tortureSeed }

// Server is the running engine under test.
type Server struct {
	Open    Open
	Address string // argument of Open, usually a URL
	// TCP is the host and port that clients connect to. Via returns the address for clients that connect to a proxy instead;
	// nil: no replies are dropped.
	TCP string
	Via func(hostport string) (address string)
	// Restart crashes the server and starts it again at the same address; nil: the server is not restarted.
	Restart func(ctx context.Context) error
}

// Open opens a ledger's store and its register; an unknown name is an empty ledger. Run and its workers call it in different
// processes, so its result depends on its arguments alone.
type Open func(ctx context.Context, address, ledger string) (Side, error)

// Side is a ledger's store with its downstream register, on separate connections.
type Side struct {
	Store    durable.Store
	Register Register
	Close    func()
}

// Register is a store that workers write to. It keeps, for each domain, the greatest token seen and the applied offsets.
type Register interface {
	// Apply records that offset was handled under token, or rejects the write because it has seen a greater token of domain.
	// Repeating a call changes nothing.
	Apply(ctx context.Context, domain string, offset int64, token lease.Token) (applied bool, err error)
	// Entries returns the applied offsets, in order within each domain.
	Entries(ctx context.Context) ([]Entry, error)
}

// Entry is one applied offset.
type Entry struct {
	Domain string
	Offset int64
	Token  lease.Token
}

// counts are the printed numbers.
type counts [otherViolation + 1]int

const (
	rounds = iota
	faulted
	offered
	redone  // repeated under a greater token
	refused // rejected by the register
	fenced  // rejected by the ledger
	lost
	doubled
	otherViolation
)

func (c *counts) add(d counts) {
	for i, n := range d {
		c[i] += n
	}
}

func (c *counts) String() string {
	return fmt.Sprintf("%5d rounds %6d faults %7d offsets %6d redone %5d refused downstream %5d fenced | "+
		"lost %d, doubled %d, other violations %d",
		c[rounds], c[faulted], c[offered], c[redone], c[refused], c[fenced], c[lost], c[doubled], c[otherViolation])
}

// Run injects faults for -torture.time, at least one round of each kind, and prints the counts. A violation fails the test and
// prints the seed that repeats the round's random choices.
func Run(t testing.TB, s Server) {
	t.Helper()
	if !child.Possible {
		t.Skip("faults: processes can be stopped and killed on Unix only")
	}
	seed := *tortureSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d (-torture.seed)", seed)
	var total counts
	sums := make([]counts, len(scenarios))
	began := time.Now()
	name := fmt.Sprintf("faults-%x", rand.Uint64()) // runs on one server must not share ledgers
	for number := 0; number < len(scenarios) || time.Since(began) < *tortureTime; number++ {
		kind := number % len(scenarios)
		what := scenarios[kind]
		if what.needs != nil && !what.needs(s) {
			if number == kind {
				t.Logf("%-36s left out: not with this server", what.name)
			}
			continue
		}
		r := &round{TB: t, server: s, ledger: fmt.Sprintf("%s-%d", name, number),
			rnd: rand.New(rand.NewPCG(seed, uint64(number)))}
		c := r.play(what)
		sums[kind].add(c)
		total.add(c)
		if t.Failed() {
			t.Logf("in round %d of seed %d: %s", number, seed, what.name)
			break
		}
	}
	for kind := range sums {
		if c := &sums[kind]; c[rounds] > 0 {
			t.Logf("%-36s %v", scenarios[kind].name, c)
		}
	}
	t.Logf("%-36s %v", "all", &total)
}
