// SPDX-License-Identifier: Apache-2.0

package pgtest

// This file is about whom the private server runs as: PostgreSQL refuses to run as root.

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// immediate is the signal that ends a PostgreSQL at once, without a checkpoint.
const immediate = syscall.SIGQUIT

// owner is a user other than this process's.
type owner struct{ uid, gid uint32 }

// otherUser returns nil unless this process is root's.
func otherUser() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // no other user is an answer, and every method takes it
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		return &owner{uint32(uid), uint32(gid)}, errors.Join(err1, err2)
	}
	return nil, fmt.Errorf("%w (as root it needs a user postgres or nobody to run as)", ErrNone)
}

func (o *owner) own(path string) error {
	if o == nil {
		return nil
	}
	return os.Chown(path, int(o.uid), int(o.gid))
}

// attributes make a process the owner's, and end it when this one is gone, killed or not.
func (o *owner) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: immediate, Setpgid: true}
	if o != nil {
		a.Credential = &syscall.Credential{Uid: o.uid, Gid: o.gid}
	}
	return a
}
