package system

// What faces strangers is bounded: a server that somebody may copy says how long each part of a request may take, and CI runs
// actions by their commit, which nobody can move.

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	serverOf = regexp.MustCompile(`(?s)[^*]http\.Server\{.*?\}`) // not a list of them
	uses     = regexp.MustCompile(`(?m)^\s*-? *uses: *(\S+)`)
	byCommit = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
)

// checkServers reports servers in a file of Go or in a page that leave one of the four timeouts out.
func checkServers(file, text string) []string {
	var findings []string
	for _, s := range serverOf.FindAllString(text, -1) {
		for _, timeout := range []string{"ReadHeaderTimeout", "ReadTimeout", "WriteTimeout", "IdleTimeout"} {
			if !regexp.MustCompile(`\b` + timeout + `:`).MatchString(s) {
				findings = append(findings, fmt.Sprintf("%s: a server without %s: %s", file, timeout, s))
			}
		}
	}
	if strings.Contains(text, "http.ListenAndServe(") || strings.Contains(text, "http.ListenAndServeTLS(") {
		findings = append(findings, file+": http.ListenAndServe has no timeouts")
	}
	return findings
}

// checkActions reports actions that are not named by their commit.
func checkActions(file, text string) []string {
	var findings []string
	for _, m := range uses.FindAllStringSubmatch(text, -1) {
		if !byCommit.MatchString(m[1]) {
			findings = append(findings, fmt.Sprintf("%s: %s is not pinned by its commit", file, m[1]))
		}
	}
	return findings
}

func TestStrangers(t *testing.T) {
	servers, workflows := 0, 0
	walk(t, root(t), func(file string) {
		switch {
		case path.Dir(file) == ".github/workflows":
			text := read(t, root(t), file)
			workflows += len(uses.FindAllString(text, -1))
			report(t, checkActions(file, text))
		case strings.HasPrefix(file, "internal/"), strings.HasSuffix(file, "_test.go"):
		case path.Ext(file) == ".go", path.Ext(file) == ".md":
			text := read(t, root(t), file)
			servers += len(serverOf.FindAllString(text, -1))
			report(t, checkServers(file, text))
		}
	})
	if servers < 5 || workflows == 0 {
		t.Errorf("%d servers, %d actions: they are not found any more", servers, workflows)
	}
}

func TestStrangersFind(t *testing.T) {
	const whole = "s := &http.Server{\n\tHandler: h, ReadHeaderTimeout: 1, ReadTimeout: 1,\n\tWriteTimeout: 1, IdleTimeout: 1,\n}\n"
	mustFind(t, checkServers("a.go", whole+"t := &http.Server{Handler: h, ReadHeaderTimeout: 1, WriteTimeout: 1}\nhttp.ListenAndServe(\":80\", nil)\n"),
		"a.go: a server without ReadTimeout: &http.Server{Handler: h, ReadHeaderTimeout: 1, WriteTimeout: 1}",
		"a.go: a server without IdleTimeout: &http.Server{Handler: h, ReadHeaderTimeout: 1, WriteTimeout: 1}",
		"a.go: http.ListenAndServe has no timeouts")
	mustFind(t, checkActions("ci.yml", "  - uses: actions/checkout@v6\n    uses: a/b@"+strings.Repeat("0a", 20)+" # v1\n- uses: ./local\n"),
		"ci.yml: actions/checkout@v6 is not pinned by its commit",
		"ci.yml: ./local is not pinned by its commit")
}
