// The fleet: replica processes that the parent starts, kills and freezes.

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// childEnv has the servers' addresses, which may contain a password. It also makes a test binary run this program.
const childEnv = "ORDERS_SERVERS"

// fleet has all started replicas; the first is number 1.
type fleet struct {
	o        options
	replicas []*replica
}

type replica struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser // a line makes it crash; its end, drain and leave
	stdout *stdout
	killed bool          // as planned
	exited chan struct{} // closed when the process has ended
	err    error         // of the process; set before exited is closed
}

// stdout is a replica's standard output. Its first line reports the first partition.
type stdout struct {
	once, onceBack  sync.Once
	partition, back chan struct{} // closed by the first line, and by the one that says that it has a partition again
}

func (s *stdout) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.partition) })
	if bytes.Contains(p, []byte(again)) {
		s.onceBack.Do(func() { close(s.back) })
	}
	return os.Stdout.Write(p)
}

// self is a command that runs this program.
func self(args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"=none"), os.Stderr
	return cmd, nil
}

var errEnded = errors.New("exit code 0")

func (f *fleet) start() error {
	o := f.o
	cmd, err := self("-replica", fmt.Sprint(len(f.replicas)+1), "-orders", fmt.Sprint(o.orders), "-customers",
		fmt.Sprint(o.customers),
		"-workers", fmt.Sprint(o.workers), "-partitions", fmt.Sprint(o.partitions), "-session", o.session.String(), "-run", o.run)
	if err != nil {
		return err
	}
	out := &stdout{partition: make(chan struct{}), back: make(chan struct{})}
	cmd.Env, cmd.Stdout = append(cmd.Env, childEnv+"="+o.servers), out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := &replica{cmd: cmd, stdin: stdin, stdout: out, exited: make(chan struct{})}
	f.replicas = append(f.replicas, r)
	go func() {
		r.err = cmd.Wait()
		close(r.exited)
	}()
	return nil
}

// awaitPartitions waits until every live replica has had a partition, so that faults hit only replicas that have joined the
// group. It fails if a replica exits before.
func (f *fleet) awaitPartitions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for i, r := range f.replicas {
		if err := f.awaitPartition(ctx, i+1, r.stdout.partition); err != nil {
			return err
		}
	}
	return nil
}

// awaitBack waits until a replica that was frozen has lost its partitions and has one again.
func (f *fleet) awaitBack(ctx context.Context, number int) error {
	if !freezes {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return f.awaitPartition(ctx, number, f.replicas[number-1].stdout.back)
}

// awaitPartition waits for what says that a replica has one.
func (f *fleet) awaitPartition(ctx context.Context, number int, said <-chan struct{}) error {
	r := f.replicas[number-1]
	select {
	case <-said:
	case <-r.exited:
		if !r.killed {
			return fmt.Errorf("replica %d exited before it got a partition: %w", number, cmp.Or(r.err, errEnded))
		}
	case <-ctx.Done():
		return fmt.Errorf("replica %d has no partition: %w", number, ctx.Err())
	}
	return nil
}

// kill kills a replica with SIGKILL, which it cannot handle.
func (f *fleet) kill(number int) error {
	r := f.replicas[number-1]
	r.killed = true
	return r.cmd.Process.Kill()
}

// crash makes a replica kill itself in a handler.
func (f *fleet) crash(number int) error {
	r := f.replicas[number-1]
	r.killed = true
	_, err := io.WriteString(r.stdin, "crash\n")
	return err
}

// leave shuts the live replicas down gracefully and checks that exactly the planned ones were killed.
func (f *fleet) leave() (failed error) {
	for i, r := range f.replicas {
		_ = r.stdin.Close() // fails if the replica is dead
		<-r.exited
		err := r.err
		var exit *exec.ExitError
		if signaled := errors.As(err, &exit) && exit.ExitCode() == -1; signaled != r.killed || err != nil && !signaled {
			failed = errors.Join(failed, fmt.Errorf("replica %d: killed %v, planned %v: %w", i+1, signaled, r.killed, err))
		}
	}
	f.replicas = nil
	return failed
}

// end kills all remaining processes.
func (f *fleet) end() {
	for _, r := range f.replicas {
		_ = r.cmd.Process.Kill()
		<-r.exited
	}
}
