// SPDX-License-Identifier: Apache-2.0

// A floor that would go down.

package step

import (
	"errors"
	"fmt"
)

// ErrFloor is what errors.Is finds in a *FloorError.
var ErrFloor = errors.New("lease: floor goes down")

// FloorError rejects a Compact that would lower the floor.
type FloorError struct {
	Floor int64 // the ledger's floor
	Got   int64 // the floor asked for
}

func (e *FloorError) Error() string {
	return fmt.Sprintf("lease: floor %d is below the ledger's floor %d", e.Got, e.Floor)
}

// Is makes errors.Is find ErrFloor.
func (e *FloorError) Is(target error) bool { return target == ErrFloor }
