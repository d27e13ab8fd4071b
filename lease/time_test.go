package lease_test

// This file shows that the ledger owns no time (L10).

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
)

func TestL10_TimePassesAndNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, lease.Config{MaxRetries: 1})
		held := acquire(t, m, "A", 1)
		wantStatus(t, m, "A", 2, lease.Enqueued)
		before := inspect(t, m, "A")
		time.Sleep(10_000 * time.Hour) // virtual
		after := inspect(t, m, "A")
		if *before.Lease != *after.Lease || !slices.Equal(before.Backlog, after.Backlog) {
			t.Fatalf("%+v became %+v", before, after)
		}
		succeed(t, m, held, lease.Completion{Status: lease.NextHint, Next: 2})
	})
}

// The package starts no goroutine, and of package time it uses a reading of the clock and the type alone.
func TestL10_NothingOwnsTime(t *testing.T) {
	allowed := []string{"Now", "Time", "Unix"}
	files := must(os.ReadDir("."))(t)
	read := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		read++
		parsed := must(parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0))(t)
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", f.Name())
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && !slices.Contains(allowed, n.Sel.Name) {
					t.Errorf("%s uses time.%s", f.Name(), n.Sel.Name)
				}
			}
			return true
		})
	}
	if read < 5 {
		t.Fatalf("only %d files read", read)
	}
}
