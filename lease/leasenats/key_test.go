package leasenats

// This file holds the keys: any name has one, no two share one, and none is longer than a subject may be.

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"
)

func TestPropertyKeys(t *testing.T) {
	known := map[string]string{}
	s := &Store{}
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
		m := nats.NewMsg("x")
		m.Header.Set(indexHeader, "held")
		if long {
			m.Header.Set(nameHeader, encodeName(name))
		}
		if back, index, err := s.header(key, m.Header); err != nil || back != name || index.String() != "held" {
			t.Fatalf("%s is read as %q, %v, %v", key, back, index, err)
		}
	})
}

func TestKeysOfNobody(t *testing.T) {
	s := &Store{bucket: "b"}
	for _, key := range []string{"d.", "d.=", "d.=4", "d.=4g", "d.=41", "d.=2e", "d.a.b", "h.00", "x", "x.y", "d.a b"} {
		m := nats.NewMsg("x")
		m.Header.Set(indexHeader, "ready")
		m.Header.Set(nameHeader, encodeName(strings.Repeat("x", 500)))
		if name, _, err := s.header(key, m.Header); err == nil {
			t.Errorf("%s is read as %q", key, name)
		}
	}
}
