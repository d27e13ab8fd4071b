package system

// The way of use that depends on nothing: a layer copied into another tree compiles and passes its own tests there,
// with nothing changed but import paths.

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A part is what somebody copies: some directories of one module, each with all below it.
type part struct {
	module string
	dirs   []string
}

// parts are the layers that are made to be copied. Those of a module that go.work does not use yet have no test yet.
var parts = []part{
	{"admission", []string{"admission"}},
	{"lease", []string{"lease"}},
	{"warden", []string{"warden/limiter", "warden/decision", "warden/internal/nilcheck", "warden/internal/queue"}},
}

// copyOf makes a module of somebody else that holds the part of the repository at from, and returns its directory.
func copyOf(t *testing.T, from string, p part) string {
	t.Helper()
	to := t.TempDir()
	moved := strings.NewReplacer(
		"module "+project+"/"+p.module+"\n", "module "+consumer+"\n",
		`"`+project+`/`, `"`+consumer+`/third_party/stopbank/`)
	for _, file := range []string{"go.mod", "go.sum"} { // the modules that the tests need; a sibling stays behind
		var text strings.Builder
		for line := range strings.Lines(moved.Replace(read(t, from, p.module, file))) {
			if !strings.Contains(line, project+"/") {
				text.WriteString(line)
			}
		}
		write(t, filepath.Join(to, file), text.String())
	}
	for _, dir := range p.dirs {
		err := filepath.WalkDir(filepath.Join(from, filepath.FromSlash(dir)), func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			if d.IsDir() {
				if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && rel != filepath.FromSlash(p.module) {
					return filepath.SkipDir // a module inside is another part
				}
				if filepath.Base(path) == "rapid" {
					return filepath.SkipDir // what a failing property test has just left there
				}
				return nil
			}
			if base := filepath.Base(path); base == "go.mod" || base == "go.sum" {
				return nil
			}
			content := read(t, path)
			if filepath.Ext(path) == ".go" {
				content = moved.Replace(content)
			}
			write(t, filepath.Join(to, "third_party", "stopbank", rel), content)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// alienEnv is the environment in somebody else's module: all that it needs is in its go.mod.
var alienEnv = []string{"GOWORK=off", "GOFLAGS=-mod=readonly"}

func TestCopiedLayers(t *testing.T) {
	modules := workModules(t)
	for _, p := range parts {
		if !slices.Contains(modules, p.module) {
			continue
		}
		t.Run(strings.Join(p.dirs, "+"), func(t *testing.T) {
			t.Parallel()
			dir := copyOf(t, root(t), p)
			mustGo(t, dir, alienEnv, "vet", "./...")
			mustGo(t, dir, alienEnv, "test", "-short", "./...")
		})
	}
}

// TestCopiedLayersFind copies parts of a made-up repository: one is whole without the sibling that its module requires, one
// lacks what it imports, one fails its test.
func TestCopiedLayersFind(t *testing.T) {
	from := t.TempDir()
	for file, text := range map[string]string{
		"a/go.mod":      "module " + project + "/a\n\ngo " + oldest + "\n\nrequire " + project + "/e v0.0.0\n\nreplace " + project + "/e => ../e\n",
		"a/go.sum":      "",
		"a/a.go":        "package a\n",
		"a/b/b.go":      "package b\n\nimport _ \"" + project + "/a\"\n",
		"a/c/go.mod":    "module " + project + "/a/c\n\ngo " + oldest + "\n",
		"a/c/c.go":      "package c is another module\n",
		"a/d/d_test.go": "package d\n\nimport \"testing\"\n\nfunc TestD(t *testing.T) { t.Error(\"wrong\") }\n",
	} {
		write(t, filepath.Join(from, filepath.FromSlash(file)), text)
	}
	whole := copyOf(t, from, part{"a", []string{"a"}})
	mustGo(t, whole, alienEnv, "vet", "./...")
	if _, err := gocmd(t, whole, alienEnv, "test", "-short", "./..."); err == nil || !strings.Contains(err.Error(), "wrong") {
		t.Errorf("a copy whose test fails: %v", err)
	}
	torn := copyOf(t, from, part{"a", []string{"a/b"}})
	if _, err := gocmd(t, torn, alienEnv, "vet", "./..."); err == nil || !strings.Contains(err.Error(), consumer+"/third_party/stopbank/a") {
		t.Errorf("a copy that lacks what it imports: %v", err)
	}
}
