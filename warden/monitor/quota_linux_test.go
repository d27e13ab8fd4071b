// SPDX-License-Identifier: Apache-2.0

// A child process under a real processor quota. It needs the right to make a cgroup; where that is missing, the fixture
// trees of cgroup_test.go are all there is.

package monitor

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

const quotaChild = "STOPBANK_QUOTA_CHILD"

// TestRealQuota: a process that uses all of a fifth of a processor is fully utilized, and throttled.
func TestRealQuota(t *testing.T) {
	if os.Getenv(quotaChild) != "" {
		underQuota(t)
		return
	}
	group := quotaGroup(t)
	child := exec.Command(os.Args[0], "-test.run=^TestRealQuota$")
	child.Env = append(os.Environ(), quotaChild+"=1")
	child.Stderr = os.Stderr
	stdin := must(child.StdinPipe())(t)
	stdout := must(child.StdoutPipe())(t)
	noError(t, child.Start())
	waited := false
	t.Cleanup(func() {
		if !waited {
			_ = child.Process.Kill()
			_ = child.Wait()
		}
	})
	var free, bound Sample
	lines := json.NewDecoder(stdout)
	noError(t, lines.Decode(&free))
	// Its sampler exists and has seen the cgroup it came from: it has to notice.
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, child.Process.Pid), 0o600); err != nil {
		t.Skip("cannot move a process:", err)
	}
	must(io.WriteString(stdin, "moved\n"))(t)
	// With GOMAXPROCS, at least 2, for what is allowed, a fiftieth of a processor would read as a hundredth at most. Where others
	// leave the child less than its quota, it takes some samples to see one with all of it.
	seen := func() bool {
		// What the quota withholds is not stolen: else the share would be a hundredth as well.
		return bound.Utilization.OK && bound.Utilization.Value >= 0.3 && bound.Throttled.OK && bound.Throttled.Value > 0 &&
			bound.Share.OK && bound.Share.Value >= 0.3
	}
	for !seen() {
		if err := lines.Decode(&bound); err != nil {
			break
		}
	}
	_ = stdin.Close()
	_, _ = io.Copy(io.Discard, stdout)
	waited = true
	noError(t, child.Wait())
	if !seen() || free.Throttled.Value != 0 {
		t.Errorf("M2, M11: free:  %+v\nbound: %+v", free, bound)
	}
	t.Logf("under a quota of 0.02: utilization %v, throttled %v", bound.Utilization.Value, bound.Throttled.Value)
}

// quotaGroup makes a cgroup with a quota of a fiftieth of a processor beside or below that of this process.
func quotaGroup(t *testing.T) string {
	member, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	dirs, v2 := locate("cpu", string(member), string(mounts))
	if len(dirs) == 0 {
		t.Skip("no cgroup governs the processor here")
	}
	group := filepath.Join(dirs[0], fmt.Sprintf("stopbank-test-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skip("cannot make a cgroup:", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	files := map[string]string{"cpu.cfs_period_us": "50000", "cpu.cfs_quota_us": "1000"}
	if v2 {
		files = map[string]string{"cpu.max": "1000 50000"}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(group, name), []byte(text), 0o600); err != nil {
			t.Skip("cannot set a quota:", err)
		}
	}
	return group
}

// underQuota is the child: it tells one sample, is moved, uses all the processor time it gets, and tells more of them, until
// nobody listens or it has told a hundred.
func underQuota(t *testing.T) {
	out := json.NewEncoder(os.Stdout)
	s := must(New())(t)
	_ = out.Encode(s.Sample())
	in := bufio.NewReader(os.Stdin)
	_, _ = in.ReadString('\n')
	enough := make(chan struct{})
	go func() { _, _ = in.ReadString('\n'); close(enough) }()
	var stop atomic.Bool
	defer stop.Store(true)
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	<-time.After(cgroupEvery + 50*time.Millisecond)
	s.Sample() // sees the new cgroup
	for range 100 {
		select {
		case <-enough:
			return
		case <-time.After(cgroupEvery + 50*time.Millisecond):
			_ = out.Encode(s.Sample())
		}
	}
}
