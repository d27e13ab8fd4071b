// The replicas seen from outside: processes that are started, told, killed and frozen.

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	dead  bool           // by a signal, as planned
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

func (f *fleet) start() error {
	o := f.o
	cmd, err := itself("-replica", fmt.Sprint(len(f.replicas)+1), "-engine", o.engine, "-orders", fmt.Sprint(o.orders), "-customers", fmt.Sprint(o.customers),
		"-workers", fmt.Sprint(o.workers), "-partitions", fmt.Sprint(o.partitions), "-session", o.session.String(), "-run", o.run)
	if err != nil {
		return err
	}
	cmd.Env, cmd.Stdout = append(cmd.Env, childEnv+"="+o.servers), os.Stdout
	leash, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	f.replicas = append(f.replicas, &replica{cmd: cmd, leash: leash})
	return cmd.Start()
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
		err := r.cmd.Wait()
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
		_ = r.cmd.Wait()
	}
}
