// SPDX-License-Identifier: Apache-2.0

package system

// Every module stands alone, and the tools of all checks: the root, the modules, the go command, the files.

import (
	"encoding/json"
	"errors"
	"go/version"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	// project is the path that every module of this repository begins with.
	project = "github.com/stopbank/stopbank"
	// oldest is the `go` directive of every module but those outside: the older of the two Go releases that are supported.
	oldest = "1.25.0"
)

// outside are the modules that go.work must not use: what peers depend on is no concern of a user of the others, nor
// is the Go release that a peer needs.
var outside = []string{"internal/bench", "warden/wardencaddy"}

// alone are the modules that need the standard library alone, and no sibling. Their go.mod may ask for testOnly.
var alone = []string{"admission", "lease", "warden"}

// A module is a go.mod as `go mod edit -json` prints it.
type module struct {
	Dir       string // relative to the root
	Module    struct{ Path string }
	Go        string
	Toolchain string
	Require   []struct{ Path, Version string }
	Replace   []struct {
		Old, New struct{ Path, Version string }
	}
}

// releases are the next version and the last one, if there is one: the first sections of CHANGELOG.md.
func releases(t *testing.T) (versions []string) {
	t.Helper()
	for _, section := range regexp.MustCompile(`(?m)^## (v\S+)`).FindAllStringSubmatch(read(t, "CHANGELOG.md"), 2) {
		versions = append(versions, section[1])
	}
	return versions
}

// checkModule reports what is wrong with a go.mod of the repository, of which go.work uses some. A published one requires its
// siblings at one of these versions.
func checkModule(t *testing.T, m module, used, versions []string) {
	t.Helper()
	found := func(format string, args ...any) { t.Errorf("%s/go.mod: "+format, append([]any{m.Dir}, args...)...) }
	if m.Module.Path != project+"/"+m.Dir {
		found("is called %s", m.Module.Path)
	}
	if newer := slices.Contains(outside, m.Dir) && version.Compare("go"+m.Go, "go"+oldest) > 0; m.Go != oldest && !newer {
		found("go %s, want %s", m.Go, oldest)
	}
	if m.Toolchain != "" {
		found("asks for a toolchain")
	}
	if slices.Contains(outside, m.Dir) == slices.Contains(used, m.Dir) {
		found("go.work must use every module but %s", outside)
	}
	// A published go.mod is what its users get, to whom a replacement means nothing. Others find their siblings beside them, and so
	// does go.work, by the replacements of examples.
	published := slices.Contains(used, m.Dir) && m.Dir != "examples" && m.Dir != "internal"
	if published && len(m.Replace) > 0 {
		found("replaces %s, but is published", m.Replace[0].Old.Path)
	}
	beside := map[string]bool{}
	for _, r := range m.Replace {
		sibling, ok := strings.CutPrefix(r.Old.Path, project+"/")
		if !ok || !strings.HasPrefix(r.New.Path, "../") || path.Join(m.Dir, r.New.Path) != sibling {
			found("replaces %s by %s, which is not a sibling in its place", r.Old.Path, r.New.Path)
		}
		beside[r.Old.Path] = true
	}
	for _, r := range m.Require {
		switch sibling := strings.HasPrefix(r.Path, project+"/"); {
		case sibling && !published && !beside[r.Path]:
			found("requires %s without replacing it by ../", r.Path)
		case sibling && published && !slices.Contains(versions, r.Version):
			found("requires %s %s; releases: %s", r.Path, r.Version, versions)
		}
		if slices.Contains(alone, m.Dir) && !slices.Contains(testOnly, r.Path) {
			found("requires %s, which even its tests may not use", r.Path)
		}
	}
}

func TestModules(t *testing.T) {
	used, versions, seen := workModules(t), releases(t), 0
	walk(t, func(file string) {
		if path.Base(file) == "go.mod" {
			seen++
			m := decode[module](t, mustGo(t, root(t), nil, "mod", "edit", "-json", file))[0]
			m.Dir = path.Dir(file)
			checkModule(t, m, used, versions)
		}
	})
	if seen < len(used) {
		t.Errorf("%d modules found, of which go.work uses %d", seen, len(used))
	}
	if work := decode[struct{ Go string }](t, mustGo(t, root(t), []string{inWorkspace(t)}, "work", "edit", "-json"))[0]; work.Go != oldest {
		t.Errorf("go.work: go %s, want %s", work.Go, oldest)
	}
	type dependency struct{ Path, GoVersion string }
	for _, d := range decode[dependency](t, mustGo(t, root(t), []string{inWorkspace(t)}, "list", "-m", "-json=Path,GoVersion",
		"all")) {
		if version.Compare("go"+d.GoVersion, "go"+oldest) > 0 {
			t.Errorf("%s would force go %s on the workspace", d.Path, d.GoVersion)
		}
	}
}

// TestLicense: a file that somebody copies says what it is under; the examples are there to be taken without a word.
func TestLicense(t *testing.T) {
	walk(t, func(file string) {
		if path.Ext(file) == ".go" && !strings.HasPrefix(file, "examples/") &&
			!strings.HasPrefix(read(t, file), "// SPDX-License-Identifier: Apache-2.0\n\n") {
			t.Errorf("%s does not begin with an SPDX line", file)
		}
	})
	for _, file := range []string{"LICENSE", "NOTICE"} {
		if !strings.Contains(read(t, file), "Copyright 2026 The Stopbank authors") {
			t.Errorf("%s does not name its holder", file)
		}
	}
}

// root is the directory of go.work.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// inWorkspace makes the go command use the workspace although the tests may themselves run with GOWORK=off.
func inWorkspace(t *testing.T) string {
	t.Helper()
	return "GOWORK=" + filepath.Join(root(t), "go.work")
}

// mustGo runs the go command in dir with env added to the environment and returns its standard output.
func mustGo(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "PWD="+dir), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// decode reads a stream of JSON values, as `go list -json` prints them.
func decode[T any](t *testing.T, stream string) (all []T) {
	t.Helper()
	for dec := json.NewDecoder(strings.NewReader(stream)); ; {
		var one T
		if err := dec.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
}

// workModules are the directories that go.work uses, relative to the root: "admission", "lease/leasepg".
func workModules(t *testing.T) (dirs []string) {
	t.Helper()
	work := decode[struct{ Use []struct{ DiskPath string } }](t,
		mustGo(t, root(t), []string{inWorkspace(t)}, "work", "edit", "-json"))
	for _, use := range work[0].Use {
		dirs = append(dirs, filepath.ToSlash(filepath.Clean(use.DiskPath)))
	}
	return dirs
}

// walk calls visit with the slash-separated path, relative to the root, of every file that is source: not of git, of a build or
// of a test's data.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root(t), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "bin", "testdata"}, d.Name()) {
			return filepath.SkipDir
		}
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(root(t), path) // it is below
			visit(filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// read returns the content of a file of the repository.
func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// write makes a file and the directories above it.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}
