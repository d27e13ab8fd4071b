package system

// The limiter carries control's reasons and never looks at them: were it to judge by them, lag and pressure would have
// found their way around the decision.

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

// checkReasons reports where a file of the limiter touches ControlDecision.Reasons, or a reason's parts, elsewhere than in
// the String method that shows an explanation to people.
func checkReasons(file, text string) []string {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	var findings []string
	for _, d := range f.Decls {
		fn, isFunc := d.(*ast.FuncDecl)
		shows := isFunc && fn.Recv != nil && fn.Name.Name == "String"
		for n := range ast.Preorder(d) {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				continue
			}
			switch name := s.Sel.Name; {
			case name == "Code", name == "LogValue":
				findings = append(findings, fset.Position(s.Pos()).String()+": looks into a reason")
			case name == "Reasons" && !shows:
				findings = append(findings, fset.Position(s.Pos()).String()+": uses the reasons for more than showing them")
			}
		}
	}
	return findings
}

func TestTheLimiterDoesNotLookAtReasons(t *testing.T) {
	files := 0
	walk(t, root(t), func(file string) {
		if path.Dir(file) != "warden/limiter" || path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return
		}
		files++
		for _, finding := range checkReasons(file, read(t, root(t), file)) {
			t.Error(finding)
		}
	})
	if files == 0 {
		t.Fatal("there is no limiter to look at")
	}
}

func TestTheLimiterDoesNotLookAtReasonsFinds(t *testing.T) {
	for body, want := range map[string]int{
		"func (e E) String() string { return fmt.Sprint(e.Decision.Reasons) }":                     0,
		"func f(d D) D { return d.Sanitized() }":                                                   0,
		"func f(d D) bool { return len(d.Reasons) > 2 }":                                           1,
		"func f(d D) bool { return d.Reasons[0].Code() == `queueing` }":                            2,
		"func (e E) String() string { if e.D.Reasons[0].Code() == `x` { return `` }; return `y` }": 1,
		"var x = d.Reasons": 1,
	} {
		if got := checkReasons("f.go", "package limiter\n"+body); len(got) != want {
			t.Errorf("%s: %d findings, want %d: %v", body, len(got), want, got)
		}
	}
}
