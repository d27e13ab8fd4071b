package system

// How the checks reach the workspace: its root, its modules, the go command.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// project is the path that every module of this repository begins with.
const project = "github.com/stopbank/stopbank"

// root is the directory of go.work.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.work")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// inWorkspace makes the go command use the workspace although the tests may themselves run with GOWORK=off.
func inWorkspace(t *testing.T) string {
	t.Helper()
	return "GOWORK=" + filepath.Join(root(t), "go.work")
}

// gocmd runs the go command in dir with env added to the environment and returns its standard output. An error of it
// holds all that it said.
func gocmd(t *testing.T, dir string, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "PWD="+dir), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), nil
}

// mustGo is gocmd for a command that has to succeed.
func mustGo(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	out, err := gocmd(t, dir, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// decode reads a stream of JSON values, as `go list -json` prints them.
func decode[T any](t *testing.T, stream string) []T {
	t.Helper()
	var all []T
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

// workModules are the directories that go.work uses, relative to the root: "admission", "lease/leasetest".
func workModules(t *testing.T) []string {
	t.Helper()
	work := decode[struct{ Use []struct{ DiskPath string } }](t, mustGo(t, root(t), []string{inWorkspace(t)}, "work", "edit", "-json"))
	var dirs []string
	for _, use := range work[0].Use {
		dirs = append(dirs, filepath.ToSlash(filepath.Clean(use.DiskPath)))
	}
	if !slices.Contains(dirs, "admission") || !slices.Contains(dirs, "internal/system") {
		t.Fatalf("go.work uses %q", dirs)
	}
	return dirs
}

// walk calls visit with the slash-separated path, relative to dir, of every file of the tree that is source: not of
// git, of a build or of a test's data.
func walk(t *testing.T, dir string, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "testdata"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// read returns the content of a file.
func read(t *testing.T, elem ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// write makes a file and the directories above it.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// report fails the test with the findings of a check over the repository.
func report(t *testing.T, findings []string) {
	t.Helper()
	for _, finding := range findings {
		t.Error(finding)
	}
}

// mustFind fails the test unless each of the findings over made-up data is wanted and each wanted one was found; a
// wanted text is a part of its finding.
func mustFind(t *testing.T, findings []string, want ...string) {
	t.Helper()
	for _, text := range want {
		if !slices.ContainsFunc(findings, func(f string) bool { return strings.Contains(f, text) }) {
			t.Errorf("not found: %s", text)
		}
	}
	for _, finding := range findings {
		if !slices.ContainsFunc(want, func(text string) bool { return strings.Contains(finding, text) }) {
			t.Errorf("found without cause: %s", finding)
		}
	}
}
