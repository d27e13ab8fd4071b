package system

// The ways of use that depend on a module: a program of somebody else, in a module of its own, compiles what it uses
// and no more.

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
	fmt.Println(errors.Is(err, admission.ErrRejected), gate.InFlight())
}
`,
		prints:   "true 0\n",
		compiles: []string{"admission", "admission/internal/nilcheck"},
	},
	{
		name:    "the full warden stack",
		modules: []string{"warden", "admission"},
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
		prints:   "200 text/plain; charset=utf-8\n503 application/problem+json\n",
		compiles: []string{"admission/admissionhttp/inflight", "warden", "warden/bulkhead", "warden/control", "warden/decision", "warden/internal/nilcheck", "warden/internal/queue", "warden/internal/requestid", "warden/internal/rpcstatus", "warden/internal/slot", "warden/internal/wire", "warden/limiter", "warden/monitor", "warden/retry", "warden/wardenhttp"},
	},
}

// consumer is the path of the module that somebody else makes.
const consumer = "example.com/consumer"

// A cost is what a program of somebody else takes on.
type cost struct {
	compiled []string // packages outside the standard library
	required []string // modules of go.mod
	summed   []string // modules of go.sum
}

// checkCost reports what a program takes on beyond the modules that it named and their packages.
func checkCost(c cost, modules, packages []string) []string {
	var findings []string
	for _, path := range c.compiled {
		if path != consumer && !slices.Contains(packages, strings.TrimPrefix(path, project+"/")) {
			findings = append(findings, "it compiles "+path)
		}
	}
	for _, path := range c.required {
		if !slices.Contains(modules, strings.TrimPrefix(path, project+"/")) {
			findings = append(findings, "its go.mod requires "+path)
		}
	}
	// `go mod tidy` notes the sums of what our own tests import.
	for _, path := range c.summed {
		if !slices.Contains(testOnly, path) {
			findings = append(findings, "its go.sum holds "+path)
		}
	}
	return findings
}

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

			var c cost
			deps := mustGo(t, dir, env, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
			c.compiled = strings.Fields(deps)
			for _, p := range use.compiles {
				if !slices.Contains(c.compiled, project+"/"+p) {
					t.Errorf("it does not compile %s", p)
				}
			}
			for _, r := range decode[module](t, mustGo(t, dir, env, "mod", "edit", "-json"))[0].Require {
				c.required = append(c.required, r.Path)
			}
			sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(sums)) {
				path, _, _ := strings.Cut(line, " ")
				c.summed = append(c.summed, path)
			}
			report(t, checkCost(c, use.modules, use.compiles))
		})
	}
}

func TestWaysOfUseFind(t *testing.T) {
	mustFind(t, checkCost(cost{
		compiled: []string{consumer, project + "/admission", project + "/lease", "pgregory.net/rapid"},
		required: []string{project + "/admission", "pgregory.net/rapid"},
		summed:   []string{"pgregory.net/rapid", "github.com/stretchr/testify"},
	}, []string{"admission"}, []string{"admission"}),
		"it compiles "+project+"/lease",
		"it compiles pgregory.net/rapid",
		"its go.mod requires pgregory.net/rapid",
		"its go.sum holds github.com/stretchr/testify",
	)
}
