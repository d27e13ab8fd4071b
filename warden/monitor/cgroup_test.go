// SPDX-License-Identifier: Apache-2.0

// Cgroups of both versions on fixture trees: where they are, their quota, and for how long they were throttled.

package monitor

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A tree is the files of a machine: path to contents.
type tree map[string]string

func (tr tree) write(t testing.TB, root string) {
	t.Helper()
	for name, text := range tr {
		name = filepath.Join(root, filepath.FromSlash(name))
		noError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		noError(t, os.WriteFile(name, []byte(text), 0o600))
	}
}

func (tr tree) with(more tree) tree {
	all := tree{}
	for _, m := range []tree{tr, more} {
		maps.Copy(all, m)
	}
	return all
}

const (
	memberFile = "proc/self/cgroup"
	mountFile  = "proc/self/mountinfo"

	v1Mounts = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs none rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup none rw,memory
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:7 master:2 - cgroup none rw,cpu,cpuacct
`
	v2Mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 none rw,nsdelegate\n"
	hybrid   = v1Mounts + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 none rw\n"
)

// v1 and v2 are the files of one level.
func v1(dir, quota, period string, throttled time.Duration) tree {
	dir = path.Join("sys/fs/cgroup/cpu,cpuacct", dir)
	return tree{
		dir + "/cpu.cfs_quota_us": quota + "\n", dir + "/cpu.cfs_period_us": period + "\n",
		dir + "/cpu.stat": fmt.Sprintf(
			"nr_periods 9\nnr_throttled 3\nthrottled_time %d\nnr_bursts 0\nburst_time 0\n", throttled.Nanoseconds(),
		),
	}
}

func v2(dir, cpuMax string, throttled time.Duration) tree {
	dir = path.Join("sys/fs/cgroup", dir)
	return tree{
		dir + "/cpu.max": cpuMax + "\n",
		dir + "/cpu.stat": fmt.Sprintf(
			"usage_usec 99\nuser_usec 60\nsystem_usec 39\nnr_periods 9\nnr_throttled 3\nthrottled_usec %d\n",
			throttled.Microseconds(),
		),
	}
}

var (
	none       = math.Inf(1)
	v2Member   = tree{memberFile: "0::/kube/pod/app\n", mountFile: v2Mounts}
	v2RootStat = tree{"sys/fs/cgroup/cpu.stat": "usage_usec 99\n"} // the root has no quota and knows no throttling
)

func TestCgroupTrees(t *testing.T) {
	for name, c := range map[string]struct {
		tree  tree
		quota float64
		share Reading // after 2 s on 2 processors, in which nothing changed
	}{
		"nothing":      {tree{}, none, Reading{}},
		"no mounts":    {tree{memberFile: "0::/\n"}, none, Reading{}},
		"no directory": {v2Member, none, Reading{}},
		"v2":           {v2Member.with(v2("kube/pod/app", "150000 100000", 0)), 1.5, Reading{0, true}},
		"v2 max":       {v2Member.with(v2("kube/pod/app", "max 100000", 0)), none, Reading{0, true}},
		"v2, parent tighter": {
			v2Member.with(v2("kube/pod/app", "400000 100000", 0)).with(v2("kube/pod", "50000 50000", 0)), 1, Reading{0, true},
		},
		"v2, grandparent alone": {v2Member.with(v2("kube/pod/app", "max 100000", 0)).with(v2("kube/pod", "max 100000", 0)).
			with(v2("kube", "25000 100000", 0)), 0.25, Reading{0, true}},
		"v2, a sibling's": {
			v2Member.with(v2("kube/pod/app", "max 100000", 0)).with(v2("kube/pod/other", "1000 100000", 0)),
			none, Reading{0, true},
		},
		"v2, root":          {tree{memberFile: "0::/\n", mountFile: v2Mounts}.with(v2RootStat), none, Reading{}},
		"v2, no controller": {v2Member.with(tree{"sys/fs/cgroup/kube/pod/app/cpu.stat": "usage_usec 99\n"}), none, Reading{}},
		"v2, malformed max": {v2Member.with(v2("kube/pod/app", "150000", 0)), none, Reading{0, true}},
		"v2, quota 0":       {v2Member.with(v2("kube/pod/app", "0 100000", 0)), none, Reading{0, true}},
		"v2, period 0":      {v2Member.with(v2("kube/pod/app", "100000 0", 0)), none, Reading{0, true}},
		"v2, malformed stat": {v2Member.with(tree{
			"sys/fs/cgroup/kube/pod/app/cpu.stat": "throttled_usec -7\nthrottled_usec 7\n",
			"sys/fs/cgroup/kube/pod/app/cpu.max":  "200000 100000",
		}), 2, Reading{}},
		"v2, stat beyond time": {
			v2Member.with(tree{"sys/fs/cgroup/kube/pod/app/cpu.stat": "throttled_usec 18446744073709551615\n"}), none, Reading{},
		},
		"v2, endless file": {v2Member.with(tree{"sys/fs/cgroup/kube/pod/app/cpu.max": "50000 100000" +
			strings.Repeat(" ", 9<<10)}), none, Reading{}},
		"v2 in a container, with a namespace": {
			tree{memberFile: "0::/\n", mountFile: v2Mounts}.with(v2("", "50000 100000", 0)), 0.5, Reading{0, true},
		},
		"v2 in a container, without": {tree{
			memberFile: "0::/docker/4f\n", mountFile: "30 23 0:26 /docker/4f /sys/fs/cgroup ro - cgroup2 none rw\n",
		}.with(v2("", "50000 100000", 0)), 0.5, Reading{0, true}},
		"v2, two mounts": {tree{
			memberFile: "0::/docker/4f\n",
			mountFile:  "30 23 0:26 /docker/4f /mnt/c rw - cgroup2 none rw\n" + v2Mounts,
		}.with(v2("docker", "50000 100000", 0)), 0.5, Reading{0, true}},
		"v2, a mount of another part": {tree{
			memberFile: "0::/docker/4f5\n", mountFile: "30 23 0:26 /docker/4f /sys/fs/cgroup ro - cgroup2 none rw\n",
		}.with(v2("", "50000 100000", 0)), none, Reading{}},
		"v2, outside of the namespace": {
			tree{memberFile: "0::/../other\n", mountFile: v2Mounts}.with(v2("", "50000 100000", 0)), none, Reading{},
		},
		"v2, strange names": {tree{
			memberFile: "0::/a b:c\\d\n", mountFile: "30 23 0:26 / /mnt/a\\040\\134b rw - cgroup2 none rw\n",
			"mnt/a \\b/a b:c\\d/cpu.max": "50000 100000",
		}, 0.5, Reading{}},
		"v1": {tree{
			memberFile: "5:memory:/m\n3:cpu,cpuacct:/kube/pod\n", mountFile: v1Mounts,
		}.with(v1("kube/pod", "150000", "100000", 0)), 1.5, Reading{0, true}},
		"v1, no quota": {
			tree{memberFile: "3:cpuacct,cpu:/\n", mountFile: v1Mounts}.with(v1("", "-1", "100000", 0)), none, Reading{0, true},
		},
		"v1, root tighter": {tree{memberFile: "3:cpu,cpuacct:/kube/pod\n", mountFile: v1Mounts}.
			with(v1("kube/pod", "400000", "100000", 0)).with(v1("", "300000", "100000", 0)), 3, Reading{0, true}},
		"v1, no period": {tree{
			memberFile: "3:cpu,cpuacct:/kube\n",
			mountFile:  v1Mounts, "sys/fs/cgroup/cpu,cpuacct/kube/cpu.cfs_quota_us": "100000\n",
		}, none, Reading{}},
		"v1, not mounted": {
			tree{memberFile: "3:cpu:/\n0::/\n", mountFile: v2Mounts}.with(v2("", "50000 100000", 0)), none, Reading{},
		},
		"v1, only cpuacct and cpuset": {
			tree{memberFile: "3:cpuacct:/\n4:cpuset:/\n", mountFile: v1Mounts}.with(v1("", "50000", "100000", 0)),
			none, Reading{},
		},
		"hybrid, v1 has the processor": {tree{memberFile: "0::/user\n1:cpu,cpuacct:/kube\n", mountFile: hybrid}.
			with(v1("kube", "200000", "100000", 0)).with(tree{"sys/fs/cgroup/unified/user/cpu.max": "50000 100000"}), 2,
			Reading{0, true}},
		"hybrid, v2 has the processor": {tree{memberFile: "1:memory:/kube\n0::/user\n", mountFile: hybrid}.
			with(tree{"sys/fs/cgroup/unified/user/cpu.max": "50000 100000"}), 0.5, Reading{}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			c.tree.write(t, root)
			var g cgroup
			g.open(root)
			t.Cleanup(g.close)
			g.refresh(start, 2)
			if g.quota != c.quota || g.throttled != (Reading{}) {
				t.Errorf(
					"M2: at first: quota %v, throttled %+v; want %v, and nothing to compare with", g.quota, g.throttled, c.quota,
				)
			}
			g.refresh(start.Add(2*time.Second), 2)
			if g.quota != c.quota || g.throttled != c.share {
				t.Errorf("M2: quota %v, throttled %+v; want %v, %+v", g.quota, g.throttled, c.quota, c.share)
			}
		})
	}
}

// TestCgroupChanges: what the files say from one second to the next.
func TestCgroupChanges(t *testing.T) {
	root := t.TempDir()
	level := func(throttled, parent time.Duration) tree {
		return v2("kube/pod/app", "100000 100000", throttled).with(v2("kube/pod", "max 100000", parent))
	}
	v2Member.with(level(5*time.Second, time.Second)).write(t, root)
	var g cgroup
	g.open(root)
	t.Cleanup(g.close)
	at := start
	g.refresh(at, 4)
	for i, c := range []struct {
		after time.Duration
		procs int
		tree  tree
		quota float64
		want  Reading
	}{
		{time.Second, 4, level(7*time.Second, time.Second), 1, Reading{0.5, true}},
		{time.Second, 4, level(8*time.Second, 4*time.Second), 1, Reading{0.75, true}},            // not their sum
		{999 * time.Millisecond, 4, level(9*time.Second, 4*time.Second), 1, Reading{0.75, true}}, // too early: repeated
		{time.Millisecond, 4, v2("kube/pod/app", "250000 100000", 9*time.Second), 2.5, Reading{0.25, true}},
		{2 * time.Second, 1, v2("kube/pod", "50000 100000", 4*time.Second), 0.5, Reading{0, true}},
		// the app's began anew, and 2 processors on average
		{time.Second, 3, level(time.Second, 5*time.Second), 1, Reading{0.5, true}},
		{time.Second, 3, level(time.Second, time.Second), 1, Reading{0, true}},                     // the pod's began anew
		{time.Second, 3, level(0, 0), 1, Reading{}},                                                // both did
		{time.Second, 3, level(time.Minute, 0), 1, Reading{1, true}},                               // never more than all
		{time.Second, 3, tree{"sys/fs/cgroup/kube/pod/app/cpu.stat": "gone"}, 1, Reading{0, true}}, // the pod's remains
		{time.Second, 3, tree{"sys/fs/cgroup/kube/pod/cpu.stat": "gone"}, 1, Reading{}},
		{time.Second, 3, level(time.Minute, 0), 1, Reading{}},  // nothing to compare with yet
		{-time.Hour, 3, level(2*time.Minute, 0), 1, Reading{}}, // a clock that goes back says nothing
		{time.Second, 3, level(2*time.Minute, 0), 1, Reading{0, true}},
	} {
		at = at.Add(c.after)
		c.tree.write(t, root)
		g.refresh(at, c.procs)
		if g.quota != c.quota || g.throttled != c.want {
			t.Errorf("M3: %d: quota %v, throttled %+v; want %v, %+v", i, g.quota, g.throttled, c.quota, c.want)
		}
	}
}

// TestMovedToAnotherCgroup: the process is followed, and nothing is compared across the move.
func TestMovedToAnotherCgroup(t *testing.T) {
	root := t.TempDir()
	v2Member.with(v2("kube/pod/app", "max 100000", time.Hour)).with(v2("other", "200000 100000", 2*time.Hour)).write(t, root)
	var g cgroup
	g.open(root)
	t.Cleanup(g.close)
	g.refresh(start, 2)
	for i, c := range []struct {
		member string
		quota  float64
		want   Reading
	}{
		{"0::/kube/pod/app\n", none, Reading{0, true}},
		{"0::/other\n", 2, Reading{}},
		{"0::/other\n", 2, Reading{0, true}},
		{"", none, Reading{}},
		{"0::/kube/pod/app\n", none, Reading{}},
		{"0::/kube/pod/app\n", none, Reading{0, true}},
	} {
		tree{memberFile: c.member}.write(t, root)
		g.refresh(start.Add(time.Duration(i+1)*time.Second), 2)
		if g.quota != c.quota || g.throttled != c.want {
			t.Errorf("M3: %d: quota %v, throttled %+v; want %v, %+v", i, g.quota, g.throttled, c.quota, c.want)
		}
	}
}

// TestCgroupAllocatesNothing: also when it is due, quota and throttled time are read into memory that is there.
func TestCgroupAllocatesNothing(t *testing.T) {
	for name, tr := range map[string]tree{
		"v1": tree{
			memberFile: "3:cpu,cpuacct:/kube/pod\n", mountFile: v1Mounts,
		}.with(v1("kube/pod", "150000", "100000", 0)).with(v1("kube", "-1", "100000", 0)),
		"v2": v2Member.with(v2("kube/pod/app", "150000 100000", 0)).with(v2("kube/pod", "max 100000", 0)),
	} {
		root := t.TempDir()
		tr.write(t, root)
		var g cgroup
		g.open(root)
		t.Cleanup(g.close)
		at := start
		g.refresh(at, 2)
		if n := testing.AllocsPerRun(100, func() {
			at = at.Add(time.Second)
			g.refresh(at, 2)
		}); n != 0 || g.quota != 1.5 || !g.throttled.OK {
			t.Errorf("M4: %s: %v allocations for quota %v, throttled %+v", name, n, g.quota, g.throttled)
		}
	}
}

func FuzzLocate(f *testing.F) {
	for _, member := range []string{"0::/a/b\n", "3:cpu,cpuacct:/a/b\n0::/\n", "0::/../a\n", "1:cpu:a", "::\n", "0::/a/../b"} {
		for _, mounts := range []string{v1Mounts, v2Mounts, hybrid, "1 2 3 /a /b\\040\\ c - cgroup2 none rw", "- - -\n"} {
			f.Add(member, mounts)
		}
	}
	f.Fuzz(func(t *testing.T, member, mounts string) {
		dirs, _ := locate("cpu", member, mounts)
		for i, dir := range dirs {
			if !strings.HasPrefix(dir, "/") || path.Clean(dir) != dir || slices.Contains(strings.Split(dir, "/"), "..") {
				t.Fatalf("%q of %q", dir, dirs)
			}
			if i > 0 && path.Dir(dirs[i-1]) != dir {
				t.Fatalf("%q is not above %q", dir, dirs[i-1])
			}
		}
	})
}

func FuzzQuotaAndThrottled(f *testing.F) {
	for _, text := range []string{
		"max 100000\n", "50000 100000\n", "-1\n", "100000\n", " 7 \n", "1e3 10", "throttled_usec 9\n",
		"nr_periods 3\nthrottled_time 18446744073709551615",
	} {
		f.Add([]byte(text), []byte("100000\n"))
	}
	f.Fuzz(func(t *testing.T, text, period []byte) {
		if q := share(text, period); !(q > 0) {
			t.Fatalf("quota %v", q)
		}
		got, ok := number(text)
		if want, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64); ok != (err == nil) || ok && got != want {
			t.Fatalf("%q is %d, %v", text, got, ok)
		}
		for key, unit := range map[string]time.Duration{"throttled_usec ": time.Microsecond, "throttled_time ": time.Nanosecond} {
			if d, ok := counter(text, key, unit); d < 0 || !ok && d != 0 {
				t.Fatalf("%s%v, %v", key, d, ok)
			}
		}
	})
}

// close closes what a Sampler leaves to the garbage collector, so that a fixture can be removed anywhere.
func (c *cgroup) close() {
	_ = c.membership.Close() // of nil too
	for i := range c.levels {
		c.levels[i].close()
	}
}

// BenchmarkCgroup is what a sample costs more once a second, on the cgroup of this process.
func BenchmarkCgroup(b *testing.B) {
	var g cgroup
	g.open("/")
	b.Cleanup(g.close)
	at := start
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(time.Second)
		g.refresh(at, 2)
	}
}
