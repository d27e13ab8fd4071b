// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What OSS-Fuzz would build are all fuzz targets, each under a name of its own.
func TestOSSFuzz(t *testing.T) {
	const root = "../.."
	dir := t.TempDir()
	program := []byte("#!/bin/sh\necho \"$1 $2 $3\"\n")
	if err := os.WriteFile(filepath.Join(dir, "compile_native_go_fuzzer_v2"), program, 0o700); err != nil { //nolint:gosec // it has to run
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "bash", "-eu", "internal/oss-fuzz/build.sh")
	build.Dir = root
	build.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := build.Output()
	if err != nil {
		t.Fatal(err)
	}
	var built []string
	names := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		built = append(built, fields[0]+" "+fields[1])
		names[fields[2]] = true
	}
	want := fuzzTargets(t, root)
	slices.Sort(want)
	slices.Sort(built)
	if diff := cmp.Diff(want, built); diff != "" || len(want) == 0 || len(names) != len(want) {
		t.Errorf("%d targets, %d names (-want +got)\n%s", len(want), len(names), diff)
	}
}

// fuzzTargets returns the functions that take a *testing.F, each behind its package.
func fuzzTargets(t *testing.T, root string) (all []string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles", "work")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for packages := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Dir           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") {
					all = append(all, p.ImportPath+" "+f.Name.Name)
				}
			}
		}
	}
}
