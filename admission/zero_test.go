// SPDX-License-Identifier: Apache-2.0

// What no constructor made: each method of a zero value or a nil pointer does nothing, or returns an error that says so; none
// panics.

package admission_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/stopbank/stopbank/admission"
)

func TestZeroValues(t *testing.T) {
	for _, c := range []struct {
		of   any
		says string // stands in each error
	}{
		{new(admission.Gate), "admission"},
		{(*admission.Gate)(nil), "admission"},
		{admission.Permit{}, ""},
	} {
		methods := reflect.ValueOf(c.of)
		for i := range methods.NumMethod() {
			method, name := methods.Method(i), methods.Type().Method(i).Name
			var args []reflect.Value
			for k := range method.Type().NumIn() {
				args = append(args, reflect.Zero(method.Type().In(k)))
				if args[k].Type() == reflect.TypeFor[context.Context]() {
					args[k] = reflect.ValueOf(t.Context())
				}
			}
			func() {
				defer func() {
					if v := recover(); v != nil {
						t.Errorf("%T, nil %t: %s panics: %v", c.of, methods.IsZero(), name, v)
					}
				}()
				for _, result := range method.Call(args) {
					if result.Kind() == reflect.Func && result.Type().CanSeq2() { // what a list ends with
						for _, result = range result.Seq2() {
						}
					}
					if err, ok := result.Interface().(error); ok && !strings.Contains(err.Error(), c.says) {
						t.Errorf("%T, nil %t: %s: %v", c.of, methods.IsZero(), name, err)
					}
				}
			}()
		}
	}
}
