//go:build !explore && !race

// Where the words lie that must not share a cache line.

package admission

import (
	"math/bits"
	"testing"
	"unsafe"
)

// TestLayout asserts no time: it asserts the addresses that the times depend on.
func TestLayout(t *testing.T) {
	if bits.UintSize != 64 {
		t.Skip("the padding is for 64-bit machines; elsewhere a gate is right, and perhaps slower")
	}
	if n := unsafe.Sizeof(line{}); n != 128 {
		t.Errorf("a line takes %d bytes, not two cache lines", n)
	}
	for range 100 {
		g := mustNew(t, Config{Limit: 100})
		if c, l := uintptr(unsafe.Pointer(&g.central)), uintptr(unsafe.Pointer(&g.lines)); c%64 != 0 || l%128 != 0 {
			t.Fatalf("central lies %d bytes into a cache line, the lines %d bytes into two", c%64, l%128)
		}
	}
}
