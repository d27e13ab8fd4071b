// The program of docs/quickstart/service.md as a process: idle, in overload, afterwards, and told to end.

package quickstart_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// account is what the books say of one compartment: calls by what became of them.
type account struct{ Submitted, Succeeded, Refused, InFlight, Queued uint64 }

// console is the account of each compartment on the console at this address, and the levels of its sentences.
func console(t *testing.T, pages string) (accounts map[string]account, levels []string) {
	t.Helper()
	var state struct {
		Verdicts []struct{ Level string }
		Set      struct {
			Compartments []struct {
				Name              string
				Submitted, Queued uint64
				InFlight          uint64 `json:"in_flight"`
				Refused           uint64 `json:"rejected_total"`
				Outcomes          map[string]uint64
			}
		}
	}
	if err := json.Unmarshal([]byte(page(t, pages+"/console/state.json")), &state); err != nil {
		t.Fatal(err)
	}
	accounts = map[string]account{}
	for _, c := range state.Set.Compartments {
		accounts[c.Name] = account{c.Submitted, c.Outcomes["succeeded"], c.Refused, c.InFlight, c.Queued}
	}
	for _, v := range state.Verdicts {
		levels = append(levels, v.Level)
	}
	return accounts, levels
}

func TestService(t *testing.T) {
	cmd, first, others := start(t, "service", "-addr", "127.0.0.1:0", "-operators", "127.0.0.1:0", "-spread", "4s")
	var url, pages string
	for field := range strings.FieldsSeq(first) {
		if addr, ok := strings.CutPrefix(field, "addr="); ok {
			url = "http://" + addr
		}
		if addr, ok := strings.CutPrefix(field, "operators="); ok {
			pages = "http://" + addr
		}
	}
	if page(t, url+"/readyz") != "ready\n" {
		t.Error("not ready")
	}
	accounts, levels := console(t, pages)
	if !maps.Equal(accounts, map[string]account{"checkout": {}, "search": {}}) || slices.Contains(levels, "act") {
		t.Errorf("idle: %+v, %v", accounts, levels)
	}

	// Fifty clients of a customer who may have four slots search, while another customer searches and others buy.
	var all sync.WaitGroup
	var big, small, checkouts map[int]int
	all.Go(func() { big = ask(t, "big", url+"/search", 400, 50) })
	all.Go(func() { small = ask(t, "small", url+"/search", 40, 2) })
	all.Go(func() { checkouts = ask(t, "", url+"/checkout", 200, 5) })
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	for watching := true; watching; {
		select {
		case <-over:
			watching = false
		case <-time.After(50 * time.Millisecond):
		}
		if accounts, _ := console(t, pages); accounts["checkout"].InFlight > 10 || accounts["search"].InFlight > 8 ||
			accounts["search"].Queued > 2*4 {
			t.Errorf("more than the configuration allows: %+v", accounts)
		}
	}
	t.Log("big", big, "small", small, "checkouts", checkouts)
	if big[http.StatusTooManyRequests] == 0 || big[http.StatusOK] == 0 {
		t.Errorf("the customer who sends too much: %v", big)
	}
	if small[http.StatusOK]*400 <= big[http.StatusOK]*40 || checkouts[http.StatusOK]*400 <= big[http.StatusOK]*200 {
		t.Errorf("others are answered no more often: %v and %v beside %v", small, checkouts, big)
	}

	// Every request is in the books, once, as what its client was told. A handler's slot is free a moment after its client has the
	// answer.
	want := map[string]account{"checkout": told(checkouts), "search": told(big, small)}
	var shown map[string]account
	// another process: no event to wait for
	for deadline := time.Now().Add(time.Minute); !maps.Equal(shown, want); time.Sleep(10 * time.Millisecond) {
		if shown, _ = console(t, pages); time.Now().After(deadline) {
			t.Fatalf("the console has %+v, clients were told %+v", shown, want)
		}
	}
	exported := page(t, pages+"/metrics")
	for name, a := range want {
		for _, line := range []string{
			fmt.Sprintf("submitted_total{compartment=%q,set=\"shop\"} %d", name, a.Submitted),
			fmt.Sprintf("answered_total{compartment=%q,outcome=\"succeeded\",set=\"shop\"} %d", name, a.Succeeded),
		} {
			if !strings.Contains(exported, "\nstopbank_compartment_"+line+"\n") {
				t.Errorf("the metrics have no %s", line)
			}
		}
	}

	// It ends with nobody left without an answer: those who come while it spreads, and those who are inside when it has.
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for {
		status, _, err := get(t.Context(), http.DefaultClient, "", url+"/readyz")
		if err != nil {
			t.Fatalf("its listener closed before readiness failed: %v", err)
		}
		if status == http.StatusServiceUnavailable {
			break
		}
	}
	if got := ask(t, "", url+"/checkout", 20, 5); got[http.StatusOK] != 20 || page(t, url+"/livez") != "alive\n" {
		t.Errorf("while it spreads: %v", got)
	}
	rest, _ := io.ReadAll(others)
	if log := string(rest); !strings.Contains(log, "stopbank: draining") || !strings.Contains(log, "rejecting started") ||
		strings.Contains(log, "ERROR") {
		t.Errorf("it logged %s", log)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// docs/kubernetes/rollout.yaml gives the program enough time to shut down, and names flags, paths and a limiter that it has.
func TestTheManifestFits(t *testing.T) {
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	manifest, program := read("../../docs/kubernetes/rollout.yaml"), read("service/main.go")
	number := func(text, pattern string) int {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s", pattern)
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	grace, spread := number(manifest, `terminationGracePeriodSeconds: (\d+)`), number(manifest, `"-spread", "(\d+)s"`)
	if shutdown := number(read("../../warden/service/config.go"), `defaultShutdown = (\d+) \* time\.Second`); grace <= spread+shutdown {
		t.Errorf("%d s for a shutdown that takes %d s and %d s", grace, spread, shutdown)
	}
	const readiness = `readinessProbe:\n.*\n +periodSeconds: (\d+)\n +timeoutSeconds: (\d+)\n +failureThreshold: (\d+)`
	m := regexp.MustCompile(readiness).FindString(manifest)
	period, failures := number(m, `periodSeconds: (\d+)`), number(m, `failureThreshold: (\d+)`)
	if spread <= period*(failures+1) {
		t.Errorf("it serves for %d s after it stops being ready; %d probes, every %d s, must fail before that is known", spread, failures,
			period)
	}
	for named, has := range map[string]string{`"-(\w+)"`: `flag.*\("%s"`, `path: (\S+),`: `"GET %s"`, `limiter: (\w+)`: `Name: +"%s"`} {
		for _, name := range regexp.MustCompile(named).FindAllStringSubmatch(manifest, -1) {
			if !regexp.MustCompile(fmt.Sprintf(has, name[1])).MatchString(program) {
				t.Errorf("the manifest has %s, and the program does not", name[0])
			}
		}
	}
}

// told is the account of the requests with these answers, when all is over.
func told(statuses ...map[int]int) (a account) {
	for _, of := range statuses {
		for status, answers := range of {
			n := uint64(answers) //nolint:gosec // a count
			a.Submitted += n
			if status == http.StatusOK {
				a.Succeeded += n
			} else {
				a.Refused += n
			}
		}
	}
	return a
}
