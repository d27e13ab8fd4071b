// SPDX-License-Identifier: Apache-2.0

package system

// The ways of use: a program of somebody else compiles the modules that it requires and nothing more, and a layer that is copied
// into another tree passes its own tests there, with nothing changed but import paths.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// consumers is the table of such programs. Each requires the modules that it names, from this checkout since nothing is
// published.
var consumers = []struct {
	name     string
	modules  []string
	program  string
	prints   string
	compiles []string // the packages of this project that it compiles; it compiles none of anybody else
}{
	{
		name:    "only admission",
		modules: []string{"admission"},
		program: `package main

import (
	"errors"
	"fmt"

	"github.com/stopbank/stopbank/admission"
)

func main() {
	gate, err := admission.New(admission.Config{Name: "reports", Limit: 1})
	if err != nil {
		panic(err)
	}
	err = gate.Do(func() error {
		return gate.Do(func() error { return nil })
	})
	fmt.Println(errors.Is(err, admission.ErrRejected), gate.Stats().InFlight)
}
`,
		prints:   "true 0\n",
		compiles: []string{"admission"},
	},
	{
		name:    "the full warden stack",
		modules: []string{"warden"},
		program: `package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "served") })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	client := func() {
		resp, err := http.Get("http://" + l.Addr().String())
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("Content-Type"))
	}

	w, err := warden.New(warden.Config{})
	if err != nil {
		panic(err)
	}
	go w.Run(context.Background())
	mw, err := wardenhttp.New(w, wardenhttp.Config{})
	if err != nil {
		panic(err)
	}
	go http.Serve(l, mw.Handler(mux))

	client()
	w.Limiter().Close()
	client()
}
`,
		prints: "200 text/plain; charset=utf-8\n503 application/problem+json\n",
		compiles: []string{"warden", "warden/bulkhead", "warden/control", "warden/decision", "warden/internal/histogram",
			"warden/internal/inflight", "warden/internal/nilcheck", "warden/internal/queue", "warden/internal/requestid",
			"warden/internal/rpcstatus", "warden/internal/slot", "warden/internal/timelimit", "warden/internal/unit", "warden/internal/wire", "warden/limiter",
			"warden/monitor", "warden/retry", "warden/wardenhttp"},
	},
}

// consumer is the path of the module that somebody else makes.
const consumer = "example.com/consumer"

func TestWaysOfUse(t *testing.T) {
	for _, use := range consumers {
		t.Run(use.name, func(t *testing.T) {
			t.Parallel()
			dir, env := t.TempDir(), []string{"GOWORK=off", "GOFLAGS=-mod=mod"}
			mod := []string{"module " + consumer, "go " + oldest}
			for _, m := range use.modules {
				name, at := project+"/"+m, filepath.Join(root(t), filepath.FromSlash(m))
				mod = append(mod, "require "+name+" v0.0.0", "replace "+name+" => "+strconv.Quote(at))
			}
			write(t, filepath.Join(dir, "go.mod"), strings.Join(mod, "\n")+"\n")
			write(t, filepath.Join(dir, "main.go"), use.program)

			mustGo(t, dir, env, "mod", "tidy")
			if got := mustGo(t, dir, env, "run", "."); got != use.prints {
				t.Errorf("it prints %q, want %q", got, use.prints)
			}

			compiled := strings.Fields(mustGo(t, dir, env, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "."))
			want := []string{consumer}
			for _, p := range use.compiles {
				want = append(want, project+"/"+p)
			}
			slices.Sort(compiled)
			slices.Sort(want)
			if !slices.Equal(compiled, want) {
				t.Errorf("it compiles\n%q, want\n%q", compiled, want)
			}
			for _, r := range decode[module](t, mustGo(t, dir, env, "mod", "edit", "-json"))[0].Require {
				if !slices.Contains(use.modules, strings.TrimPrefix(r.Path, project+"/")) {
					t.Errorf("its go.mod requires %s", r.Path)
				}
			}
			sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(sums)) { // `go mod tidy` notes the sums of what our own tests import
				if path, _, _ := strings.Cut(line, " "); !slices.Contains(testOnly, path) {
					t.Errorf("its go.sum holds %s", path)
				}
			}
		})
	}
}

// copied are the layers that are made to be copied: some directories of one module, each with all below it.
var copied = []struct {
	module string
	dirs   []string
}{
	{"admission", []string{"admission"}},
	{"lease", []string{"lease"}},
	{"warden", []string{"warden/limiter", "warden/decision", "warden/internal/nilcheck", "warden/internal/queue"}},
}

func TestCopiedLayers(t *testing.T) {
	modules := workModules(t)
	for _, p := range copied {
		t.Run(p.module, func(t *testing.T) {
			t.Parallel()
			// All that it needs is in its go.mod. Without the directory's name in it, what was compiled before is not compiled again.
			to, env := t.TempDir(), []string{"GOWORK=off", "GOFLAGS=-mod=readonly -trimpath"}
			moved := strings.NewReplacer(
				"module "+project+"/"+p.module+"\n", "module "+consumer+"\n",
				`"`+project+`/`, `"`+consumer+`/third_party/stopbank/`)
			for _, file := range []string{"go.mod", "go.sum"} { // the modules that the tests need; a sibling stays behind
				lines := strings.SplitAfter(moved.Replace(read(t, p.module+"/"+file)), "\n")
				lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, project+"/") })
				write(t, filepath.Join(to, file), strings.Join(lines, ""))
			}
			walk(t, func(file string) {
				within := func(dir string) bool { return strings.HasPrefix(file, dir+"/") }
				inner := func(m string) bool { return m != p.module && strings.HasPrefix(m, p.module+"/") && within(m) }
				base := filepath.Base(file)
				if !slices.ContainsFunc(p.dirs, within) || slices.ContainsFunc(modules, inner) || base == "go.mod" || base == "go.sum" {
					return // a module inside is another part
				}
				write(t, filepath.Join(to, "third_party", "stopbank", file), moved.Replace(read(t, file)))
			})
			mustGo(t, to, env, "vet", "./...")
			mustGo(t, to, env, "test", "-short", "./...")
		})
	}
}
