// SPDX-License-Identifier: Apache-2.0

// What those are told who are not served: for which reason, and whether it is true.

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Noes are the rejections of users who count and were not answered in time.
type Noes struct {
	Users int
	// Reasons is how many there were by reason.
	Reasons map[string]int
	// False is by reason how many of the Tried, who were tried again, were answered in time then. Who was rejected for waiting too long
	// waits on; any other is started at the instant of its rejection.
	False map[string]int
	Tried int

	all []*user // in an order that has nothing to do with when they came
}

// no is a rejection of an attempt.
type no struct {
	number uint64 // 0: there was none
	reason string
}

// waited reports whether it was for waiting too long.
func (n no) waited() bool { return n.reason == string(decision.MaxWaitExceeded) }

// noes collects the rejections of a run.
func (w *World) noes(users []user) (n Noes) {
	n.Reasons = map[string]int{}
	for i := range users {
		u := &users[i]
		if u.good || u.no.number == 0 || !w.counts(u) || w.Class() == Overload && !w.settled(u) {
			continue
		}
		n.all = append(n.all, u)
		n.Reasons[u.no.reason]++
	}
	n.Users = len(n.all)
	rand.New(rand.NewPCG(w.Seed, 17)).Shuffle(len(n.all), func(i, j int) { n.all[i], n.all[j] = n.all[j], n.all[i] })
	return n
}

func reason(err error) string {
	rejection := (*decision.Rejection)(nil)
	switch {
	case !errors.As(err, &rejection):
		return "limit"
	case rejection.Outcome == decision.Rejected:
		return string(rejection.Reason)
	}
	return string(rejection.Outcome)
}

// Replay asks up to most of the rejections of a run whether they were true: the world is run again up to the instant of each,
// where the attempt is started or waits on instead. It forgets the others.
func (r *Result) Replay(in Runner, g Guard, most int) error {
	n := &r.Noes
	n.False = map[string]int{}
	for _, u := range n.all[:min(most, len(n.all))] {
		var again *Result
		if err := in(func() (err error) {
			again, err = run(r.World, g, true, u.no)
			return err
		}); err != nil {
			return err
		}
		i, _ := slices.BinarySearchFunc(again.users, u.at, func(v user, at time.Duration) int { return cmp.Compare(v.at, at) })
		n.Tried++
		n.False[u.no.reason] += one(again.users[i].good)
	}
	n.all = nil
	return nil
}

// falsely returns the share of the requests of a run that were rejected for a reason falsely: of all that were, as many as of
// those that were tried again.
func (t *Trial) falsely(r *Result, reason string) float64 {
	n, all := r.Noes, t.World.counted(r)
	return float64(n.False[reason]) / max(float64(n.Tried), 1) * float64(n.Users) / max(float64(all.Offered), 1)
}

// printReasons writes how many are rejected falsely for each reason, as a share of all requests, under ours, which is this law.
func printReasons(out io.Writer, counted []*Trial, law int) {
	reasons := map[string]bool{}
	for _, t := range counted {
		for reason := range t.Laws[law].Noes.Reasons {
			reasons[reason] = true
		}
	}
	var said []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		var falsely []float64
		for _, t := range counted {
			falsely = append(falsely, t.falsely(t.Laws[law], reason))
		}
		mean, half := spread(falsely)
		said = append(said, fmt.Sprintf(" `%s` %.4f ± %.4f", reason, mean, half))
	}
	fmt.Fprintf(out, "\nRejected falsely by ours, of all requests:%s.\n", strings.Join(said, ","))
}
