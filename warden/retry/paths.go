// SPDX-License-Identifier: Apache-2.0

// Which paths of a dependency fail: one broken path must not throttle the calls of the others (H25).

package retry

const (
	maxPaths   = 32
	remembered = 300 // slices: a minute
)

// paths has the latest answer of the paths that were called last.
type paths []path

type path struct {
	hash  uint64
	at    int64 // number of the slice of its latest answer
	fails bool
}

// answered records an answer. Beyond maxPaths, it replaces the path that was answered the longest ago.
func (all *paths) answered(hash uint64, at int64, fails bool) {
	oldest := 0
	for i, p := range *all {
		if p.hash == hash {
			(*all)[i] = path{hash, at, fails}
			return
		}
		if p.at < (*all)[oldest].at {
			oldest = i
		}
	}
	if len(*all) < maxPaths {
		*all = append(*all, path{hash, at, fails})
		return
	}
	(*all)[oldest] = path{hash, at, fails}
}

// mostFail reports whether, seen from a path that fails, most others of the last minute fail too, or there are none.
func (all *paths) mostFail(now int64) bool {
	known, failing := 0, 0
	for _, p := range *all {
		if p.at < now-remembered {
			continue
		}
		known++
		if p.fails {
			failing++
		}
	}
	return failing > 0 && (known == 1 || 2*(failing-1) > known-1)
}
