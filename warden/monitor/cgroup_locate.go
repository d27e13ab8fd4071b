// SPDX-License-Identifier: Apache-2.0

// Locating the files of the process's cgroup, from /proc/self/cgroup and /proc/self/mountinfo.

package monitor

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// locate returns the directories of the cgroup that has this controller ("cpu", "memory") and of its mounted ancestors, lowest
// first, and whether they belong to cgroup v2; none if they are not visible.
func locate(controller, membership, mounts string) (dirs []string, v2 bool) {
	group, v2 := findGroup(controller, membership)
	root, point := findMount(controller, mounts, group, v2)
	if point == "" {
		return nil, v2
	}
	top := path.Clean(point)
	for dir := path.Join(top, group[len(root):]); ; dir = path.Dir(dir) {
		dirs = append(dirs, dir)
		if dir == top {
			return dirs, v2
		}
	}
}

// findGroup returns the path of the process's cgroup from the root of its hierarchy, "" if there is none. Each line of
// membership is one hierarchy: number, controllers, path. With both versions in use, v1 governs what it has the controller of.
func findGroup(controller, membership string) (group string, v2 bool) {
	for line := range strings.Lines(membership) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") || slices.Contains(strings.Split(fields[2], "/"), "..") {
			continue // malformed, or outside the visible hierarchy
		}
		if slices.Contains(strings.Split(fields[1], ","), controller) {
			return fields[2], false
		}
		if fields[0] == "0" && fields[1] == "" {
			group, v2 = fields[2], true
		}
	}
	return group, v2
}

// findMount returns the mount of the hierarchy that contains group: the mounted part of the hierarchy, and the mount point.
// Of several mounts it returns the one that shows most. The format is that of proc_pid_mountinfo(5).
func findMount(controller, mounts, group string, v2 bool) (root, point string) {
	for line := range strings.Lines(mounts) {
		mount, source, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, about := strings.Split(mount, " "), strings.Split(source, " ")
		if !found || len(fields) < 6 || len(about) < 3 {
			continue
		}
		v1 := about[0] == "cgroup" && slices.Contains(strings.Split(about[2], ","), controller)
		if v2 && about[0] != "cgroup2" || !v2 && !v1 {
			continue
		}
		shown, at := strings.TrimSuffix(unescape(fields[3]), "/"), unescape(fields[4])
		inside := group != "" && (group == shown || strings.HasPrefix(group, shown+"/"))
		if inside && strings.HasPrefix(at, "/") && (point == "" || len(shown) < len(root)) {
			root, point = shown, at
		}
	}
	return root, point
}

// unescape decodes the kernel's octal escapes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
