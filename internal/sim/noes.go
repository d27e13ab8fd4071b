// SPDX-License-Identifier: Apache-2.0

// What those are told who are not served: how soon, for which reason, and whether it is true.

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Noes are the rejections of users who count and were not answered in time.
type Noes struct {
	Users       int
	Median, P99 float64 // seconds from asking to the rejection
	Part        float64 // the median as a share of patience
	// Reasons is how many there were by reason.
	Reasons map[string]int
	// False is by reason how many of those that were tried again were answered in time then, Tried how many were tried. Who was
	// rejected for waiting too long waits on; any other is started at the instant of its rejection.
	False, Tried map[string]int

	all []*user // in an order that has nothing to do with when they came
}

// no is a rejection of an attempt.
type no struct {
	number uint64 // 0: there was none
	after  time.Duration
	reason string
}

// waited reports whether it was for waiting too long.
func (n no) waited() bool { return n.reason == string(decision.MaxWaitExceeded) }

// noes collects the rejections of a run.
func (w *World) noes(users []user) (n Noes) {
	var waits, parts []float64
	n.Reasons = map[string]int{}
	for i := range users {
		u := &users[i]
		if u.good || u.no.number == 0 || !w.counts(u) || w.Class() == Overload && !w.settled(u) {
			continue
		}
		wait := u.no.after.Seconds()
		waits, parts = append(waits, wait), append(parts, wait/u.patience.Seconds())
		n.all = append(n.all, u)
		n.Reasons[u.no.reason]++
	}
	n.Users = len(n.all)
	if n.Users == 0 {
		return n
	}
	slices.Sort(waits)
	slices.Sort(parts)
	n.Median, n.P99, n.Part = waits[len(waits)/2], waits[len(waits)*99/100], parts[len(parts)/2]
	rand.New(rand.NewPCG(w.Seed, 17)).Shuffle(len(n.all), func(i, j int) { n.all[i], n.all[j] = n.all[j], n.all[i] })
	return n
}

// reason names the cause of a rejection.
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
	n.False, n.Tried = map[string]int{}, map[string]int{}
	for _, u := range n.all[:min(most, len(n.all))] {
		var again *Result
		if err := in(func() (err error) {
			again, err = run(r.World, g, true, u.no)
			return err
		}); err != nil {
			return err
		}
		i, _ := slices.BinarySearchFunc(again.users, u.at, func(v user, at time.Duration) int { return cmp.Compare(v.at, at) })
		n.Tried[u.no.reason]++
		n.False[u.no.reason] += one(again.users[i].good)
	}
	n.all = nil
	return nil
}

// printNoes writes what those are told who are not served.
func printNoes(out io.Writer, counted []*Trial, names []string) {
	fmt.Fprintf(out, "\nWho is not served, means over the worlds in which the oracle does not serve all; of each run up to %d rejections were tried again:\n\n"+
		"| worlds | law | left without a word | rejected | median no, s | its share of patience | p99, s | false of those tried |\n|---|---|---|---|---|---|---|---|\n", replays)
	for _, s := range splits[:6] {
		for i, name := range names {
			n, values, tried, lies := 0, [5][]float64{}, 0, 0
			for _, t := range counted {
				if !s.of(t) || t.World.counted(t.Oracle).Share() > 0.999 {
					continue
				}
				n++
				r := t.Laws[i]
				all := t.World.counted(r)
				rejected := float64(r.Noes.Users) / max(float64(all.Offered), 1)
				values[0], values[1] = append(values[0], all.LeftShare()), append(values[1], rejected)
				if r.Noes.Users > 0 {
					values[2], values[3], values[4] = append(values[2], r.Noes.Median), append(values[3], r.Noes.Part),
						append(values[4], r.Noes.P99)
				}
				tried, lies = tried+total(r.Noes.Tried), lies+total(r.Noes.False)
			}
			if n == 0 {
				continue
			}
			fmt.Fprintf(out, "| %s (%d) | %s |", s.name, n, name)
			for _, v := range values {
				mean, _ := spread(v)
				fmt.Fprintf(out, " %.3g |", mean)
			}
			fmt.Fprintf(out, " %.3f (of %d) |\n", float64(lies)/max(float64(tried), 1), tried)
		}
	}
	printReasons(out, counted, names)
}

// falsely returns the share of the requests of a run that were rejected for a reason falsely: of all that were, as many as of
// those that were tried again.
func (t *Trial) falsely(r *Result, reason string) float64 {
	n, all := r.Noes, t.World.counted(r)
	return float64(n.False[reason]) / max(float64(total(n.Tried)), 1) * float64(n.Users) / max(float64(all.Offered), 1)
}

// printReasons writes how many are rejected falsely for each reason, as a share of all requests.
func printReasons(out io.Writer, counted []*Trial, names []string) {
	fmt.Fprint(out, "\nFalse rejections by reason; shares of all requests are means over all worlds, and over those in overload:\n\n"+
		"| law | reason | rejected | tried | of them false | false, of all requests | of those in overload |\n|---|---|---|---|---|---|---|\n")
	for i, name := range names {
		reasons := map[string]bool{}
		for _, t := range counted {
			for reason := range t.Laws[i].Noes.Reasons {
				reasons[reason] = true
			}
		}
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			tried, lies := 0, 0
			var rejected, falsely, over []float64
			for _, t := range counted {
				n := t.Laws[i].Noes
				tried, lies = tried+n.Tried[reason], lies+n.False[reason]
				rejected = append(rejected, float64(n.Reasons[reason])/max(float64(t.World.counted(t.Laws[i]).Offered), 1))
				falsely = append(falsely, t.falsely(t.Laws[i], reason))
				if t.World.Class() == Overload {
					over = append(over, falsely[len(falsely)-1])
				}
			}
			all, _ := spread(rejected)
			of, half := spread(falsely)
			in, halfIn := spread(over)
			fmt.Fprintf(out, "| %s | %s | %.4f | %d | %d | %.4f ± %.4f | %.4f ± %.4f |\n", name, reason, all, tried, lies, of, half, in,
				halfIn)
		}
	}
}

func total(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}
