// SPDX-License-Identifier: Apache-2.0

package system

// A layer that is copied into another tree passes its own tests there, with nothing changed but import paths.

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// copied are the layers that are made to be copied: some directories of one module, each with all below it.
var copied = []struct {
	module string
	dirs   []string
}{
	{"admission", []string{"admission"}},
	{"lease", []string{"lease"}},
	{"warden", []string{"warden/limiter", "warden/decision", "warden/internal/fair", "warden/internal/nilcheck", "warden/internal/queue"}},
}

func TestCopiedLayers(t *testing.T) {
	const consumer = "example.com/consumer"
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
			mustGo(t, to, env, "test", "-short", "./...")
		})
	}
}
