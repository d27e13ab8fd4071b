// SPDX-License-Identifier: Apache-2.0

package system

// The repository grows only where somebody has said why.

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The most that there may be. Whoever needs more raises a number in the same change, and says in its row what for; whoever removes
// something lowers it.
const (
	mostWords   = 51_075 // of README.md and docs, as wc -w counts
	mostModules = 15
	mostTargets = 25 // of make
)

// mostLines are those of Go, code and tests apart, by folder.
var mostLines = []struct {
	folder      string
	code, tests int
	why         string // a number was raised; "": none was
}{
	{"admission", 816, 1713, "a rejection describes no other content"},
	{"examples", 3797, 3126, ""},
	{"internal/bench", 5527, 660, "constants beside ours in as many rounds; programs of others, behind README's lines"},
	{"internal/sim", 3317, 1000, "a flooding tenant is not noticed by the others"},
	{"internal/system", 3268, 2068, ""},
	{"lease", 694, 1649, ""},
	{"lease/deadletter", 264, 399, ""},
	{"lease/dispatch", 4156, 6499, ""},
	{"lease/durable", 1292, 2123, ""},
	{"lease/internal", 7555, 2391, "a log that is made anew under a member that has taken over"},
	{"lease/leasectl", 821, 842, ""},
	{"lease/leasekafka", 2978, 3524, "a leaving member waits for no rebalance"},
	{"lease/leasenats", 2922, 3155, "lists end where the server says so, and a lost request is not waited for; a stream that was put back is told by who has read nothing"},
	{"lease/leasepg", 3426, 4553, "pgtest is one of its packages"},
	{"lease/leasetest", 826, 467, ""},
	{"warden", 1096, 2140, "a client's time is no Deadline, answers too late for it are kept by no cache, and one client is one tenant"},
	{"warden/bulkhead", 3283, 5734, "whoever waits for a slow client in a function of Do"},
	{"warden/console", 2509, 2381, ""},
	{"warden/control", 2035, 2966, ""},
	{"warden/decision", 852, 363, "a client's time is no Deadline, answers too late for it are kept by no cache, and one client is one tenant"},
	{"warden/flood", 916, 428, ""},
	{"warden/internal", 3163, 3255, "patience: one record of the waits for a client; fair: tenants share the slots of a limiter"},
	{"warden/limiter", 1589, 4898, "tenants"},
	{"warden/monitor", 1845, 2528, ""},
	{"warden/pool", 70, 127, ""},
	{"warden/retry", 624, 1079, "a fresh attack on items 1 to 5: eleven finds, each mended with a test"},
	{"warden/service", 427, 552, ""},
	{"warden/wardencaddy", 1765, 1793, "its tenants; what PHP or Rack takes for one name is one"},
	{"warden/wardenconnect", 113, 465, "a client's time is no Deadline, answers too late for it are kept by no cache, and one client is one tenant"},
	{"warden/wardengrpc", 1350, 3256, "who loses patience for a slow client, on either side of a gRPC hop"},
	{"warden/wardenhttp", 4518, 9758, "nine attacks on items 1 to 5, each find over HTTP mended with a test"},
	{"warden/wardenotel", 163, 278, ""},
	{"warden/wardenprom", 1183, 1724, ""},
	{"warden/wardenslog", 677, 948, ""},
}

func TestSizes(t *testing.T) {
	code, tests := map[string]int{}, map[string]int{}
	words, modules := 0, 0
	walk(t, func(file string) {
		switch {
		case strings.HasSuffix(file, "_test.go"):
			tests[folder(file)] += strings.Count(read(t, file), "\n")
		case path.Ext(file) == ".go":
			code[folder(file)] += strings.Count(read(t, file), "\n")
		case path.Base(file) == "go.mod":
			modules++
		case file == "README.md" || strings.HasPrefix(file, "docs/") && path.Ext(file) == ".md":
			words += len(strings.Fields(read(t, file)))
		}
	})
	targets := len(regexp.MustCompile(`(?m)^[a-z-]+:.*## `).FindAllString(read(t, "Makefile"), -1))
	if words > mostWords || modules > mostModules || targets > mostTargets {
		t.Errorf("%d words, %d modules and %d targets; at most %d, %d and %d", words, modules, targets, mostWords, mostModules, mostTargets)
	}
	for _, most := range mostLines {
		if c, n := code[most.folder], tests[most.folder]; c > most.code || n > most.tests {
			t.Errorf("%s: %d and %d lines, at most %d and %d", most.folder, c, n, most.code, most.tests)
		}
		delete(code, most.folder)
		delete(tests, most.folder)
	}
	maps.Copy(tests, code) // what has no row
	for _, f := range slices.Sorted(maps.Keys(tests)) {
		t.Errorf("no row says how long %s may be", f)
	}
}

// folder is the part of the repository that a file counts to: a folder of the first level, or of the second in the larger ones.
func folder(file string) string {
	parts := strings.Split(path.Dir(file), "/")
	if depth := map[string]int{"lease": 2, "warden": 2, "internal": 2}[parts[0]]; len(parts) > depth {
		parts = parts[:max(depth, 1)]
	}
	return strings.Join(parts, "/")
}
