// The replicas seen from outside: processes that are started, told, killed and frozen.

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// workerEnv makes a replica of a test binary.
const workerEnv = "ORDERS_REPLICA"

// fleet is all replicas that were started, the first being number 1.
type fleet struct {
	o        options
	url      string
	replicas []*replica
}

type replica struct {
	cmd   *exec.Cmd
	leash io.WriteCloser // a line makes it crash; its end, drain and leave
	dead  bool           // by a signal, as planned
}

func (f *fleet) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o := f.o
	cmd := exec.Command(self, "-replica", fmt.Sprint(len(f.replicas)+1), "-orders", fmt.Sprint(o.orders), "-customers", fmt.Sprint(o.customers),
		"-workers", fmt.Sprint(o.workers), "-partitions", fmt.Sprint(o.partitions), "-session", o.session.String(), "-run", o.run)
	cmd.Env = append(os.Environ(), workerEnv+"=1", "NATS_URL="+f.url)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
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
