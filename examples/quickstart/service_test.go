// The program of docs/quickstart/service.md as a process: idle, in overload, afterwards, and told to end.

package quickstart_test

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A program is a running service with its operators' pages.
type program struct {
	t          *testing.T
	cmd        *exec.Cmd
	url, pages string
	log        chan string // what it logged after it began to serve, once it has ended
}

func startService(t *testing.T) *program {
	t.Helper()
	p := &program{t: t, cmd: build(t, "service", "-addr", "127.0.0.1:0", "-operators", "127.0.0.1:0", "-spread", "4s"),
		log: make(chan string, 1)}
	logged, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(logged)
	first, err := lines.ReadString('\n')
	for field := range strings.FieldsSeq(first) {
		if addr, ok := strings.CutPrefix(field, "addr="); ok {
			p.url = "http://" + addr
		}
		if addr, ok := strings.CutPrefix(field, "operators="); ok {
			p.pages = "http://" + addr
		}
	}
	if err != nil || p.url == "" || p.pages == "" {
		t.Fatalf("its first line is %q, %v", first, err)
	}
	go func() {
		rest, _ := io.ReadAll(lines)
		p.log <- string(rest)
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // it has ended, unless the test failed
	return p
}

// account is what the books say of one compartment: calls by what became of them.
type account struct{ Submitted, Succeeded, Refused, InFlight, Queued uint64 }

// console is the account of each compartment on the console, and the levels of its sentences.
func (p *program) console() (accounts map[string]account, levels []string) {
	p.t.Helper()
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
	if err := json.Unmarshal([]byte(page(p.t, p.pages+"/console/state.json")), &state); err != nil {
		p.t.Fatal(err)
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

// metrics is the account of each compartment in the metrics.
func (p *program) metrics() map[string]account {
	p.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page(p.t, p.pages+"/metrics")))
	if err != nil {
		p.t.Fatal(err)
	}
	accounts := map[string]account{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			a, n := accounts[labels["compartment"]], uint64(m.GetCounter().GetValue()+m.GetGauge().GetValue())
			switch strings.TrimPrefix(name, "stopbank_compartment_") + labels["outcome"] {
			case "submitted_total":
				a.Submitted += n
			case "answered_totalsucceeded":
				a.Succeeded += n
			case "rejected_total", "left_total":
				a.Refused += n
			case "in_flight":
				a.InFlight += n
			case "queued":
				a.Queued += n
			default:
				continue
			}
			if labels["set"] != "shop" {
				p.t.Errorf("%s of the set %q", name, labels["set"])
			}
			accounts[labels["compartment"]] = a
		}
	}
	return accounts
}

func TestService(t *testing.T) {
	p := startService(t)
	if page(t, p.url+"/readyz") != "ready\n" {
		t.Error("not ready")
	}
	accounts, levels := p.console()
	if !maps.Equal(accounts, map[string]account{"checkout": {}, "search": {}}) || slices.Contains(levels, "act") {
		t.Errorf("idle: %+v, %v", accounts, levels)
	}

	// Fifty clients of a customer who may have four slots search, while another customer searches and others buy.
	var all sync.WaitGroup
	var big, small, checkouts map[int]int
	all.Go(func() { big = askAs(t, "big", p.url+"/search", 400, 50) })
	all.Go(func() { small = askAs(t, "small", p.url+"/search", 40, 2) })
	all.Go(func() { checkouts = ask(t, p.url+"/checkout", 200, 5) })
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	for watching := true; watching; {
		select {
		case <-over:
			watching = false
		case <-time.After(50 * time.Millisecond):
		}
		if accounts, _ := p.console(); accounts["checkout"].InFlight > 10 || accounts["search"].InFlight > 8 ||
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
		if shown, _ = p.console(); time.Now().After(deadline) {
			t.Fatalf("the console has %+v, clients were told %+v", shown, want)
		}
	}
	if exported := p.metrics(); !maps.Equal(exported, want) {
		t.Errorf("the metrics have %+v, clients were told %+v", exported, want)
	}

	// It ends with nobody left without an answer: those who come while it spreads, and those who are inside when it has.
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for {
		status, _, err := get(t.Context(), http.DefaultClient, p.url+"/readyz")
		if err != nil {
			t.Fatalf("its listener closed before readiness failed: %v", err)
		}
		if status == http.StatusServiceUnavailable {
			break
		}
	}
	if got := ask(t, p.url+"/checkout", 20, 5); got[http.StatusOK] != 20 {
		t.Errorf("while it spreads: %v", got)
	}
	if log := <-p.log; !strings.Contains(log, "stopbank: draining") || !strings.Contains(log, "rejecting started") ||
		strings.Contains(log, "ERROR") {
		t.Errorf("it logged %s", log)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
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
