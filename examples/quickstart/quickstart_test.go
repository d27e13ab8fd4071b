// Package quickstart_test runs the programs of docs/quickstart as processes, sends them the requests that the pages send with
// curl, and checks that the output is as the pages describe it.
package quickstart_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/stopbank/stopbank/lease/leasepg/pgtest"
)

// build compiles a program of this folder and returns a command that runs it, at most until the test ends.
func build(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, "./"+name).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	cmd := exec.CommandContext(t.Context(), file, args...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// start starts a program, which ends with the test at the latest, and returns what it logs: the first line, and the others to come.
func start(t *testing.T, name string, args ...string) (cmd *exec.Cmd, first string, others *bufio.Reader) {
	t.Helper()
	cmd = build(t, name, args...)
	logged, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	others = bufio.NewReader(logged)
	if first, err = others.ReadString('\n'); err != nil {
		t.Fatalf("%s: %q, %v", name, first, err)
	}
	return cmd, first, others
}

// serve starts a program that serves HTTP and returns its URL.
func serve(t *testing.T, name string) (url string) {
	t.Helper()
	cmd, first, others := start(t, name, "-addr", "127.0.0.1:0")
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the programs serve until they are killed
		_, _ = io.Copy(io.Discard, others)
		_ = cmd.Wait()
	})
	_, at, found := strings.Cut(first, "listening on ")
	if !found {
		t.Fatalf("%s: %q", name, first)
	}
	at, _, _ = strings.Cut(strings.TrimSpace(at), ",")
	return at
}

// ask sends n requests, parallel of them at a time, and counts the statuses, like `curl -Z --parallel-max` with sort and uniq.
func ask(t *testing.T, customer, url string, n, parallel int) map[int]int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: parallel}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex // guards counts and failed
	counts, failed := map[int]int{}, error(nil)
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	var clients sync.WaitGroup
	for range parallel {
		clients.Go(func() {
			for range work {
				status, _, err := get(t.Context(), client, customer, url)
				mu.Lock()
				counts[status]++
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	return counts
}

func get(ctx context.Context, client *http.Client, customer, url string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("X-Api-Key", customer)
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), errors.Join(err, resp.Body.Close())
}

// page returns the body of a page, which must have status 200.
func page(t *testing.T, url string) string {
	t.Helper()
	status, body, err := get(t.Context(), http.DefaultClient, "", url)
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d, %v", url, status, err)
	}
	return body
}

func TestHandler(t *testing.T) {
	url := serve(t, "handler")
	counts := ask(t, "", url+"/report", 200, 50)
	if counts[http.StatusOK] < 4 || counts[http.StatusServiceUnavailable] == 0 ||
		counts[http.StatusOK]+counts[http.StatusServiceUnavailable] != 200 {
		t.Errorf("statuses %v", counts)
	}
	want := fmt.Sprintf("limit 4, in flight 0, admitted %d, rejected %d\n", counts[http.StatusOK],
		counts[http.StatusServiceUnavailable])
	// The handler returns, and releases its slot, a moment after its client has read the response.
	// another process: no event to wait for
	for deadline := time.Now().Add(time.Minute); page(t, url+"/stats") != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("stats %q, want %q", page(t, url+"/stats"), want)
		}
	}
}

// Searches are shed and checkouts are not, except perhaps in the first instant, before the first measurement.
func TestServer(t *testing.T) {
	url := serve(t, "server")
	var both sync.WaitGroup
	var searches, checkouts map[int]int
	both.Go(func() { searches = ask(t, "", url+"/search", 400, 50) })
	both.Go(func() { checkouts = ask(t, "", url+"/checkout", 40, 2) })
	both.Wait()
	rejected := searches[http.StatusServiceUnavailable] + searches[http.StatusGatewayTimeout]
	if rejected == 0 || searches[http.StatusOK]+rejected != 400 {
		t.Errorf("searches %v", searches)
	}
	if n := checkouts[http.StatusOK]; n*400 <= searches[http.StatusOK]*40 {
		t.Errorf("checkouts succeed no more often than searches: %v, %v", checkouts, searches)
	}
	var big, small map[int]int
	both.Go(func() { big = ask(t, "k17", url+"/search", 400, 50) })
	both.Go(func() { small = ask(t, "k42", url+"/search", 40, 2) })
	both.Wait()
	if n := small[http.StatusOK]; n*400 <= 2*big[http.StatusOK]*40 {
		t.Errorf("one customer's flood is noticed by another: %v, %v", big, small)
	}
	for path, want := range map[string]string{"/console/": "<html", "/console/state.json": `"deadline_exceeded"`} {
		if body := page(t, url+path); !strings.Contains(body, want) {
			t.Errorf("%s has no %s", path, want)
		}
	}
}

func TestDependency(t *testing.T) {
	url := serve(t, "dependency")
	var both sync.WaitGroup
	var slow, paid map[int]int
	both.Go(func() { slow = ask(t, "", url+"/recommend", 200, 50) })
	both.Go(func() { paid = ask(t, "", url+"/checkout", 200, 5) })
	both.Wait()
	if slow[http.StatusGatewayTimeout] < 5 || slow[http.StatusServiceUnavailable] == 0 ||
		slow[http.StatusGatewayTimeout]+slow[http.StatusServiceUnavailable] != 200 {
		t.Errorf("recommendations %v", slow)
	}
	if paid[http.StatusOK] < 180 { // nearly all: the test machine may be busy
		t.Errorf("checkouts %v", paid)
	}
	if body := page(t, url+"/home"); body != "bestsellers\n" {
		t.Errorf("the fallback answers %q", body)
	}
}

func TestClient(t *testing.T) {
	t.Parallel()
	out, err := build(t, "client").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	answered, received := map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(out)) {
		if name, rest, found := strings.Cut(line, " 300 calls, "); found {
			var a, r int
			if _, err := fmt.Sscanf(rest, "%d answered, the server received %d requests", &a, &r); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			name = strings.TrimSpace(name)
			answered[name], received[name] = a, r
		}
	}
	if answered["5 % fail"] < 270 || answered["down"] != 0 || answered["back"] == 0 {
		t.Errorf("answered %v", answered)
	}
	if n := received["down"]; n == 0 || n > 300*11/10 {
		t.Errorf("a server that is down received %d requests for 300 calls", n)
	}
}

// ordered runs a program twice: the second run must not repeat orders of the first.
func ordered(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := build(t, name, args...)
	for run := range 2 {
		out, err := exec.CommandContext(t.Context(), cmd.Path, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("run %d: %v\n%s", run, err, out)
		}
		done, failed := map[string][]string{}, 0
		for line := range strings.Lines(string(out)) {
			customer, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			if order, found := strings.CutSuffix(rest, " done"); found {
				done[customer] = append(done[customer], order)
			} else if strings.Contains(rest, "failed") {
				failed++
			}
		}
		want := []string{"order 1", "order 2", "order 3", "order 4", "order 5"}
		for i := range 4 {
			if customer := fmt.Sprint("customer-", i); !slices.Equal(done[customer], want) {
				t.Errorf("run %d: %s: %q\n%s", run, customer, done[customer], out)
			}
		}
		if failed != 1 || len(done) != 4 {
			t.Errorf("run %d: %d failures, %d customers\n%s", run, failed, len(done), out)
		}
	}
}

func TestKafka(t *testing.T) {
	t.Parallel()
	brokers := os.Getenv("KAFKA_BROKERS")
	if brokers == "" {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.AllowAutoTopicCreation())
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		brokers = strings.Join(cluster.ListenAddrs(), ",")
	}
	ordered(t, "kafka", "-brokers", brokers)
}

func TestJetstream(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server does not start")
	}
	ordered(t, "jetstream", "-url", s.ClientURL())
}

// TestPostgres is skipped without a PostgreSQL, unless STOPBANK_POSTGRES is required.
func TestPostgres(t *testing.T) {
	t.Parallel()
	s, err := pgtest.Open(t.Context(), false)
	if errors.Is(err, pgtest.ErrNone) && !pgtest.Required() {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ordered(t, "postgres", "-url", s.URL())
}
