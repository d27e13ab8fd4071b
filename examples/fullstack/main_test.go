package main

// Most clients are rejected, a few are served, and each rejection says why: which ones they are is the machine's affair.

import (
	"bytes"
	"regexp"
	"strconv"
	"testing"
)

func TestShow(t *testing.T) {
	var out bytes.Buffer
	if err := show(&out); err != nil {
		t.Fatal(err)
	}
	said := out.String()
	counts := map[string]int{}
	total := 0
	for _, line := range regexp.MustCompile(`(?m)^  (\d+)(?: [a-z_]+)?: (\d+)$`).FindAllStringSubmatch(said, -1) {
		n, err := strconv.Atoi(line[2])
		if err != nil {
			t.Fatal(err)
		}
		counts[line[1]] += n
		total += n
	}
	if total != clients || counts["200"] == 0 || counts["503"] == 0 || counts["200"]+counts["503"]+counts["504"] != clients {
		t.Errorf("%d answers: %v", total, counts)
	}
	told := regexp.MustCompile(`the answer to (client-\d+):
  503, Retry-After: [1-9]\d*
  {"title":"Service Unavailable","status":503,"reason":"([a-z_]+)","decision":[1-9]\d*,"request_id":"(client-\d+)"}
the explanation kept under that id:
  rejected: ([a-z_]+): .*limiter "shop": .*; decision [1-9]\d* \((?:initial|applied)\): target [1-4], `).FindStringSubmatch(said)
	if len(told) != 5 || told[1] != told[3] || told[2] != told[4] {
		t.Errorf("%q", told)
	}
	if !regexp.MustCompile(`(?m)^the refund of client-\d+, which matters most: (200|504)$`).MatchString(said) {
		t.Error("the refund was rejected")
	}
	if t.Failed() {
		t.Log(said)
	}
}
