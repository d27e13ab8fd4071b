// Command balance shows what load reports are for. Four gRPC servers with a warden each, of which one has a slow database, get
// the same load twice: by round robin, and by grpc-go's weighted round robin, which reads the reports.
//
//	GOWORK=off go run .
//
// Each server's database has four connections. A query takes 40 ms, and 120 ms on the slow server, so that the fleet can answer
// 333 calls a second: 300 come. Round robin sends 75 of them to the slow server, which can answer 33 and rejects the others. Each
// run takes 20 s, of which the first five are not counted.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"text/tabwriter"
	"time"
)

func main() {
	l := load{perSecond: 300, warmUp: 5 * time.Second, length: 15 * time.Second}
	flag.IntVar(&l.perSecond, "load", l.perSecond, "calls per second, 1 to 2000")
	flag.DurationVar(&l.length, "for", l.length, "time that is counted, of each of the two runs, 1s to 5m")
	flag.Parse()
	if l.perSecond < 1 || l.perSecond > 2000 || l.length < time.Second || l.length > 5*time.Minute {
		flag.Usage()
		os.Exit(2)
	}
	if err := show(context.Background(), l); err != nil {
		log.Fatal(err)
	}
}

// show prints what became of the calls of both runs.
func show(ctx context.Context, l load) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "balancer\tcalls\tanswered\tof all\tnot answered\tby the slow server\tof its calls\t")
	for _, b := range []balancer{roundRobin, weightedRoundRobin} {
		fleet, err := startFleet(ctx, func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") })
		if err != nil {
			return err
		}
		counts, err := fleet.run(b, l)
		fleet.stop()
		if err != nil {
			return err
		}
		all, slow := counts.sum(), counts[0]
		fmt.Fprintf(
			out, "%s\t%d\t%d\t%.3f\t%d\t%d\t%d\t\n", b.name, all.calls, all.answered, float64(all.answered)/float64(all.calls),
			all.calls-all.answered, slow.calls-slow.answered, slow.calls,
		)
	}
	return out.Flush()
}
