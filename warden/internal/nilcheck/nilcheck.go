// SPDX-License-Identifier: Apache-2.0

// Package nilcheck finds a nil pointer or function inside an interface value: it differs from nil, and panics once it is
// called. Constructors look for it in every parameter of an interface type. Module lease has a copy, so that neither needs the
// other.
package nilcheck

import (
	"fmt"
	"reflect"
)

// Optional describes what is wrong with a parameter that may be nil: "a nil *pkg.Type", or "" if nothing is.
func Optional(v any) string {
	if r := reflect.ValueOf(v); (r.Kind() == reflect.Pointer || r.Kind() == reflect.Func) && r.IsNil() {
		return fmt.Sprintf("a nil %T", v)
	}
	return ""
}

// Required describes what is wrong with a parameter that must not be nil: "nil", what Optional returns, or "".
func Required(v any) string {
	if v == nil {
		return "nil"
	}
	return Optional(v)
}
