// SPDX-License-Identifier: Apache-2.0

// What no constructor of the module made: each method of a zero value or a nil pointer does nothing, or returns an error that
// says so; none panics.

package wardenhttp_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestZeroValues(t *testing.T) {
	for _, c := range []struct {
		of   any
		says string // stands in each error
	}{
		{new(warden.Warden), "warden"},
		{(*warden.Warden)(nil), "warden"},
		{warden.Permit{}, ""},
		{new(limiter.Limiter), "limiter"},
		{(*limiter.Limiter)(nil), "limiter"},
		{limiter.Permit{}, ""},
		{new(bulkhead.Set), "bulkhead"},
		{(*bulkhead.Set)(nil), "bulkhead"},
		{new(bulkhead.Compartment), "bulkhead"},
		{(*bulkhead.Compartment)(nil), "bulkhead"},
		{bulkhead.Permit{}, ""},
		{new(monitor.Recorder), "monitor"},
		{(*monitor.Recorder)(nil), "monitor"},
		{new(retry.Caller), "retry"},
		{(*retry.Caller)(nil), "retry"},
		{new(wardenhttp.Middleware), "wardenhttp"},
		{(*wardenhttp.Middleware)(nil), "wardenhttp"},
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
