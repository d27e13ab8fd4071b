// The replicas seen from outside: processes that are started, told, killed and frozen.

package main

import (
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

// childEnv makes this program of a test binary, and tells a replica where the servers are: an address may hold a password.
const childEnv = "ORDERS_SERVERS"

// fleet is all replicas that were started, the first being number 1.
type fleet struct {
	o        options
	replicas []*replica
}

type replica struct {
	cmd   *exec.Cmd
	leash io.WriteCloser // a line makes it crash; its end, drain and leave
	voice *voice
	dead  bool          // by a signal, as planned
	over  chan struct{} // closed when the process has ended
	err   error         // how, then
}

// voice is a replica's standard output, of which the first words say that it has a partition.
type voice struct {
	once  sync.Once
	heard chan struct{} // closed
}

func (v *voice) Write(words []byte) (int, error) {
	v.once.Do(func() { close(v.heard) })
	return os.Stdout.Write(words)
}

// itself is this program once more.
func itself(args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"=none"), os.Stderr
	return cmd, nil
}

var errEnded = errors.New("without an error")

func (f *fleet) start() error {
	o := f.o
	cmd, err := itself("-replica", fmt.Sprint(len(f.replicas)+1), "-engine", o.engine, "-orders", fmt.Sprint(o.orders), "-customers", fmt.Sprint(o.customers),
		"-workers", fmt.Sprint(o.workers), "-partitions", fmt.Sprint(o.partitions), "-session", o.session.String(), "-run", o.run)
	if err != nil {
		return err
	}
	v := &voice{heard: make(chan struct{})}
	cmd.Env, cmd.Stdout = append(cmd.Env, childEnv+"="+o.servers), v
	leash, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := &replica{cmd: cmd, leash: leash, voice: v, over: make(chan struct{})}
	f.replicas = append(f.replicas, r)
	go func() {
		r.err = cmd.Wait()
		close(r.over)
	}()
	return nil
}

// settled waits until every replica that lives has been given a partition. A member that comes to harm has got through its first join then. One
// that ends before is an error at once.
func (f *fleet) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for i, r := range f.replicas {
		select {
		case <-r.voice.heard:
		case <-r.over:
			if !r.dead {
				return fmt.Errorf("replica %d has ended before it was given a partition: %w", i+1, cmp.Or(r.err, errEnded))
			}
		case <-ctx.Done():
			return fmt.Errorf("replica %d gets no partition: %w", i+1, ctx.Err())
		}
	}
	return nil
}

// kill ends a replica by SIGKILL: it gets no chance to do anything.
func (f *fleet) kill(number int) error {
	r := f.replicas[number-1]
	r.dead = true
	return r.cmd.Process.Kill()
}

// crash makes a replica kill itself in a handler.
func (f *fleet) crash(number int) error {
	r := f.replicas[number-1]
	r.dead = true
	_, err := io.WriteString(r.leash, "crash\n")
	return err
}

// leave lets all that live drain and leave, and checks that the others are dead.
func (f *fleet) leave() (failed error) {
	for i, r := range f.replicas {
		_ = r.leash.Close() // an error: it is dead
		<-r.over
		err := r.err
		var exit *exec.ExitError
		if signaled := errors.As(err, &exit) && exit.ExitCode() == -1; signaled != r.dead || err != nil && !signaled {
			failed = errors.Join(failed, fmt.Errorf("replica %d: killed %v, planned %v: %w", i+1, signaled, r.dead, err))
		}
	}
	f.replicas = nil
	return failed
}

// end leaves no process behind.
func (f *fleet) end() {
	for _, r := range f.replicas {
		_ = r.cmd.Process.Kill()
		<-r.over
	}
}
