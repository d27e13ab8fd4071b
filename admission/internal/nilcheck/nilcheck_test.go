// The nil pointers and functions that an interface hides, and the values that may look like one.

package nilcheck_test

import (
	"testing"

	"github.com/stopbank/stopbank/admission/internal/nilcheck"
)

type list []int

func TestNil(t *testing.T) {
	for _, c := range []struct {
		v                  any
		optional, required string
	}{
		{nil, "", "nil"},
		{(*list)(nil), "a nil *nilcheck_test.list", "a nil *nilcheck_test.list"},
		{(func())(nil), "a nil func()", "a nil func()"},
		{list(nil), "", ""}, // methods of an empty slice work
		{new(list), "", ""},
		{func() {}, "", ""},
		{0, "", ""},
	} {
		if optional, required := nilcheck.Optional(c.v), nilcheck.Required(c.v); optional != c.optional || required != c.required {
			t.Errorf("%T: %q and %q, want %q and %q", c.v, optional, required, c.optional, c.required)
		}
	}
}
