// SPDX-License-Identifier: Apache-2.0

// The suite on the group in memory, which is then broken on purpose, one way at a time; all in virtual time.

package ownertest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/internal/testkit/witness"
)

func TestThePlainGroupPasses(t *testing.T) {
	RunIn(t, synctest.Test, func(_ testing.TB, partitions int) Group { return newPlain("", partitions) })
}

// watch runs a check to its end and returns what it said.
func watch(t *testing.T, check func(testing.TB)) string {
	text := witness.Watch(t, check)
	time.Sleep(time.Hour) // whatever still runs comes to its end
	return text
}

func TestTheSuiteHasTeeth(t *testing.T) {
	for fault, by := range map[string]string{
		"a member does not look at its clock":      "CutOff",
		"a member that hears nothing ends":         "CutOffWhileWorkLingers",
		"who leaves is silent":                     "LeavingWaits",
		"Hold does not wait":                       "LeavingWaits",
		"Hold returns the context's error":         "JoinsAndLeaves",
		"the dead keep what they have":             "CutOff Zombie",
		"who comes back goes on":                   "",
		"one partition more is as good":            "JoinsAndLeaves",
		"who comes first has all":                  "JoinsAndLeaves",
		"what is given back is given away at once": "GiveBackWaits",
		"all is given back at once":                "GiveBackWaits",
		"what is still at work is begun again":     "CutOffWhileWorkLingers",
		"whoever comes, has the first":             "JoinsAndLeaves",
		"a name of its own":                        "JoinsAndLeaves",
		"no source":                                "JoinsAndLeaves",
		"nobody claims":                            "Zombie",
		"what is given back is kept":               "JoinsAndLeaves WorkReturns",
		"what is lost is asked back":               "CutOff",
	} {
		t.Run(fault, func(t *testing.T) {
			var who []string
			for _, c := range checks() {
				synctest.Test(t, func(t *testing.T) {
					open := func(_ testing.TB, partitions int) Group { return newPlain(fault, partitions) }
					if text := watch(t, func(t testing.TB) { c.run(t, open) }); text != "" {
						who = append(who, c.name)
						t.Logf("%s: %.300s", c.name, text)
					}
				})
			}
			for want := range strings.FieldsSeq(by) {
				if !strings.Contains(" "+strings.Join(who, " ")+" ", " "+want+" ") {
					t.Errorf("caught by %v, want %s", who, by)
				}
			}
			if len(who) == 0 {
				t.Error("caught by nobody")
			}
		})
	}
}
