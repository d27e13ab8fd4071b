// SPDX-License-Identifier: Apache-2.0

// The ledger owns no time (L10).

package lease_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// The package starts no goroutine, and of package time it uses a reading of the clock and the type alone.
func TestNothingOwnsTime(t *testing.T) {
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
				t.Errorf("L10: %s starts a goroutine", f.Name())
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && !slices.Contains(allowed, n.Sel.Name) {
					t.Errorf("L10: %s uses time.%s", f.Name(), n.Sel.Name)
				}
			}
			return true
		})
	}
	if read < 5 {
		t.Fatalf("L10: only %d files read", read)
	}
}
