// Package faults does to an engine what happens to it in the end: processes that die or stall in the worst moment, replies
// that are lost, servers that fall over. It counts what it did and what came of it.
//
// A test binary of the engine is both sides. Its TestMain calls [Child] first, and so becomes, when it is started once more, a
// worker process; its test calls [Run], which starts such workers, kills them, stops them and reads the ledger afterwards.
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
// # What is judged
//
// Every round has a ledger of its own, offsets that wait in a few domains, and a [Register]: the store downstream, in which a
// worker notes what it carried out, and which compares tokens. At the end
//
//   - nothing is lost: each offset is in the register and processed in the ledger, or it was given up after the attempts that it has;
//   - nothing is doubled: in a domain the register shows the order of arrival, no offset comes back once its completion was answered, and
//     where one was carried out again (its first holder died before it could say so) it was under a greater token;
//   - no token was granted twice and none went down;
//   - who lost a lease was told so, by the ledger and by the register.
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
	"github.com/stopbank/stopbank/lease/leasetest/internal/signals"
)

var (
	tortureTime = flag.Duration("torture.time", 0, "how long faults are injected; 0: one round of each kind")
	tortureSeed = flag.Uint64("torture.seed", 0, "seed of the choices; 0: a new one, which is printed")
)

// Budget returns what -torture.time and -torture.seed say.
func Budget() (long time.Duration, seed uint64) { return *tortureTime, *tortureSeed }

// Server is the engine under test, running.
type Server struct {
	Open    Open
	Address string // what Open takes, at most a URL
	// TCP is the host and port that a client connects to, and Via the address for one that connects to another instead:
	// a proxy. nil: no replies are dropped.
	TCP string
	Via func(hostport string) (address string)
	// Restart ends the server without leave to tidy up and starts it again where it was. nil: the server is left alone.
	Restart func(ctx context.Context) error
}

// Open opens a ledger's store and its register; a name never seen is an empty ledger. It is called in the test and in its workers, so it
// depends on its arguments alone.
type Open func(ctx context.Context, address, ledger string) (Side, error)

// Side is a ledger's store with the register downstream, on connections of their own.
type Side struct {
	Store    durable.Store
	Register Register
	Close    func()
}

// Register is a store that workers write to. It keeps, for each domain, the greatest token that it saw, and what was applied.
type Register interface {
	// Apply notes that offset was carried out under token, or refuses because it saw a greater token of domain. To say the same
	// once more changes nothing.
	Apply(ctx context.Context, domain string, offset int64, token lease.Token) (applied bool, err error)
	// Entries returns what was applied; entries of one domain in the order in which they were.
	Entries(ctx context.Context) ([]Entry, error)
}

// Entry is one thing that was carried out.
type Entry struct {
	Domain string
	Offset int64
	Token  lease.Token
}

// counts is what is printed.
type counts struct {
	rounds, faults, offsets       int
	redone, refused, fenced       int // carried out again under a greater token; refused by the register; by the ledger
	lost, doubled, otherViolation int
}

func (c *counts) add(d counts) {
	c.rounds += d.rounds
	c.faults += d.faults
	c.offsets += d.offsets
	c.redone += d.redone
	c.refused += d.refused
	c.fenced += d.fenced
	c.lost += d.lost
	c.doubled += d.doubled
	c.otherViolation += d.otherViolation
}

func (c *counts) String() string {
	return fmt.Sprintf("%5d rounds %6d faults %7d offsets %6d redone %5d refused downstream %5d fenced | lost %d, doubled %d, other violations %d",
		c.rounds, c.faults, c.offsets, c.redone, c.refused, c.fenced, c.lost, c.doubled, c.otherViolation)
}

// Run injects faults for -torture.time, at least one round of each kind, and prints the counts. A violation fails the test with the
// seed that repeats the round's choices.
func Run(t testing.TB, s Server) {
	t.Helper()
	if !signals.Possible {
		t.Skip("faults: processes can be stopped and killed on Unix only")
	}
	seed := *tortureSeed
	for seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d (-torture.seed)", seed)
	for _, line := range run(t, s, seed, scenarios) {
		t.Log(line)
	}
}

// run plays rounds and returns what is to be printed.
func run(t testing.TB, s Server, seed uint64, scenarios []scenario) (lines []string) {
	var total counts
	sums := make([]counts, len(scenarios))
	began := time.Now()
	name := fmt.Sprintf("faults-%x", rand.Uint64()) // no two runs on one server share a ledger
	for number := 0; number < len(scenarios) || time.Since(began) < *tortureTime; number++ {
		kind := number % len(scenarios)
		what := scenarios[kind]
		if what.needs != nil && !what.needs(s) {
			if number == kind {
				lines = append(lines, fmt.Sprintf("%-36s left out: not with this server", what.name))
			}
			continue
		}
		r := &round{TB: t, server: s, ledger: fmt.Sprintf("%s-%d", name, number), rnd: rand.New(rand.NewPCG(seed, uint64(number)))}
		c := r.play(what)
		sums[kind].add(c)
		total.add(c)
		if t.Failed() {
			t.Logf("in round %d of seed %d: %s", number, seed, what.name)
			break
		}
	}
	for kind := range sums {
		if c := &sums[kind]; c.rounds > 0 {
			lines = append(lines, fmt.Sprintf("%-36s %v", scenarios[kind].name, c))
		}
	}
	return append(lines, fmt.Sprintf("%-36s %v", "all", &total))
}
