// SPDX-License-Identifier: Apache-2.0

// Bounds that change while the warden runs: by whom, and from when.

package warden

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/stopbank/stopbank/warden/internal/unit"
)

// Bounds are what operators change in a running warden, see [Warden.Adjust].
type Bounds struct {
	// Min and Max bound the concurrency limit, in tasks: control.Config. Both are 0 with a controller that has no bounds to
	// change.
	Min, Max int
	// MaxQueue is the maximum number of waiting tasks, 1 or more: limiter.Config.
	MaxQueue int
	// Timeout, if not 0, replaces wardenhttp.Config.Timeout of every middleware of this warden, for requests that arrive from now
	// on: 1 ms or more. 0: each has its own.
	Timeout time.Duration
}

// bounded is the optional part of a controller whose bounds can be changed; control.Controller has it.
type bounded interface {
	Bounds() (low, high int)
	SetBounds(low, high int) error
}

// maxByLen bounds the name of an operator, in bytes.
const maxByLen = 128

// inForce are the bounds in force, and the last change of them. It is never modified.
type inForce struct {
	Bounds
	by string
	at time.Time
}

// Bounds returns the bounds in force, and who made the last change of them, and when: "" and the zero time before the first. It
// never blocks, and costs an atomic load.
func (w *Warden) Bounds() (b Bounds, by string, at time.Time) {
	if !w.made() {
		return Bounds{}, "", time.Time{}
	}
	in := w.bounds.Load()
	return in.Bounds, in.by, in.at
}

// Adjust changes the bounds that change leaves different, all of them or none. by says who does it, 1 to 128 bytes of UTF-8, for
// those who look later: the console shows it. One Adjust runs at a time, so that of two that change different bounds none is
// lost; change must not call back into w.
//
// Nothing that runs or waits is interrupted. A lower Max is reached as tasks end, and none starts until then; a lower MaxQueue
// as they start or leave, and until then a task enters the queue only in the place of another. Min and Max count from the next
// decision on.
//
// The error is an [*InvalidError] of this package or of package control: w is nil or zero, by is not allowed, change is nil or
// made a bound invalid, Max is less than the total of Config.ApplyTo, or Min or Max changed and Config.Controller lacks a
// method Bounds() (low, high int) or SetBounds(low, high int) error. Nothing has changed then.
func (w *Warden) Adjust(by string, change func(*Bounds)) error {
	switch {
	case !w.made():
		return notMade()
	case by == "" || len(by) > maxByLen || !utf8.ValidString(by):
		return invalidField("by", fmt.Sprintf("%.140q", by), "1 to 128 bytes of UTF-8")
	case change == nil:
		return invalidField("change", "nil", "a function")
	}
	w.adjusting.Lock()
	defer w.adjusting.Unlock()
	before, _, _ := w.Bounds()
	after := before
	change(&after)
	if after.MaxQueue < 1 {
		return invalidField("Bounds.MaxQueue", after.MaxQueue, "1 or more")
	}
	if allowed := unit.Allowed(after.Timeout, unit.Network, 0, "0 (each middleware has its own)"); allowed != "" {
		return invalidField("Bounds.Timeout", after.Timeout, allowed)
	}
	if after.Min != before.Min || after.Max != before.Max {
		if err := w.setBounds(after); err != nil {
			return err
		}
	}
	if err := w.limiter.SetMaxQueue(after.MaxQueue); err != nil {
		return err
	}
	w.bounds.Store(&inForce{after, by, time.Now()})
	return nil
}

// setBounds passes Min and Max to the controller.
func (w *Warden) setBounds(b Bounds) error {
	c, ok := w.controller.(bounded)
	if !ok {
		return invalidField(
			"Bounds.Min and Max", fmt.Sprintf("%d and %d", b.Min, b.Max), "unchanged: Config.Controller has no Bounds and SetBounds",
		)
	}
	if sized, ok := w.target.(interface{ Total() int }); ok && b.Max < sized.Total() {
		return invalidField("Bounds.Max", b.Max, fmt.Sprintf("the target's total (%d) or more", sized.Total()))
	}
	return c.SetBounds(b.Min, b.Max)
}
