package sim

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var dep = flag.Int("dep", 0, "")

func TestDep(t *testing.T) {
	if *dep == 0 {
		t.Skip()
	}
	names := strings.Split(*lawNames, ",")
	var seeds []uint64
	for s := *from; len(seeds) < *dep; s++ {
		if w := Draw(s); w.dependent() && w.Class() == Overload && w.cost() < affordable {
			seeds = append(seeds, s)
		}
	}
	trials := make([]*Trial, len(seeds))
	must(t, each(len(seeds), func(i int) (err error) {
		if trials[i], err = Compare(Draw(seeds[i]), inBubble(t)); err != nil {
			return err
		}
		return trials[i].Try(inBubble(t), false, names...)
	}))
	Print(os.Stdout, trials, names)
	fmt.Println()
}
