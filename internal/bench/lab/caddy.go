// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The experiment caddy: fronts before services in other languages, each with the configuration that its users would write.

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// service is an upstream with four workers or connections, 40 ms a request, which finishes what its clients have left.
type service struct {
	args    func(app, port string) []string
	hang    bool // one of the workers hangs
	fastcgi bool // it speaks FastCGI, not HTTP
}

// proxied is the work of a service whose clients leave after a second.
func proxied(name, about string, s *service) workload {
	return workload{name: name, about: about, service: s, patience: time.Second}
}

// idle is a service that answers at once: what a front costs.
var idle = workload{name: "idle", about: "a service that answers at once, 100/s: no overload", patience: time.Second, rate: 100}

// caddyGroups are the cells.
func caddyGroups() (all []group) {
	four := func(w workload, loads ...float64) {
		all = append(all, group{work: w, kind: "cold", loads: loads, ways: fronts()})
	}
	python := proxied("gunicorn", "gunicorn, 4 synchronous workers, 40 ms a request", &service{args: gunicorn})
	four(python, 1, 2, 4)
	four(proxied("hung", "the same, and one worker hangs", &service{args: gunicorn, hang: true}), 2)
	four(proxied("node", "Node, 4 connections, 40 ms a request", &service{args: func(app, _ string) []string {
		return []string{"node", filepath.Join(app, "app.js")}
	}}), 4)
	four(proxied("php", "php-fpm, 4 workers, 40 ms a request, by FastCGI", &service{fastcgi: true, args: func(app, _ string) []string {
		return []string{phpFPM(), "--nodaemonize", "--allow-to-run-as-root", "--fpm-config", filepath.Join(app, "php-fpm.conf")}
	}}), 4)
	quick := idle
	quick.service = &service{}
	return append(all, group{work: quick, kind: "cost", loads: []float64{1}, ways: []way{fronts()[0], fronts()[len(fronts())-1]}})
}

// phpFPM is the program, which has its version in its name on some systems; "" if there is none.
func phpFPM() string {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		if found, _ := filepath.Glob(filepath.Join(dir, "php-fpm*")); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}

func gunicorn(app, port string) []string {
	return []string{"gunicorn", "--workers", "4", "--timeout", "300", "--log-level", "error", "--bind", "127.0.0.1:" + port, "--chdir",
		app, "app:application"}
}

// front is what stands before a service: its configuration, in which DIR is a folder of its own, and how it is run.
type front struct {
	config func(port string, to upstream) string
	args   func(l *lab, file string) []string
}

// upstream is a service as a front sees it.
type upstream struct {
	addr string
	php  string // the folder of index.php, if the service speaks FastCGI
}

// proxy is Caddy's directive.
func (to upstream) proxy(option string) string {
	if to.php == "" {
		return fmt.Sprintf("reverse_proxy %s {\n\t\t%s\n\t}", to.addr, option)
	}
	return fmt.Sprintf("root * %s\n\tphp_fastcgi %s {\n\t\t%s\n\t}", to.php, to.addr, option)
}

// caddyfile is one without what would write files or logs, and with an admin endpoint of its own.
func caddyfile(port, site string) string {
	return fmt.Sprintf("{\n\tadmin unix/DIR/admin\n\tpersist_config off\n\tauto_https off\n\tlog {\n\t\toutput discard\n\t}\n}\n"+
		"http://127.0.0.1:%s {\n\thandle /metrics {\n\t\tmetrics\n\t}\n\t%s\n}\n", port, site)
}

// fronts are the ways of limiting before a service, in the order of the report.
func fronts() []way {
	nginx := &front{nginxConfig, func(_ *lab, file string) []string { return []string{"nginx", "-p", filepath.Dir(file), "-c", file} }}
	haproxy := &front{haproxyConfig, func(_ *lab, file string) []string { return []string{"haproxy", "-db", "-f", file} }}
	return []way{
		{name: "bare", front: withOption("")}, {name: "max_requests", front: withOption("unhealthy_request_count 4")},
		{name: "nginx", front: nginx}, {name: "haproxy", front: haproxy},
		{name: "constant 4", front: guarded(4)}, {name: "constant 6", front: guarded(6)}, {name: "ours", front: guarded(0)},
	}
}

func runCaddy(l *lab, file string) []string {
	return []string{l.caddy, "run", "--adapter", "caddyfile", "--config", file}
}

// withOption is Caddy's own proxy.
func withOption(option string) *front {
	return &front{func(port string, to upstream) string { return caddyfile(port, to.proxy(option)) }, runCaddy}
}

// guarded is Caddy with Stopbank, with a fixed limit or, with 0, its own.
func guarded(n int) *front {
	return &front{func(port string, to upstream) string {
		transport, limit := "transport stopbank", ""
		if to.php != "" {
			transport = "" // that of php_fastcgi waits for the worker too
		}
		if n > 0 {
			limit = fmt.Sprintf("min %d\n\t\tmax %d\n\t\tinitial %d", n, n, n)
		}
		return caddyfile(port, fmt.Sprintf("stopbank {\n\t\ttimeout 1s\n\t\tpriority critical /checkout*\n\t\t%s\n\t}\n\t%s", limit, to.proxy(transport)))
	}, runCaddy}
}

func nginxConfig(port string, to upstream) string {
	pass := "proxy_pass http://service;"
	if to.php != "" {
		pass = fmt.Sprintf(`fastcgi_param SCRIPT_FILENAME %s/index.php; fastcgi_param REQUEST_METHOD $request_method;
			fastcgi_param REQUEST_URI $request_uri; fastcgi_pass service;`, to.php)
	}
	return fmt.Sprintf(`daemon off;
error_log stderr crit;
pid DIR/nginx.pid;
worker_processes 1;
events { worker_connections 8192; }
http {
	access_log off;
	client_body_temp_path DIR/b;
	proxy_temp_path DIR/p;
	fastcgi_temp_path DIR/f;
	uwsgi_temp_path DIR/u;
	scgi_temp_path DIR/s;
	upstream service {
		zone service 64k;
		server %s max_conns=4 max_fails=0;
	}
	server {
		listen 127.0.0.1:%s;
		location / { %s }
	}
}
`, to.addr, port, pass)
}

func haproxyConfig(port string, to upstream) string {
	app, use, proto := "", "", ""
	if to.php != "" { // a connection that is kept would keep its worker
		app = fmt.Sprintf("fcgi-app php\n\tdocroot %s\n\tno option keep-conn\n", to.php)
		use, proto = "\tuse-fcgi-app php\n\thttp-request set-path /index.php\n", " proto fcgi"
	}
	return fmt.Sprintf(`global
	maxconn 8000
defaults
	mode http
	timeout connect 2s
	timeout client 60s
	timeout server 60s
	timeout queue 1s
frontend f
	bind 127.0.0.1:%s
	http-request set-priority-class int(-100) if { path_beg /checkout }
	default_backend b
%sbackend b
%s	server s %s maxconn 4%s
`, port, app, use, to.addr, proto)
}

// freePort returns a port below those that connections get by themselves.
func freePort() (string, error) {
	for port := 18000; port < 30000; port++ {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return strconv.Itoa(port), l.Close()
		}
	}
	return "", errors.New("no free port")
}

// get asks a URL, and returns when it has the answer.
func get(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// listening launches a program, and waits until it listens at a free port that it is told.
func (l *lab) listening(command func(port string) (args, env []string, err error)) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args, env, err := command(port)
	if err != nil {
		return nil, err
	}
	cmd := on(l.cores, -20, args...)
	cmd.Env = append(append(os.Environ(), "PORT="+port), env...)
	p, err := launch(cmd, func(_ *process, out io.Reader) { _, _ = io.Copy(io.Discard, out) })
	if err != nil {
		return nil, err
	}
	p.addr = "127.0.0.1:" + port
	for range 3000 {
		if c, err := net.DialTimeout("tcp", p.addr, time.Second); err == nil {
			return p, c.Close()
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s ended: %v", args[0], cmd.ProcessState)
		case <-time.After(20 * time.Millisecond):
		}
	}
	p.stop()
	return nil, fmt.Errorf("%s does not listen on %s", args[0], p.addr)
}

// serveBehind starts a service; one with a hung worker is returned when that worker has begun to hang.
func (l *lab) serveBehind(g *group, app string) (*process, error) {
	s := g.work.service
	if s.args == nil {
		return l.start(&group{work: idle, kind: g.kind}, way{name: "none"})
	}
	p, err := l.listening(func(port string) (_, _ []string, _ error) { return s.args(app, port), nil, nil })
	if err != nil || !s.hang {
		return p, err
	}
	go func() { _ = get("http://" + p.addr + "/hang") }() // until the service ends
	for range 4 {                                         // the worker has taken it by then
		if err := get("http://" + p.addr + "/"); err != nil {
			p.stop()
			return nil, err
		}
	}
	return p, nil
}

// mount starts a fresh service and a fresh front; or the service alone, if there is no front and it speaks HTTP.
func (l *lab) mount(g *group, w way) (*process, error) {
	app := filepath.Join(l.root, "warden", "wardencaddy", "caddy")
	behind, err := l.serveBehind(g, app)
	if err != nil {
		return nil, err
	}
	if w.front == nil && !g.work.service.fastcgi {
		return behind, nil
	}
	f, to := w.front, upstream{addr: behind.addr}
	if f == nil {
		f = fronts()[0].front
	}
	if g.work.service.fastcgi {
		to.php = app
	}
	p, err := l.listening(func(port string) (args, env []string, err error) {
		dir, err := os.MkdirTemp(l.dir, "front")
		if err != nil {
			return nil, nil, err
		}
		file := filepath.Join(dir, "config")
		return f.args(l, file), []string{"XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "HOME=" + dir},
			os.WriteFile(file, []byte(strings.ReplaceAll(f.config(port, to), "DIR", dir)), 0o600)
	})
	if err != nil {
		behind.stop()
		return nil, err
	}
	p.after = []func(){behind.stop}
	return p, nil
}
