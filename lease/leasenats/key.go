// SPDX-License-Identifier: Apache-2.0

package leasenats

// Any name of a domain has a key: the name itself, escaped, or its hash if that is too long.

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// maxKey is the length of the longest escaped name that is used as a key, in bytes. For a longer one the key is a hash, and the
// value begins with the name.
const maxKey = 160

const (
	rootKey = "root" // the ledger's own record
	plain   = "d."   // prefix of an escaped name
	hashed  = "h."   // prefix of the SHA-256 of a name
	upper   = "0123456789ABCDEF"
)

// keyOf returns the key of a name, without the ledger's prefix; long reports whether it is a hash.
func keyOf(name string) (key string, long bool) {
	if name == "" {
		return rootKey, false
	}
	if len(name) <= maxKey {
		if key = escape(name); len(key) <= maxKey {
			return plain + key, false
		}
	}
	hash := sha256.Sum256([]byte(name))
	return hashed + hex.EncodeToString(hash[:]), true
}

// escape leaves letters, digits, - _ and / as they are and writes any other byte as = and two hexadecimal digits, so that
// operators can read most keys. The point is escaped because it separates the tokens of a subject.
func escape(name string) string {
	i := 0
	for i < len(name) && safe(name[i]) {
		i++
	}
	if i == len(name) {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; safe(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'=', upper[c>>4], upper[c&15]})
		}
	}
	return b.String()
}

func safe(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '/'
}

// unescape is the inverse of escape, and rejects any key that escape does not make.
func unescape(key string) (name string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		if key[i] != '=' {
			b.WriteByte(key[i])
			continue
		}
		if i+2 >= len(key) {
			return "", false
		}
		b.WriteByte(byte(strings.IndexByte(upper, key[i+1])<<4 | strings.IndexByte(upper, key[i+2])))
		i += 2
	}
	return b.String(), b.Len() > 0 && escape(b.String()) == key
}

// withName puts a long name before its record, so that List can return it and a collision of hashes is noticed. The name is not
// in a header because servers limit headers to 64 KiB.
func withName(name string, state []byte) []byte {
	b := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen64+len(name)+len(state)), uint64(len(name)))
	return append(append(b, name...), state...)
}

// cutName is the inverse of withName.
func cutName(data []byte) (name string, state []byte, ok bool) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return "", nil, false
	}
	end := size + int(n)
	return string(data[size:end]), data[end:], true
}
