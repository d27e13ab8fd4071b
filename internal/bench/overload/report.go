//go:build linux

// The report: Markdown, plots and JSON, targets met and missed alike.

package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
)

// report is a run, or several merged.
type report struct {
	Go      string   `json:"go"`
	Command string   `json:"command"`
	Seed    uint64   `json:"seed"`
	Peers   []string `json:"peers"`
	Cells   []Cell   `json:"cells"`
}

// merge adds the cells of the report in the folder that this one does not have.
func (r *report) merge(folder string) error {
	var old report
	if err := old.read(filepath.Join(folder, "overload.json")); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, c := range old.Cells {
		if r.find(c.Workload, c.Load, c.Variant) == nil {
			r.Cells = append(r.Cells, c)
		}
	}
	return nil
}

func (r *report) find(workload, load, variant string) *Cell {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Workload == workload && c.Load == load && c.Variant == variant {
			return c
		}
	}
	return nil
}

func (r *report) write(folder string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "overload.json"), append(b, '\n'), 0o644)
}

// versions are the peers that this binary was built with.
func versions() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var all []string
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/failsafe-go/failsafe-go", "github.com/zeromicro/go-zero", "github.com/go-kratos/aegis", "golang.org/x/sync":
			all = append(all, m.Path+" "+m.Version)
		}
	}
	return all
}
