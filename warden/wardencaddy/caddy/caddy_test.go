// SPDX-License-Identifier: Apache-2.0

// The example as the guide runs it: each service behind the Caddyfile, more clients than workers, and a reload in between.

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// patience ends a test that hangs; no test depends on its value.
const patience = 2 * time.Minute

func adapt(text string) ([]byte, error) {
	cfg, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	return cfg, err
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every Caddyfile of the guide is one, and the first is this folder's.
func TestGuide(t *testing.T) {
	guide := read(t, "../../../docs/guides/caddy.md")
	shown := regexp.MustCompile("(?s)```caddyfile\n(.*?)```").FindAllStringSubmatch(guide, -1)
	if len(shown) < 3 || shown[0][1] != read(t, "Caddyfile") {
		t.Fatalf("%d Caddyfiles, of which the first is not this folder's", len(shown))
	}
	for _, s := range shown {
		text := s[1]
		if strings.HasPrefix(text, "stopbank") {
			text = ":8080 {\n" + text + "\n}\n"
		}
		if _, err := adapt(text); err != nil {
			t.Errorf("%v:\n%s", err, text)
		}
	}
}

// addr returns an address that nobody listens on.
func addr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve starts a service in a process of its own, and returns its address.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	at := addr(t)
	_, port, _ := net.SplitHostPort(at)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PORT="+port)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // php-fpm ends its workers then
	if err := cmd.Start(); err != nil {
		t.Skipf("%s is not there: %v", args[0], err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", at); err == nil {
			_ = c.Close()
			return at
		} else if time.Now().After(end) {
			t.Fatalf("%v does not listen: %v", args, err)
		}
	}
}

func TestOverload(t *testing.T) {
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		python = "python3"
	}
	php := "php-fpm"
	if found, _ := filepath.Glob("/usr/sbin/php-fpm*"); len(found) > 0 {
		php = found[0] // its name has its version
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name, service := range map[string][]string{
		"Python": {python, "app.py"}, "Node": {"node", "app.js"},
		"PHP": {php, "--nodaemonize", "--allow-to-run-as-root", "--fpm-config", "php-fpm.conf"},
	} {
		t.Run(name, func(t *testing.T) {
			upstream, at := serve(t, service...), addr(t)
			site := read(t, "Caddyfile")
			if name == "PHP" { // as the guide says
				before, _, found := strings.Cut(site, "reverse_proxy")
				if !found {
					t.Fatal(site)
				}
				site = before + "root * " + here + "\n\tphp_fastcgi 127.0.0.1:8000\n}\n"
			}
			site = strings.NewReplacer(":8080", "http://"+at, "127.0.0.1:8000", upstream).Replace(site)
			load := func(more string) {
				cfg, err := adapt(fmt.Sprintf("{\n\tadmin off\n\tpersist_config off\n\tauto_https off\n\tstorage file_system %q\n}\n%s",
					t.TempDir(), strings.Replace(site, "\tbind", "\t"+more+"\n\tbind", 1)))
				if err == nil {
					err = caddy.Load(cfg, true)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			load("")
			defer func() {
				if err := caddy.Stop(); err != nil {
					t.Error(err)
				}
			}()
			client := &http.Client{Timeout: patience}
			get := func(path string) int {
				resp, err := client.Get("http://" + at + path)
				if err != nil {
					t.Errorf("%s: %v", path, err) // connections are kept, so that a reload resets none
					return 0
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				switch ok := strings.Contains(string(body), "done "+path); {
				case ok && resp.StatusCode == http.StatusOK:
				case resp.Header.Get("Warden-Rejected") == "" && !strings.Contains(string(body), `"reason":"timeout_running"`):
					t.Errorf("%s: %s %q", path, resp.Status, body)
				}
				if resp.StatusCode == 499 {
					t.Errorf("%s: a client that waits is told that it has left: %v %q", path, resp.Header, body)
				}
				return resp.StatusCode
			}
			var clients sync.WaitGroup
			var mu sync.Mutex
			statuses := map[int]int{}
			for i := range 40 {
				clients.Go(func() {
					for n := range 5 {
						status := get(fmt.Sprintf("/search/%d/%d", i, n))
						mu.Lock()
						statuses[status]++
						mu.Unlock()
					}
				})
			}
			time.Sleep(100 * time.Millisecond)
			load("header Reloaded yes")
			clients.Wait()
			if statuses[http.StatusOK] == 0 || get("/checkout") != http.StatusOK {
				t.Errorf("%v", statuses)
			}
			t.Log(statuses)
		})
	}
}
