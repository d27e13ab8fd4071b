// SPDX-License-Identifier: Apache-2.0

// Tokens: what a store downstream may rely on (L9).

package lease_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stopbank/stopbank/lease"
	machine "github.com/stopbank/stopbank/lease/internal/step"
)

// L9 by every token that is handed out: not 0, nobody's before, greater than all that its domain had, and of no use in any
// other domain.
func TestPropertyTokensRise(t *testing.T) {
	play(t, func(*history) func(step) error {
		owner, highest := map[lease.Token]place{}, map[string]lease.Token{}
		return func(s step) error {
			if holder, known := owner[s.call.Token]; known && holder.domain != s.call.Domain && s.reply.Err == nil {
				return fmt.Errorf("%s took a token of %+v", s.call.Domain, holder)
			}
			l, handedOut := s.reply.Lease, s.call.Op == machine.Reclaim && s.reply.Err == nil
			if s.granted() {
				l = s.reply.Acquisition.Lease
				handedOut = owner[l.Token] != place{l.Domain, l.Offset} // or else it is the same lease, not another one
			}
			if !handedOut {
				return nil
			}
			holder, known := owner[l.Token]
			switch {
			case l.Token == 0:
				return errors.New("token 0")
			case known:
				return fmt.Errorf("token %d went to %+v", l.Token, holder)
			case l.Token <= highest[l.Domain]:
				return fmt.Errorf("token %d after %d", l.Token, highest[l.Domain])
			}
			owner[l.Token], highest[l.Domain] = place{l.Domain, l.Offset}, l.Token
			return nil
		}
	})
}
