// SPDX-License-Identifier: Apache-2.0

package leasenats

// Any name has a key, no two names share one, and no key is too long for a subject.

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

func TestPropertyKeys(t *testing.T) {
	known := map[string]string{}
	s := &store{}
	rapid.Check(t, func(t *rapid.T) {
		name := string(rapid.SliceOfN(rapid.Byte(), 1, 400).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "plain") {
			name = rapid.StringMatching(`[a-zA-Z0-9=./_ -]{1,300}`).Draw(t, "string")
		}
		key, long := keyOf(name)
		if other, taken := known[key]; taken && other != name {
			t.Fatalf("%q and %q have the key %s", name, other, key)
		}
		known[key] = name
		if len(key) > maxKey+2 || strings.ContainsAny(key[2:], ".*> \t\r\n\x00") {
			t.Fatalf("%q has the key %q", name, key)
		}
		if long {
			value := withName(name, []byte("state"))
			if back, state, ok := cutName(value); !ok || back != name || string(state) != "state" {
				t.Fatalf("%q is read as %q, %q, %t", value, back, state, ok)
			}
			for _, n := range []int{0, 1, len(name) / 2, len(name) + 1} {
				if back, _, ok := cutName(value[:n]); ok {
					t.Fatalf("%d bytes are read as %q", n, back)
				}
			}
			return
		}
		m := nats.NewMsg("x")
		m.Header.Set(indexHeader, "held")
		if index, err := s.keyIndex(key, m.Header); err != nil || index.String() != "held" {
			t.Fatalf("%s lies on %v, %v", key, index, err)
		}
		if back, err := s.nameOf(t.Context(), key); err != nil || back != name {
			t.Fatalf("%s is read as %q, %v", key, back, err)
		}
	})
}
