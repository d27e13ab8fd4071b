// Where the files of the process's cgroup are: what /proc/self/cgroup and /proc/self/mountinfo say together.

package monitor

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// locate is the directories of the cgroup that governs the processor, and of all above it that are mounted, lowest first,
// and which version of cgroups they belong to. There are none if it cannot be seen from here.
func locate(membership, mounts string) (dirs []string, v2 bool) {
	group, v2 := findGroup(membership)
	root, point := findMount(mounts, group, v2)
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

// findGroup is the path of the process's cgroup from the root of its hierarchy, "" if there is none. Each line of
// membership is one hierarchy: its number, its controllers, the path. Where both versions are in use, the processor is
// governed by the first if that has the cpu controller, whatever the second says.
func findGroup(membership string) (group string, v2 bool) {
	for line := range strings.Lines(membership) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") || slices.Contains(strings.Split(fields[2], "/"), "..") {
			continue // not a line of this file, or a cgroup outside of what the process may see
		}
		if slices.Contains(strings.Split(fields[1], ","), "cpu") {
			return fields[2], false
		}
		if fields[0] == "0" && fields[1] == "" {
			group, v2 = fields[2], true
		}
	}
	return group, v2
}

// findMount is a mount of the hierarchy that contains group: which part of the hierarchy it shows, and where. Of several
// it is the one that shows most. The format is that of proc_pid_mountinfo(5).
func findMount(mounts, group string, v2 bool) (root, point string) {
	for line := range strings.Lines(mounts) {
		mount, source, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, about := strings.Split(mount, " "), strings.Split(source, " ")
		if !found || len(fields) < 6 || len(about) < 3 {
			continue
		}
		if v2 && about[0] != "cgroup2" || !v2 && (about[0] != "cgroup" || !slices.Contains(strings.Split(about[2], ","), "cpu")) {
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

// unescape puts back the bytes that the kernel writes as a backslash and three octal digits.
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
