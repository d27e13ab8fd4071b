package leasetest

// This file is the plain ledger's faults of representation: how it writes names, offsets and times down.

import (
	"math"
	"strings"
	"time"
)

// key is what a domain is filed under.
func (p *plain) key(domain string) string {
	switch p.fault {
	case "names are folded":
		return strings.ToLower(domain)
	case "names are trimmed":
		return strings.TrimSpace(domain)
	case "names end at a zero byte":
		before, _, _ := strings.Cut(domain, "\x00")
		return before
	case "names become valid UTF-8":
		return strings.ToValidUTF8(domain, "\ufffd")
	case "names are normalised":
		return strings.ReplaceAll(domain, "e\u0301", "\u00e9")
	case "names are cut at 1023 bytes":
		return domain[:min(len(domain), 1023)]
	case "names are subjects":
		return strings.NewReplacer("/", ".", " ", "_", "*", "_", ">", "_").Replace(domain)
	}
	return domain
}

func (p *plain) offset(offset int64) int64 {
	switch p.fault {
	case "an offset is cut to 32 bits":
		return int64(int32(offset))
	case "an offset passes through a float":
		return int64(float64(offset))
	case "the least offset is none":
		return max(offset, math.MinInt64+1)
	}
	return offset
}

func (p *plain) now() time.Time {
	now := time.Now().UTC().Round(0)
	switch p.fault {
	case "AcquiredAt is local":
		return now.In(time.FixedZone("", 3600))
	case "AcquiredAt has a monotonic reading":
		return time.Now()
	case "AcquiredAt counts from the start":
		return time.Unix(0, 1).UTC()
	}
	return now
}

// floorOf is the floor as far as r has heard of it.
func (p *plain) floorOf(r *entry) int64 {
	if r.missed {
		return math.MinInt64
	}
	return p.floor
}
