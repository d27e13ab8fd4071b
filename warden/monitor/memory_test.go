// SPDX-License-Identifier: Apache-2.0

// Memory: its limit by GOMEMLIMIT and by cgroups of both versions, and what collections find (M10).

package monitor

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCgroupMemory(t *testing.T) {
	v1Member := tree{memberFile: "5:memory:/kube/pod\n3:cpu,cpuacct:/\n", mountFile: v1Mounts}
	const v1File, v2File = "/memory.limit_in_bytes", "/memory.max"
	for name, c := range map[string]struct {
		tree  tree
		limit uint64
	}{
		"nothing":      {tree{}, 0},
		"no directory": {v2Member, 0},
		"v2":           {v2Member.with(tree{"sys/fs/cgroup/kube/pod/app" + v2File: "268435456\n"}), 256 << 20},
		"v2 max":       {v2Member.with(tree{"sys/fs/cgroup/kube/pod/app" + v2File: "max\n"}), 0},
		"v2, parent tighter": {v2Member.with(tree{
			"sys/fs/cgroup/kube/pod/app" + v2File: "2000000\n", "sys/fs/cgroup/kube/pod" + v2File: "1000000\n",
			"sys/fs/cgroup/kube" + v2File: "max\n",
		}), 1000000},
		"v2, malformed": {v2Member.with(tree{
			"sys/fs/cgroup/kube/pod/app" + v2File: "-7\n", "sys/fs/cgroup/kube/pod" + v2File: "12x\n", "sys/fs/cgroup/kube" + v2File: "",
		}), 0},
		"v2, 0":        {v2Member.with(tree{"sys/fs/cgroup/kube/pod/app" + v2File: "0\n"}), 0},
		"v1":           {v1Member.with(tree{"sys/fs/cgroup/memory/kube/pod" + v1File: "268435456\n"}), 256 << 20},
		"v1, no limit": {v1Member.with(tree{"sys/fs/cgroup/memory/kube/pod" + v1File: "9223372036854771712\n"}), 0},
		"v1, root tighter": {v1Member.with(tree{
			"sys/fs/cgroup/memory/kube/pod" + v1File: "2000000\n", "sys/fs/cgroup/memory" + v1File: "1000000\n",
		}), 1000000},
		"hybrid": {tree{memberFile: "5:memory:/kube\n0::/kube\n", mountFile: hybrid}.with(tree{
			"sys/fs/cgroup/memory/kube" + v1File: "3000000\n", "sys/fs/cgroup/unified/kube" + v2File: "1000000\n",
		}), 3000000},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			c.tree.write(t, root)
			var g cgroup
			g.open(root)
			g.refresh(start, 2)
			if g.memory != c.limit {
				t.Errorf("M10: the limit is %d, want %d", g.memory, c.limit)
			}
			g.refresh(start.Add(2*time.Second), 2)
			if g.memory != c.limit {
				t.Errorf("M10: the limit is %d when read again, want %d", g.memory, c.limit)
			}
		})
	}
}

// The tighter of both limits counts, and what collections found is what the runtime says.
func TestMemoryOfThisProcess(t *testing.T) {
	s := must(New())(t)
	s.Sample()
	held := make([]byte, 32<<20)
	runtime.GC()
	before := s.Sample().Memory
	if n := uint64(len(held)); before.Collections == 0 || before.Live < n || before.Growth <= 0 || before.Allocated < n || before.Allocated > 2*n {
		t.Errorf("M10: %+v, while %d bytes are held", before, n)
	}
	runtime.KeepAlive(held)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 40))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, c := range []struct {
		cgroup, limit uint64
		soft          bool
	}{
		{0, 1 << 40, true}, {1 << 50, 1 << 40, true}, {1 << 30, 1 << 30, false},
	} {
		s.group = cgroup{memory: c.cgroup, at: time.Now().Add(-time.Millisecond)}
		if m := s.Sample().Memory; m.Limit != c.limit || m.Soft != c.soft || m.Growth != 0 {
			t.Errorf("M10: %+v, with %d from the cgroup, GOMEMLIMIT of 1 TiB and GOGC=off", m, c.cgroup)
		}
	}
}

// Every collection and byte is counted once, and none where the counter falls.
func TestPropertyCollections(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSampler(0, 1)
		for range rapid.IntRange(1, 8).Draw(t, "samples") {
			n := rapid.SampledFrom([]uint64{0, 1, 7, 1 << 40}).Draw(t, "collections")
			fall := rapid.IntRange(0, 4).Draw(t, "falls") == 0
			f := someFacts(t, 1)
			total := s.prev.memory.Collections + n
			if fall {
				total, n = s.prev.memory.Collections/2, 0
			}
			f.memory.Collections, f.memory.Allocated = total, total
			if seen := s.compareLocked(f).Memory; seen.Collections != n || seen.Allocated != n {
				t.Fatalf("M10: %d collections and %d bytes, want %d", seen.Collections, seen.Allocated, n)
			}
		}
	})
}
