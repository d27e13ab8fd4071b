// SPDX-License-Identifier: Apache-2.0

// The threads of the process: their schedstat, read once a second through files that stay open.

package monitor

import (
	"encoding/binary"
	"math/bits"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

const (
	mostThreads = 32 // that are measured at once; each costs a file descriptor
	newThreads  = 8  // that are opened in a second, at most: opening one costs as much as five readings
)

// threads are the threads of the process, or 32 of those that run. Their files stay open, because a process that has run out of
// file descriptors still needs measuring; and the file of a thread that has ended never becomes that of another one.
type threads struct {
	share Reading

	root string // "/", except in tests
	dir  int    // all threads; none if it is not open
	all  [mostThreads]thread
	n    int // of all
	at   time.Time
	used time.Duration // processor time as of then; below 0: unknown
	wall time.Duration // the kernel's clock as of then
	buf  [2 << 10]byte
	mask [1 << 10 / 8]byte // of processors
}

type thread struct {
	id, file int
	was      waits
	idle     bool // it had no turn in the last second
}

const closed = -1 // in place of a file descriptor

// openThreads returns the threads in the file system at root. Close them.
func openThreads(root string) *threads { return &threads{root: root, dir: closed, used: -1} }

// refresh reads the threads again if the last read is old enough, and otherwise only takes note of the one it runs on: in a
// process of thousands, that is how those that run are found.
func (t *threads) refresh(now facts, quota float64) {
	elapsed := now.at.Sub(t.at)
	if !t.at.IsZero() && elapsed >= 0 && elapsed < cgroupEvery {
		t.add(syscall.Gettid())
		return
	}
	if t.at.IsZero() {
		elapsed = 0
	}
	d := demand{
		elapsed: elapsed, used: now.used - t.used, waits: t.read(elapsed), procs: float64(now.procs),
		available: min(t.processors(float64(now.procs)), quota), throttled: now.throttled.Value * float64(now.procs),
	}
	// Counters are the kernel's, and time may be a test's.
	wall := kernelTime()
	passed := wall - t.wall
	if t.share = (Reading{}); now.usedOK && t.used >= 0 && d.used >= 0 && passed > elapsed/2 && passed < 2*elapsed {
		t.share = d.share()
	}
	t.find()
	if t.at, t.used, t.wall = now.at, now.used, wall; !now.usedOK {
		t.used = -1
	}
}

func kernelTime() time.Duration {
	var tv syscall.Timeval
	if err := syscall.Gettimeofday(&tv); err != nil {
		return 0
	}
	return time.Duration(tv.Nano())
}

// read returns the sum over all threads since the last read, and forgets those that have ended.
func (t *threads) read(elapsed time.Duration) (sum waits) {
	for i := 0; i < t.n; {
		th := &t.all[i]
		now, ok := t.contents(th.file)
		if !ok {
			_ = syscall.Close(th.file)
			t.n--
			*th = t.all[t.n]
			continue
		}
		w := now.since(th.was, elapsed)
		th.was, th.idle = now, now.turns == th.was.turns
		sum.ran += w.ran
		sum.waited += w.waited
		sum.turns += w.turns
		i++
	}
	return sum
}

func (t *threads) contents(file int) (waits, bool) {
	var buf [128]byte
	n, err := syscall.Pread(file, buf[:], 0)
	if err != nil || n <= 0 || n == len(buf) {
		return waits{}, false
	}
	return parseWaits(buf[:n])
}

// add adds a thread, in the place of an idle one if there is no other, and reports whether it did.
func (t *threads) add(id int) bool {
	at := t.n
	for i := range t.all[:t.n] {
		if t.all[i].id == id {
			return false
		}
		if t.n == mostThreads && t.all[i].idle {
			at = i
		}
	}
	if at == mostThreads || t.dir == closed {
		return false
	}
	file, err := syscall.Openat(t.dir, strconv.Itoa(id)+"/schedstat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	was, ok := t.contents(file)
	if !ok {
		_ = syscall.Close(file)
		return false
	}
	if at == t.n {
		t.n++
	} else {
		_ = syscall.Close(t.all[at].file)
	}
	t.all[at] = thread{id: id, file: file, was: was}
	return true
}

// find adds threads of the next part of the directory: at first as many as there is room for, and later a few.
func (t *threads) find() {
	most := newThreads
	if t.dir == closed {
		path := filepath.Join(t.root, "proc", "self", "task")
		dir, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		t.dir, most = dir, mostThreads
	}
	n, err := syscall.Getdents(t.dir, t.buf[:])
	if n == 0 && err == nil { // the end
		_, _ = syscall.Seek(t.dir, 0, 0)
		n, err = syscall.Getdents(t.dir, t.buf[:])
	}
	if err != nil {
		return
	}
	const positionAt, lengthAt, nameAt = 8, 16, 19 // of struct linux_dirent64
	for rest := t.buf[:max(n, 0)]; len(rest) > nameAt; {
		length := int(binary.NativeEndian.Uint16(rest[lengthAt:]))
		if length <= nameAt || length > len(rest) {
			return
		}
		if id := threadID(rest[nameAt:length]); id > 0 && t.add(id) {
			if most--; most == 0 { // the others come next
				_, _ = syscall.Seek(t.dir, int64(binary.NativeEndian.Uint64(rest[positionAt:])), 0)
				return
			}
		}
		rest = rest[length:]
	}
}

// threadID returns the number that a name begins with, 0 if it begins with none.
func threadID(name []byte) (id int) {
	for _, c := range name {
		if c < '0' || c > '9' || id > 1<<24 {
			break
		}
		id = 10*id + int(c-'0')
	}
	return id
}

// processors returns how many processors the affinity of the process allows; all, if that is not known.
func (t *threads) processors(all float64) float64 {
	n, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, uintptr(len(t.mask)), uintptr(unsafe.Pointer(&t.mask)))
	if errno != 0 || n > uintptr(len(t.mask)) {
		return all
	}
	allowed := 0
	for _, b := range t.mask[:n] {
		allowed += bits.OnesCount8(b)
	}
	return float64(allowed)
}

// close closes all files. Nothing is measured any more.
func (t *threads) close() {
	for _, th := range t.all[:t.n] {
		_ = syscall.Close(th.file)
	}
	t.n = 0
	if t.dir != closed {
		_ = syscall.Close(t.dir)
		t.dir = closed
	}
}
