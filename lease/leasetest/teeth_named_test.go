package leasetest

// This file breaks the plain ledger where one scenario is there to notice, and demands that this one does.

import (
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// walkLimit spares the tests of the suite a long wait for a lock that never opens.
func (w *witness) walkLimit() time.Duration { return time.Second }

func TestEachFaultMeetsItsScenario(t *testing.T) {
	for name, faults := range map[string][]string{
		"ReadyAndHeld":             {"Ready yields under its lock", "Ready yields what is held", "Held misses leases with a backlog"},
		"HeldBodyReclaimsAndFails": {"Held yields under its lock"},
		"WalksReachEveryDomainOnce": {
			"Held yields a page only", "Ready yields a page only", "Held yields the end of a page again", "Ready yields the end of a page again",
		},
		"CompactReachesEveryDomain": {"Compact reaches 100 domains"},
		"WalksStopAtBreak": {
			"Held goes on after a break", "Ready goes on after a break", "Held stays locked after a break", "Ready stays locked after a break",
		},
		"WalksEndWhenCancelled": {
			"Held does not notice that it is cancelled", "Ready does not notice that it is cancelled",
			"Held goes on after its error", "Ready goes on after its error", "Held ends in silence", "Ready ends in silence",
		},
		"WalksWithADoneContext": {
			"Held of nothing does not look at the context", "Ready of nothing does not look at the context",
			"Held goes on after its error", "Ready goes on after its error", "Held ends in silence", "Ready ends in silence",
		},
		"ReleaseKeepsAllButTheOwner": {
			"what was released can be finished", "Release does nothing", "Release counts a retry", "Release renews the lease", "Release rotates the token",
			"Release puts the offset back into the backlog", "Reclaim of what was released counts a retry", "Reclaim gives no owner",
		},
		"OffsetsAreWhole": {"an offset is cut to 32 bits", "an offset passes through a float", "the least offset is none"},
		"FloorsAreWhole":  {"a floor is cut to 32 bits", "an offset is cut to 32 bits"},
		"DomainsAreBytes": {
			"names are folded", "names are trimmed", "names end at a zero byte", "names become valid UTF-8", "names are normalised",
			"names are cut at 1023 bytes", "names are subjects",
		},
		"AcquiredAtIsWallTime": {
			"AcquiredAt is local", "AcquiredAt has a monotonic reading", "AcquiredAt counts from the start", "a retry renews the lease",
			"Reclaim renews the lease",
		},
		"LongBacklog": {"the backlog drops what comes after 256"},
		"TenRetries":  {"no more than five retries", "one attempt too many"},
	} {
		for _, fault := range faults {
			t.Run(name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				found := false
				for _, c := range checks() {
					if c.name != name {
						continue
					}
					found = true
					failed, said := watch(t, c, func(_ testing.TB, cfg lease.Config) lease.Ledger { return newPlain(cfg, fault) })
					if !failed {
						t.Error("not noticed")
					}
					t.Logf("%.200s", said)
				}
				if !found {
					t.Error("no such scenario")
				}
			})
		}
	}
}
