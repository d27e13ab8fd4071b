package system

// Every module stands alone: it asks for Go 1.25.0, or for more if it is nobody's but this repository's, and for siblings beside it, and its neighbours raise no versions.

import (
	"fmt"
	"go/version"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// oldest is the `go` directive of every module but those outside: the older of the two Go releases that are supported.
const oldest = "1.25.0"

// outside are the modules that go.work must not use, since what linters and peers depend on is no concern of a user of the others. Nor is the Go release that
// a peer needs.
var outside = []string{"examples/frameworks", "internal/bench", "internal/tools"}

// alone are the modules that need the standard library alone, with the siblings that they may require: warden follows HTTP
// requests with a package of admission. All else that their go.mod may ask for is testOnly.
var alone = map[string][]string{"admission": nil, "lease": nil, "warden": {project + "/admission"}}

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

// checkModules reports what is wrong with the go.mod files of the repository, of which go.work uses some.
func checkModules(modules []module, used []string) []string {
	var findings []string
	found := func(m module, format string, args ...any) {
		findings = append(findings, m.Dir+"/go.mod: "+fmt.Sprintf(format, args...))
	}
	for _, m := range modules {
		if m.Module.Path != project+"/"+m.Dir {
			found(m, "is called %s", m.Module.Path)
		}
		if newer := slices.Contains(outside, m.Dir) && version.Compare("go"+m.Go, "go"+oldest) > 0; m.Go != oldest && !newer {
			found(m, "go %s, want %s", m.Go, oldest)
		}
		if m.Toolchain != "" {
			found(m, "asks for a toolchain")
		}
		if slices.Contains(outside, m.Dir) == slices.Contains(used, m.Dir) {
			found(m, "go.work must use every module but %s", outside)
		}
		// A sibling that is not published is found only beside the module that needs it.
		beside := map[string]bool{}
		for _, r := range m.Replace {
			sibling, ok := strings.CutPrefix(r.Old.Path, project+"/")
			if !ok || !strings.HasPrefix(r.New.Path, "../") || path.Join(m.Dir, r.New.Path) != sibling {
				found(m, "replaces %s by %s, which is not a sibling in its place", r.Old.Path, r.New.Path)
			}
			beside[r.Old.Path] = true
		}
		for _, r := range m.Require {
			if strings.HasPrefix(r.Path, project+"/") && !beside[r.Path] {
				found(m, "requires %s without replacing it by ../", r.Path)
			}
			if siblings, ok := alone[m.Dir]; ok && !slices.Contains(siblings, r.Path) && !slices.Contains(testOnly, r.Path) {
				found(m, "requires %s, which even its tests may not use", r.Path)
			}
		}
	}
	return findings
}

// A dependency is a module of the build list as `go list -m -json` prints it.
type dependency struct{ Path, GoVersion string }

// checkDependencies reports the modules that would force a newer Go release on the workspace.
func checkDependencies(list []dependency) []string {
	var findings []string
	for _, d := range list {
		if version.Compare("go"+d.GoVersion, "go"+oldest) > 0 {
			findings = append(findings, fmt.Sprintf("%s needs go %s", d.Path, d.GoVersion))
		}
	}
	return findings
}

func TestModules(t *testing.T) {
	var modules []module
	walk(t, root(t), func(file string) {
		if path.Base(file) == "go.mod" {
			m := decode[module](t, mustGo(t, root(t), nil, "mod", "edit", "-json", filepath.FromSlash(file)))[0]
			m.Dir = path.Dir(file)
			modules = append(modules, m)
		}
	})
	used := workModules(t)
	if len(modules) < len(used) {
		t.Errorf("%d modules found, of which go.work uses %d", len(modules), len(used))
	}
	report(t, checkModules(modules, used))

	if work := decode[struct{ Go string }](t, mustGo(t, root(t), []string{inWorkspace(t)}, "work", "edit", "-json"))[0]; work.Go != oldest {
		t.Errorf("go.work: go %s, want %s", work.Go, oldest)
	}
	list := decode[dependency](t, mustGo(t, root(t), []string{inWorkspace(t)}, "list", "-m", "-json=Path,GoVersion", "all"))
	report(t, checkDependencies(list))
}

func TestModulesFind(t *testing.T) {
	read := func(dir, rest string) module {
		text := filepath.Join(t.TempDir(), "go.mod")
		write(t, text, "module "+project+"/"+dir+"\n"+rest)
		m := decode[module](t, mustGo(t, filepath.Dir(text), nil, "mod", "edit", "-json", text))[0]
		m.Dir = dir
		return m
	}
	used := []string{"admission", "lease", "lease/durable", "warden", "examples"}
	sibling := "require " + project + "/admission v0.0.0\n"
	for _, c := range []struct {
		dir, mod string
		want     []string
	}{
		{"admission", "go 1.25.0\nrequire pgregory.net/rapid v1.3.0", nil},
		{"examples", "go 1.25.0\n" + sibling + "replace " + project + "/admission => ../admission", nil},
		{"warden", "go 1.25.0\n" + sibling + "replace " + project + "/admission => ../admission", nil},
		{"internal/tools", "go 1.25.0\nrequire github.com/golangci/golangci-lint/v2 v2.12.2", nil},
		{"internal/tools", "go 1.26.0", nil},
		{"internal/tools", "go 1.24.0", []string{"go 1.24.0, want 1.25.0"}},
		{"lease/leasepg", "go 1.25.0", []string{"go.work must use every module"}},
		{"admission", "go 1.26.0", []string{"go 1.26.0, want 1.25.0"}},
		{"admission", "go 1.25", []string{"go 1.25, want 1.25.0"}},
		{"admission", "go 1.25.0\ntoolchain go1.26.1", []string{"asks for a toolchain"}},
		{"examples", "go 1.25.0\n" + sibling, []string{"without replacing it"}},
		{"examples", "go 1.25.0\n" + sibling + "replace " + project + "/admission => ../lease", []string{"not a sibling in its place"}},
		{"examples", "go 1.25.0\n" + sibling + "replace " + project + "/admission => /src/admission", []string{"not a sibling in its place"}},
		{"examples", "go 1.25.0\nreplace github.com/google/go-cmp => ../admission", []string{"not a sibling in its place"}},
		{"lease", "go 1.25.0\nrequire github.com/anishathalye/porcupine v1.3.1", []string{"requires github.com/anishathalye/porcupine"}},
		{"lease", "go 1.25.0\n" + sibling + "replace " + project + "/admission => ../admission", []string{"requires " + project + "/admission, which even its tests"}},
		{"warden", "go 1.25.0\nrequire " + project + "/lease v0.0.0\nreplace " + project + "/lease => ../lease", []string{"requires " + project + "/lease, which even its tests"}},
	} {
		mustFind(t, checkModules([]module{read(c.dir, c.mod)}, used), c.want...)
	}
	mustFind(t, checkModules([]module{read("internal/bench", "go 1.25.0")}, append(used, "internal/bench")), "go.work must use every module but")
	renamed := read("admission", "go 1.25.0")
	renamed.Dir = "lease"
	mustFind(t, checkModules([]module{renamed}, used), "is called "+project+"/admission")

	mustFind(t, checkDependencies([]dependency{{"a", ""}, {"b", "1.25"}, {"c", "1.25.0"}, {"d", "1.25.1"}, {"e", "1.26"}, {"f", "1.9"}}),
		"d needs go 1.25.1", "e needs go 1.26")
}
