// SPDX-License-Identifier: Apache-2.0

// Threads that come, go and tell nonsense (M12), and a real neighbour (M11).

package monitor

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// fixture makes a file system with threads.
type fixture struct{ root string }

func (f fixture) task(id int) string {
	return filepath.Join(f.root, "proc", "self", "task", strconv.Itoa(id), "schedstat")
}

func (f fixture) write(t interface{ Fatal(...any) }, id int, text string) {
	if err := os.MkdirAll(filepath.Dir(f.task(id)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.task(id), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// M12: what is counted is what the threads of before and now have counted in between, as far as that can be; against a map of
// what each file said. A thread that ends is forgotten, and the next with its number is another one.
func TestPropertyThreads(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		root, err := os.MkdirTemp(t.TempDir(), "") //nolint:usetesting // one for each of rapid's checks
		if err != nil {
			rt.Fatal(err)
		}
		f, th := fixture{root}, openThreads(root)
		defer th.close()
		if err := os.MkdirAll(filepath.Join(root, "proc", "self", "task"), 0o755); err != nil {
			rt.Fatal(err)
		}
		before := map[int]waits{} // by thread, as the last read found it
		now := map[int]waits{}
		for second := range rapid.IntRange(1, 6).Draw(rt, "seconds") {
			for id := 1; id <= 6; id++ {
				w := now[id]
				switch rapid.IntRange(0, 7).Draw(rt, "thread") {
				case 0, 1, 2, 3: // it goes on
					w.ran += time.Duration(rapid.IntRange(0, 2e9).Draw(rt, "ran"))
					w.waited += time.Duration(rapid.IntRange(0, 2e9).Draw(rt, "waited"))
					w.turns += uint64(rapid.IntRange(0, 100).Draw(rt, "turns"))
				case 4: // it restarts
					w = waits{time.Duration(rapid.IntRange(0, 1e9).Draw(rt, "began")), 1, 1}
				case 5: // it ends
					f.write(rt, id, "")
					if os.RemoveAll(filepath.Dir(f.task(id))) != nil {
						rt.Fatal("not removed")
					}
					delete(now, id)
					delete(before, id)
					// The kernel says ESRCH of an open file of a thread that has ended; here its text is gone.
					for i := range th.all[:th.n] {
						if th.all[i].id == id {
							_ = syscall.Close(th.all[i].file)
							th.all[i].file = -1
						}
					}
					continue
				case 6:
					f.write(rt, id, rapid.SampledFrom([]string{"", "1 2", "-1 -1 -1", "x", "1e3 4 5\n"}).Draw(rt, "nonsense"))
					delete(now, id)
					delete(before, id)
					continue
				case 7:
					w = waits{1 << 60, 1 << 60, math.MaxUint64}
				}
				now[id] = w
				f.write(rt, id, fmt.Sprintf("%d %d %d\n", w.ran, w.waited, w.turns))
			}
			var want waits
			for id, w := range now {
				if was, ok := before[id]; ok && w.ran >= was.ran && w.waited >= was.waited && w.turns >= was.turns {
					want.ran += min(w.ran-was.ran, time.Second)
					want.waited += min(w.waited-was.waited, time.Second)
					want.turns += w.turns - was.turns
				}
			}
			got := th.read(time.Second)
			for range 3 { // threads may come before the place in the directory where the last look ended
				th.find()
			}
			if got != want {
				rt.Fatalf("M12: second %d: %+v, want %+v", second, got, want)
			}
			before = maps.Clone(now)
			if th.n != len(now) {
				rt.Fatalf("M12: second %d: %d threads, want %d", second, th.n, len(now))
			}
		}
	})
}

// M12: of thousands of threads some are read, and no more in a second than of a few; those that run are among them.
func TestManyThreads(t *testing.T) {
	f := fixture{t.TempDir()}
	for id := 1; id <= 400; id++ {
		f.write(t, id, "5 5 5\n")
	}
	th := openThreads(f.root)
	defer th.close()
	th.find()
	if th.n != mostThreads {
		t.Fatalf("M12: %d threads at first", th.n)
	}
	th.read(time.Second)
	for id := 1; id <= 4; id++ { // each sample takes note of the thread that it runs on
		th.add(id)
		f.write(t, id, "7 7 7\n")
	}
	th.read(time.Second)
	seen := map[int]bool{}
	for second := range 100 {
		for id := 1; id <= 4; id++ {
			f.write(t, id, fmt.Sprintf("7 7 %d\n", 8+second))
		}
		was := th.all
		th.find()
		changed := 0
		for i := range th.all {
			if th.all[i].id != was[i].id {
				changed++
			}
			seen[th.all[i].id] = true
		}
		if th.n != mostThreads || changed > newThreads {
			t.Fatalf("M12: %d threads, %d of them new", th.n, changed)
		}
		th.read(time.Second)
		for id := 1; id <= 4; id++ {
			if th.add(id) {
				t.Fatalf("M12: thread %d runs, and was not among them", id)
			}
		}
	}
	if len(seen) < 380 {
		t.Errorf("M12: %d of 400 threads were ever read", len(seen))
	}
}

// M12: this process with 200 threads more: the share is read as with a few, and what is allocated does not grow with them.
func TestThreadsOfThisProcess(t *testing.T) {
	stop := make(chan struct{})
	var all, ready sync.WaitGroup
	for range 200 {
		ready.Add(1)
		all.Go(func() {
			runtime.LockOSThread() // and ends with the goroutine
			ready.Done()
			<-stop
		})
	}
	ready.Wait()
	defer all.Wait()
	defer close(stop)
	th := openThreads("/")
	defer th.close()
	at, used := start, time.Duration(0)
	step := func() {
		at, used = at.Add(time.Second), used+time.Millisecond
		th.refresh(facts{at: at, used: used, usedOK: true, procs: 2}, math.Inf(1))
	}
	for range 100 { // as many as may be new
		step()
	}
	if th.n != mostThreads {
		t.Skipf("schedstat of %d threads can be read here", th.n)
	}
	if n := testing.AllocsPerRun(100, step); n > 100 { // the race detector makes more of them; one a thread would be 200
		t.Errorf("M12: %v allocations beside 200 threads", n)
	}
}

// M11: a second that is none to the kernel says nothing: a bubble's, or one in which a clock has jumped.
func TestShareOfASecondThatIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must(New())(t)
		for range 5 {
			time.Sleep(time.Second)
			for began := kernelTime(); kernelTime()-began < 20*time.Millisecond; {
			}
			if got := s.Sample(); got.Share != (Reading{}) {
				t.Errorf("M11: share %+v of a second that took 20 ms", got.Share)
			}
		}
	})
}

// M12: without a file descriptor left, the threads that are known are measured on.
func TestThreadsWithoutFileDescriptors(t *testing.T) {
	f := fixture{t.TempDir()}
	f.write(t, 1, "5 5 5\n")
	th := openThreads(f.root)
	defer th.close()
	th.find()
	f.write(t, 1, "6 7 8\n")
	f.write(t, 2, "5 5 5\n")
	var limit syscall.Rlimit
	noError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	noError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max}))
	got, before := th.read(time.Second), th.n
	th.find()
	after := th.n
	noError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	if th.find(); got != (waits{1, 2, 3}) || before != 1 || after != 1 || th.n != 2 {
		t.Errorf("M12: %+v, of %d, %d and then %d threads", got, before, after, th.n)
	}
}

const neighbour = "STOPBANK_NEIGHBOUR"

// TestRealNeighbour: beside a process with four times as many threads on the same processors, this one gets a part of what it
// wants. More load on the machine makes that less.
func TestRealNeighbour(t *testing.T) {
	if os.Getenv(neighbour) != "" {
		spin(t, runtime.GOMAXPROCS(0), func() { _, _ = io.Copy(io.Discard, os.Stdin) })
		return
	}
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("this kernel does not say how long threads wait:", err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestRealNeighbour$")
	child.Env = append(os.Environ(), neighbour+"=1", fmt.Sprint("GOMAXPROCS=", 4*runtime.NumCPU()))
	stdin := must(child.StdinPipe())(t)
	noError(t, child.Start())
	defer func() { _ = stdin.Close(); _ = child.Wait() }()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU()))
	var last Sample
	spin(t, runtime.NumCPU(), func() {
		s := must(New())(t)
		for range 60 {
			<-time.After(cgroupEvery + 50*time.Millisecond)
			if last = s.Sample(); last.Share.OK && last.Share.Value < 0.5 {
				return
			}
		}
		t.Errorf("M11: the share is %+v of all that four times as many threads leave", last.Share)
	})
	t.Logf("share %.2f, utilization %.2f", last.Share.Value, last.Utilization.Value)
}

// spin uses so many processors while f runs.
func spin(t *testing.T, processors int, f func()) {
	t.Helper()
	var stop atomic.Bool
	var all sync.WaitGroup
	for range processors {
		all.Go(func() {
			for !stop.Load() {
			}
		})
	}
	f()
	stop.Store(true)
	all.Wait()
}

// BenchmarkThreads is what a sample costs more once a second, on the threads of this process and 30 more.
func BenchmarkThreads(b *testing.B) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			runtime.LockOSThread()
			<-stop
		})
	}
	th := openThreads("/")
	at := start
	for range 10 {
		at = at.Add(time.Second)
		th.refresh(facts{at: at, procs: 2}, math.Inf(1))
	}
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(time.Second)
		th.refresh(facts{at: at, procs: 2}, math.Inf(1))
	}
	b.StopTimer()
	th.close()
	close(stop)
	all.Wait()
}
