// SPDX-License-Identifier: Apache-2.0

package system

// The numbers of docs/production.md are those of the example that computes them.

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// The page on production has the rows that the example of sizing prints, and the arithmetic of its other tables.
func TestProductionPageHasTheseNumbers(t *testing.T) {
	page := read(t, "docs/production.md")
	rows := []string{"| all | | | | 67 | | 100 | | |"}
	for line := range strings.Lines(read(t, "warden/bulkhead/example_sizing_test.go")) {
		if row, found := strings.CutPrefix(strings.TrimSpace(line), "// |"); found {
			rows = append(rows, "|"+row)
		}
	}
	// calls that reach a failing dependency: three tries each, and a budget of a tenth each
	for layers := 1.; layers <= 3; layers++ {
		rows = append(rows, fmt.Sprintf("| %g | %g | %.2f |", layers, math.Pow(3, layers), math.Pow(1.1, layers)))
	}
	for _, row := range rows {
		if !strings.Contains(page, "\n"+row+"\n") {
			t.Errorf("docs/production.md has no row %s", row)
		}
	}
	if len(rows) != 8 || !strings.Contains(page, "`Total` is 80") || !strings.Contains(page, "13 slots are guaranteed to no part") {
		t.Errorf("%d rows; docs/production.md does not say how many slots there are", len(rows))
	}
}
