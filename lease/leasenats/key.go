package leasenats

// This file turns any bytes into a key that a bucket takes, and back.

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// maxKey is the longest escaped name that is a key by itself. A longer one is found by its hash and told by its value.
const maxKey = 160

const (
	rootKey = "root" // the ledger's own record
	plain   = "d."   // then the name, escaped
	hashed  = "h."   // then SHA-256 of the name
	upper   = "0123456789ABCDEF"
)

// keyOf is the key of a name, within the ledger's; long says that the name cannot be read off it.
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

// escape leaves letters, digits, - _ and / as they are and writes any other byte as = and two digits, so that
// operators can read most keys. The point is escaped: it parts the tokens of a subject.
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

// withName puts a long name before its record, so that its key, a hash, can be told from another's and be listed. The name is not
// in a header: servers bound those by 64 KiB.
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
