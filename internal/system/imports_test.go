// SPDX-License-Identifier: Apache-2.0

package system

// Data flows one way: the table says which package of the project may import which, and an arrow that it does not
// hold is a mistake.

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// A rule says what the packages of one layer may import of the project and of others. It holds for their tests as
// well, which may import testOnly and tests on top of it.
type rule struct {
	layer  string   // a package, with its internal packages but those that have a rule; "x/..." is x and all that lies under it
	arrows []string // the layers that it may import; "..." is every one
	others []string // third-party modules that it may import; "..." is every one
	tests  []string // more layers, for its tests
}

// anything is both: whatever is no library may import what it likes.
var anything = []string{"..."}

// testOnly are the third-party modules that tests of every layer may use.
var testOnly = []string{"golang.org/x/sync", "github.com/google/go-cmp", "pgregory.net/rapid", "go.uber.org/goleak",
	"github.com/anishathalye/porcupine"}

// flow are the four layers of the pipeline and what crosses it; an adapter imports warden or what it adapts.
var flow = []string{"warden", "warden/monitor", "warden/control", "warden/decision", "warden/limiter", "warden/bulkhead",
	"warden/internal/fair", "warden/internal/histogram", "warden/internal/nilcheck", "warden/internal/patience", "warden/internal/requestid",
	"warden/internal/timelimit", "warden/internal/unit"}

// rules is the whole table. A package that it does not name is a finding: a new layer states its arrows here.
var rules = []rule{
	{layer: "admission"},
	{layer: "admission/admissionhttp", arrows: []string{"admission"}},

	{layer: "lease", tests: []string{"lease/dispatch", "lease/leasetest"}},
	{layer: "lease/durable", arrows: []string{"lease"}, tests: []string{"lease/leasetest"}},
	{layer: "lease/dispatch", arrows: []string{"lease"}},
	{layer: "lease/deadletter", arrows: []string{"lease", "lease/dispatch"}, tests: []string{"lease/internal/dlq"}},
	{layer: "lease/internal/group", arrows: []string{"lease", "lease/dispatch"}},
	{layer: "lease/internal/journal", arrows: []string{"lease", "lease/durable", "lease/dispatch"}, tests: []string{"lease/leasetest"}},
	{layer: "lease/internal/dlq", arrows: []string{"lease", "lease/deadletter", "lease/dispatch"}},
	{layer: "lease/leasetest", arrows: []string{"lease", "lease/durable", "lease/internal/testkit/witness"}, others: anything},
	{layer: "lease/internal/testkit/lettertest", arrows: []string{"lease", "lease/deadletter", "lease/dispatch",
		"lease/internal/dlq", "lease/internal/testkit/ownertest", "lease/internal/testkit/witness"}, others: []string{"pgregory.net/rapid"}},
	{layer: "lease/leasenats", arrows: []string{"lease", "lease/internal/adopt", "lease/internal/group", "lease/internal/journal", "lease/durable", "lease/dispatch",
		"lease/deadletter", "lease/internal/dlq", "lease/leasetest", "lease/internal/testkit/ownertest",
		"lease/internal/testkit/lettertest"}, others: anything},
	{layer: "lease/internal/testkit/ownertest", arrows: []string{"lease", "lease/dispatch", "lease/durable", "lease/internal/testkit/witness"}},
	{layer: "lease/leasekafka", arrows: []string{"lease", "lease/internal/adopt", "lease/durable", "lease/dispatch", "lease/deadletter",
		"lease/internal/dlq", "lease/leasetest", "lease/internal/testkit/ownertest", "lease/internal/testkit/lettertest"},
		others: anything},
	{layer: "lease/internal/adopt", arrows: []string{"lease", "lease/durable"}},
	{layer: "lease/internal/testkit/witness"},
	{layer: "lease/leasepg", arrows: []string{"lease", "lease/internal/adopt", "lease/internal/group", "lease/internal/journal", "lease/durable",
		"lease/dispatch", "lease/deadletter", "lease/internal/dlq", "lease/leasetest", "lease/internal/testkit/ownertest",
		"lease/internal/testkit/lettertest", "lease/leasepg/pgtest"}, others: anything},
	{layer: "lease/leasepg/pgtest", others: []string{"github.com/jackc/pgx/v5"}},
	{layer: "lease/leasectl", arrows: []string{"lease", "lease/internal/adopt", "lease/durable", "lease/deadletter", "lease/internal/dlq", "lease/dispatch",
		"lease/leasenats", "lease/leasekafka", "lease/leasepg", "lease/leasepg/pgtest"}, others: anything},

	{layer: "warden/monitor", arrows: []string{"warden/decision", "warden/internal/histogram"}}, // decision for its InvalidError
	{layer: "warden/pool", arrows: []string{"warden/monitor"}, tests: []string{"warden", "warden/decision"}},
	{layer: "warden/decision"},
	{layer: "warden/control", arrows: []string{"warden/monitor", "warden/decision"}},
	{layer: "warden/internal/queue", arrows: []string{"warden/decision", "warden/internal/fair"}},
	{layer: "warden/internal/fair"},
	{layer: "warden/internal/histogram"},
	{layer: "warden/internal/inflight"},
	{layer: "warden/internal/nilcheck"},
	{layer: "warden/internal/patience"},
	{layer: "warden/internal/requestid"},
	{layer: "warden/internal/timelimit", arrows: []string{"warden/decision"}},
	{layer: "warden/internal/unit"},
	{layer: "warden/limiter", arrows: []string{"warden/decision", "warden/internal/fair", "warden/internal/nilcheck", "warden/internal/queue"}},
	{layer: "warden/bulkhead", arrows: []string{"warden/decision", "warden/monitor", "warden/internal/fair", "warden/internal/histogram",
		"warden/internal/nilcheck", "warden/internal/patience", "warden/internal/queue", "warden/internal/requestid",
		"warden/internal/timelimit", "warden/internal/unit"},
		tests: []string{"warden/limiter"}},
	{layer: "warden", arrows: flow[1:]},
	{layer: "warden/internal/rpcstatus", arrows: append([]string{"warden/retry"}, flow...)},
	{layer: "warden/retry", arrows: []string{"warden/decision"}},
	{layer: "warden/wardenhttp", arrows: append([]string{"warden/internal/inflight", "warden/internal/rpcstatus", "warden/retry"},
		flow...)},
	{layer: "warden/console", arrows: flow},
	{layer: "warden/wardenslog", arrows: flow},
	{layer: "warden/service", arrows: append([]string{"warden/wardenhttp", "warden/wardenslog", "warden/console"}, flow...)},
	{layer: "warden/wardenprom", arrows: append([]string{"admission", "lease", "lease/dispatch"}, flow...), others: anything,
		tests: []string{"warden/wardenhttp", "warden/service"}},
	{layer: "warden/wardenotel", arrows: append([]string{"warden/wardenhttp"}, flow...), others: anything},
	{layer: "warden/wardengrpc", arrows: append([]string{"warden/internal/rpcstatus", "warden/retry"}, flow...), others: anything,
		tests: []string{"warden/wardenhttp"}},
	{layer: "warden/wardenconnect", arrows: append([]string{"warden/internal/rpcstatus", "warden/retry", "warden/wardenhttp"},
		flow...), others: anything},

	{layer: "warden/flood"},

	{layer: "examples/...", arrows: anything, others: anything},
	{layer: "internal/...", arrows: anything, others: anything},
}

// A pkg is a package as `go list -json` prints it.
type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// checkImports reports every import that the rules do not allow. To look at direct imports is enough: each package
// of the project is looked at, so what it reaches through another one is allowed to that one.
func checkImports(t *testing.T, packages []pkg) {
	t.Helper()
	for _, p := range packages {
		i := slices.IndexFunc(rules, func(r rule) bool { return r.holds(layerOf(p.ImportPath)) })
		if i < 0 {
			t.Errorf("%s: add it to rules in internal/system/imports_test.go, with what it may import", p.ImportPath)
			continue
		}
		r := rules[i]
		for _, path := range p.Imports {
			if !r.allows(path) {
				t.Errorf("%s imports %s", p.ImportPath, path)
			}
		}
		for _, path := range append(slices.Clone(p.TestImports), p.XTestImports...) {
			if !r.allows(path) && !of(path, testOnly) && !slices.Contains(r.tests, layerOf(path)) {
				t.Errorf("a test of %s imports %s", p.ImportPath, path)
			}
		}
	}
}

// layerOf is the layer of a package, and "" for a package of others. An internal package that has no rule is of the layer around
// it.
func layerOf(path string) string {
	rest, ok := strings.CutPrefix(path, project+"/")
	switch {
	case !ok:
		return ""
	case slices.ContainsFunc(rules, func(r rule) bool { return r.layer == rest }):
		return rest
	}
	layer, _, _ := strings.Cut(rest, "/internal/")
	return layer
}

func (r rule) holds(layer string) bool {
	above, all := strings.CutSuffix(r.layer, "/...")
	return layer == above || all && strings.HasPrefix(layer, above+"/")
}

func (r rule) allows(path string) bool {
	if layer := layerOf(path); layer != "" {
		return r.holds(layer) || slices.Contains(r.arrows, layer) || slices.Equal(r.arrows, anything)
	}
	host, _, _ := strings.Cut(path, "/") // of the standard library is what has no host name
	return path != "C" && !strings.Contains(host, ".") || of(path, r.others) || slices.Equal(r.others, anything)
}

// of says whether a package is of one of the modules.
func of(path string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") })
}

// allPackages are the packages of go.work. A file may be for one system only, so the lists of several are put together.
func allPackages(t *testing.T) []pkg {
	t.Helper()
	all := map[string]pkg{}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		out := mustGo(t, root(t), []string{inWorkspace(t), "GOOS=" + goos}, "list", "-e",
			"-json=ImportPath,Imports,TestImports,XTestImports", "work")
		for _, p := range decode[pkg](t, out) {
			sum := all[p.ImportPath]
			sum.ImportPath = p.ImportPath
			sum.Imports = append(sum.Imports, p.Imports...)
			sum.TestImports = append(sum.TestImports, p.TestImports...)
			sum.XTestImports = append(sum.XTestImports, p.XTestImports...)
			all[p.ImportPath] = sum
		}
	}
	return slices.Collect(maps.Values(all))
}

func TestImportRules(t *testing.T) {
	packages := allPackages(t)
	for _, module := range workModules(t) {
		path := project + "/" + module
		if !slices.ContainsFunc(packages, func(p pkg) bool {
			return p.ImportPath == path ||
				strings.HasPrefix(p.ImportPath, path+"/")
		}) {
			t.Errorf("no package of the module %s was looked at", module)
		}
	}
	checkImports(t, packages)
}
