// SPDX-License-Identifier: Apache-2.0

// The services and the fronts: processes of their own, each with the configuration that its users would write.

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// service is an upstream with four workers or connections, 40 ms a request, which finishes what its clients have left.
type service struct {
	name, about string
	args        func(l *lab, port string) []string
	hang        bool // one of the workers hangs
	fastcgi     bool // it speaks FastCGI, not HTTP
	loads       []float64
}

var services = []service{
	{name: "gunicorn", about: "gunicorn, 4 synchronous workers, 40 ms a request", args: gunicorn, loads: loads},
	{name: "hung", about: "the same, and one worker hangs", args: gunicorn, hang: true, loads: []float64{2}},
	{name: "node", about: "Node, 4 connections, 40 ms a request", args: func(l *lab, _ string) []string {
		return []string{"node", filepath.Join(l.app(), "app.js")}
	}, loads: []float64{4}},
	{name: "php", about: "php-fpm, 4 workers, 40 ms a request, by FastCGI", args: func(l *lab, _ string) []string {
		return []string{phpFPM(), "--nodaemonize", "--allow-to-run-as-root", "--fpm-config", filepath.Join(l.app(), "php-fpm.conf")}
	}, fastcgi: true, loads: []float64{4}},
}

// app is the folder of the services.
func (l *lab) app() string { return filepath.Join(l.root, "examples", "caddy") }

// phpFPM is the program, which has its version in its name on some systems; "" if there is none.
func phpFPM() string {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin") {
		if found, _ := filepath.Glob(filepath.Join(dir, "php-fpm*")); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}

func gunicorn(l *lab, port string) []string {
	return []string{"gunicorn", "--workers", "4", "--timeout", "300", "--log-level", "error", "--bind", "127.0.0.1:" + port, "--chdir",
		l.app(), "app:application"}
}

// front is what stands before the service.
type front struct {
	name, about string
	config      func(port string, to upstream) string
	args        func(l *lab, file string) []string
}

const ofOurs = "timeout %v\n\t\tpriority critical /checkout*"

func ours(more string) func(port string, to upstream) string {
	return func(port string, to upstream) string {
		transport := "transport stopbank"
		if to.php != "" {
			transport = "" // that of php_fastcgi waits for the worker too
		}
		return caddyfile(port, fmt.Sprintf("stopbank {\n\t\t"+ofOurs+"%s\n\t}\n\t%s", patience, more, to.proxy(transport)))
	}
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

func constant(n int) string { return fmt.Sprintf("\n\t\tmin %d\n\t\tmax %d\n\t\tinitial %d", n, n, n) }

// caddyfile is one without what would write files or logs, and with an admin endpoint beside the site.
func caddyfile(port, site string) string {
	n, _ := strconv.Atoi(port)
	return fmt.Sprintf("{\n\tadmin 127.0.0.1:%d\n\tpersist_config off\n\tauto_https off\n\tlog {\n\t\toutput discard\n\t}\n}\n"+
		"http://127.0.0.1:%s {\n\thandle /metrics {\n\t\tmetrics\n\t}\n\t%s\n}\n", adminPort(n), port, site)
}

// adminPort is that of a site's Caddy.
func adminPort(site int) int {
	if site < 32768 {
		return site + 20000
	}
	return site - 20000
}

func runCaddy(l *lab, file string) []string {
	return []string{l.caddy, "run", "--adapter", "caddyfile", "--config", file}
}

var fronts = []front{
	{"bare", "Caddy's reverse_proxy, or php_fastcgi", func(port string, to upstream) string {
		return caddyfile(port, to.proxy(""))
	}, runCaddy},
	{"max_requests", "the same with a maximum of 4 requests at a time (unhealthy_request_count)", func(port string, to upstream) string {
		return caddyfile(port, to.proxy("unhealthy_request_count 4"))
	}, runCaddy},
	{"nginx", "nginx with max_conns=4", func(port string, to upstream) string {
		pass := "proxy_pass http://service;"
		if to.php != "" {
			pass = fmt.Sprintf("fastcgi_param SCRIPT_FILENAME %s/index.php; fastcgi_param REQUEST_METHOD $request_method; "+
				"fastcgi_param REQUEST_URI $request_uri; fastcgi_pass service;", to.php)
		}
		return fmt.Sprintf("daemon off;\nerror_log stderr crit;\npid DIR/nginx.pid;\nworker_processes 1;\nevents { worker_connections 8192; }\n"+
			"http {\n\taccess_log off;\n\tclient_body_temp_path DIR/b;\n\tproxy_temp_path DIR/p;\n\tfastcgi_temp_path DIR/f;\n"+
			"\tuwsgi_temp_path DIR/u;\n\tscgi_temp_path DIR/s;\n\tupstream service {\n\t\tzone service 64k;\n"+
			"\t\tserver %s max_conns=4 max_fails=0;\n\t}\n\tserver {\n\t\tlisten 127.0.0.1:%s;\n\t\tlocation / { %s }\n\t}\n}\n",
			to.addr, port, pass)
	}, func(_ *lab, file string) []string { return []string{"nginx", "-p", filepath.Dir(file), "-c", file} }},
	{"haproxy", "HAProxy with maxconn 4, its queue for as long as clients wait, and a priority class for critical requests",
		func(port string, to upstream) string {
			app, use, proto := "", "", ""
			if to.php != "" { // a connection that is kept would keep its worker
				app = fmt.Sprintf("fcgi-app php\n\tdocroot %s\n\tno option keep-conn\n", to.php)
				use, proto = "\tuse-fcgi-app php\n\thttp-request set-path /index.php\n", " proto fcgi"
			}
			return fmt.Sprintf("global\n\tmaxconn 8000\ndefaults\n\tmode http\n\ttimeout connect 2s\n\ttimeout client 60s\n\ttimeout server 60s\n"+
				"\ttimeout queue %dms\nfrontend f\n\tbind 127.0.0.1:%s\n\thttp-request set-priority-class int(-100) if { path_beg /checkout }\n"+
				"\tdefault_backend b\n%sbackend b\n%s\tserver s %s maxconn 4%s\n", patience.Milliseconds(), port, app, use, to.addr, proto)
		}, func(_ *lab, file string) []string { return []string{"haproxy", "-db", "-f", file} }},
	{"constant 4", "ours, fixed at 4 requests at a time", ours(constant(4)), runCaddy},
	{"constant 6", "ours, fixed at 6", ours(constant(6)), runCaddy},
	{"ours", "ours, which is told nothing about the service", ours(""), runCaddy},
}

func frontNamed(name string) front {
	for _, f := range fronts {
		if f.name == name {
			return f
		}
	}
	return front{}
}

// process is a running service or front.
type process struct {
	cmd   *exec.Cmd
	addr  string
	ended chan struct{}
	hung  context.CancelFunc
}

// launch starts a process and waits until it listens.
func launch(ctx context.Context, addr string, env []string, args []string) (*process, error) {
	p := &process{cmd: exec.Command(args[0], args[1:]...), addr: addr, ended: make(chan struct{})} //nolint:gosec,noctx // of the tables above; stop ends it
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), env...), os.Stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	dialer := net.Dialer{Timeout: time.Second}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			return p, c.Close()
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s ended: %v", args[0], p.cmd.ProcessState)
		case <-ctx.Done():
			p.stop()
			return nil, ctx.Err()
		default:
		}
		if time.Now().After(end) {
			p.stop()
			return nil, fmt.Errorf("%s does not listen on %s", args[0], addr)
		}
	}
}

// stop ends the process.
func (p *process) stop() {
	if p.hung != nil {
		p.hung()
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(3 * time.Second):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // gunicorn kills its workers then, and the others end
		select {
		case <-p.ended:
		case <-time.After(3 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
}

// freePort returns a port below those that connections get by themselves.
func freePort() (string, error) {
	for port := 18000; port < 30000; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // it does not block
		if err != nil {
			continue
		}
		other, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", adminPort(port))) //nolint:noctx // it does not block
		_ = l.Close()
		if err == nil {
			return strconv.Itoa(port), other.Close()
		}
	}
	return "", errors.New("no free port")
}

// start starts a service; one with a hung worker answers when that worker has begun to hang.
func (l *lab) start(ctx context.Context, s service) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p, err := launch(ctx, "127.0.0.1:"+port, []string{"PORT=" + port}, s.args(l, port))
	if err != nil || !s.hang {
		return p, err
	}
	hang, cancel := context.WithCancel(ctx)
	p.hung = cancel
	go func() {
		if resp, err := get(hang, "http://"+p.addr+"/hang"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	for range 4 { // the worker has taken it by then
		resp, err := get(ctx, "http://"+p.addr+"/")
		if err != nil {
			p.stop()
			return nil, err
		}
		_ = resp.Body.Close()
	}
	return p, nil
}

func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// mount starts a front.
func (l *lab) mount(ctx context.Context, f front, to upstream) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(l.dir, "front")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "config")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(f.config(port, to), "DIR", dir)), 0o600); err != nil {
		return nil, err
	}
	return launch(ctx, "127.0.0.1:"+port, []string{"XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "HOME=" + dir}, f.args(l, file))
}

// reload gives Caddy its configuration again, with a header more.
func (p *process) reload(ctx context.Context) error {
	file := p.cmd.Args[len(p.cmd.Args)-1]
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text = bytes.Replace(text, []byte("\treverse_proxy"), []byte("\theader Reloaded yes\n\treverse_proxy"), 1)
	_, port, _ := net.SplitHostPort(p.addr)
	n, _ := strconv.Atoi(port)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/load", adminPort(n)), bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "text/caddyfile")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the reload: %d %s", resp.StatusCode, body)
	}
	return nil
}

// limit is that of the front's warden; 0 if it has none.
func (p *process) limit(ctx context.Context) float64 {
	resp, err := get(ctx, "http://"+p.addr+"/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	_, after, _ := strings.Cut(string(text), `stopbank_limiter_target{limiter="caddy"} `)
	value, _, _ := strings.Cut(after, "\n")
	limit, _ := strconv.ParseFloat(value, 64)
	return limit
}

// floodRun is what is used of a run of flood's JSON: warden/flood/schema.json.
type floodRun struct {
	Offered  float64 `json:"offered"`
	Goodput  float64 `json:"goodput"`
	Hung     float64 `json:"hung"`
	Broken   float64 `json:"broken"`
	P50      float64 `json:"served_p50_ms"`
	P99      float64 `json:"served_p99_ms"`
	FirstNo  float64 `json:"first_no_ms"`
	NoP50    float64 `json:"no_p50_ms"`
	NoP99    float64 `json:"no_p99_ms"`
	Recovery float64 `json:"recovery_ms"`
	Doubt    string  `json:"doubt"`
	Timeline []struct {
		At             int    `json:"at"`
		Phase          string `json:"phase"`
		CriticalDue    int    `json:"critical_due"`
		CriticalServed int    `json:"critical_served"`
	} `json:"timeline"`
}

// send floods an address.
func (l *lab) send(ctx context.Context, addr string, load, capacity float64, seed uint64) (floodRun, error) {
	out, err := l.runFlood(ctx, "-capacity", fmt.Sprint(capacity), "-load", fmt.Sprint(load), "-before", "0s", "-for", l.length.String(),
		"-after", "8s", "-seed", fmt.Sprint(seed), "-route", "path=/checkout,share=0.2,priority=critical,patience="+patience.String(),
		"-route", "path=/search,patience="+patience.String(), "http://"+addr+"/")
	if err != nil || len(out.Runs) != 1 {
		return floodRun{}, fmt.Errorf("flood: %d runs, %w", len(out.Runs), err)
	}
	return out.Runs[0], nil
}

// flooded is flood's JSON.
type floodReport struct {
	Capacity float64    `json:"capacity"`
	Runs     []floodRun `json:"runs"`
}

func (l *lab) runFlood(ctx context.Context, args ...string) (r floodReport, err error) {
	cmd := exec.CommandContext(ctx, l.flood, append([]string{"-json", "-"}, args...)...) //nolint:gosec // of this program
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("%w: %s", err, progress.String())
	}
	err = json.Unmarshal(out.Bytes(), &r)
	return r, err
}

// to is a running service as a front sees it.
func (l *lab) to(s service, p *process) upstream {
	if s.fastcgi {
		return upstream{p.addr, l.app()}
	}
	return upstream{addr: p.addr}
}

// capacity is what the service can do: alone, or behind a bare Caddy if it does not speak HTTP.
func (l *lab) capacity(ctx context.Context, s service) (float64, error) {
	p, err := l.start(ctx, s)
	if err != nil {
		return 0, err
	}
	defer p.stop()
	if s.fastcgi {
		if p, err = l.mount(ctx, frontNamed("bare"), l.to(s, p)); err != nil {
			return 0, err
		}
		defer p.stop()
	}
	r, err := l.runFlood(ctx, "-load", "0.1", "-before", "0s", "-for", "1s", "-after", "0s", "http://"+p.addr+"/")
	fmt.Printf("%s: %.0f/s\n", s.name, r.Capacity)
	return r.Capacity, err
}

// loadAverage is that of the machine over the last minute; 0 if unknown.
func loadAverage() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// versions are those of all programs.
func (l *lab) versions(ctx context.Context) (all []string) {
	for _, args := range [][]string{{l.caddy, "version"}, {"nginx", "-v"}, {"haproxy", "-v"}, {"gunicorn", "--version"}, {"node", "--version"},
		{cmp.Or(phpFPM(), "php-fpm"), "-v"}} {
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput() //nolint:gosec // of the line above
		line, _, _ := strings.Cut(string(out), "\n")
		name := strings.TrimSuffix(filepath.Base(args[0]), ".bin")
		if fields := strings.Fields(line); err == nil && len(fields) > 0 {
			for _, f := range fields {
				if strings.ContainsAny(f, "0123456789") {
					all = append(all, name+" "+strings.Trim(strings.TrimPrefix(f, "nginx/"), "()"))
					break
				}
			}
		} else {
			all = append(all, name+" "+cmp.Or(line, "not there"))
		}
	}
	return all
}
