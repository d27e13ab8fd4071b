// SPDX-License-Identifier: Apache-2.0

// What a server says about another attempt, whatever it is: the wait is negative, which is never, or between nothing and a day.

package wardengrpc

import (
	"strconv"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func FuzzPushback(f *testing.F) {
	for _, s := range []string{
		"", "0", "1000", "-1", "+1", " 1", "1.5", "2147483647", "2147483648", "99999999999999999999", "never",
	} {
		f.Add(s, int64(0), int32(0))
		f.Add(s, int64(315576000001), int32(-999999999))
	}
	f.Fuzz(func(t *testing.T, s string, seconds int64, nanos int32) {
		rejected, err := status.New(
			codes.Unavailable, "",
		).WithDetails(&errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: seconds, Nanos: nanos}})
		if err != nil {
			return // it cannot be sent
		}
		if d := read(rejected, nil).after; d < 0 || d > 24*time.Hour {
			t.Fatalf("R5: %d s %d ns: %s", seconds, nanos, d)
		}
		pushed := metadata.MD{pushbackKey: {s}}
		got := read(rejected, pushed)
		n, err := strconv.Atoi(s)
		switch never := err != nil || n < 0 || n > 1<<31-1; {
		case never && got.after >= 0, !never && got.after != time.Duration(n)*time.Millisecond, !got.again:
			t.Fatalf("R5: %q: %+v", s, got)
		}
	})
}
