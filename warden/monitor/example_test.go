// One runnable example per entry point.

package monitor_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Sampling the process, with the work that it does.
func Example() {
	work := monitor.NewRecorder()
	sampler, err := monitor.New(monitor.Config{Recorder: work})
	if err != nil {
		panic(err)
	}

	span := work.Start("resize") // around whatever is to be measured
	<-time.After(20 * time.Millisecond)
	span.End()

	s := sampler.Sample()
	fmt.Println(s.Service.Count, s.Service.P50 >= 15*time.Millisecond)
	if s.Runnable.OK { // since Go 1.26: ask before you believe it
		fmt.Println("per processor:", s.Runnable.Value >= 0)
	} else {
		fmt.Println("per processor: true")
	}
	// Output:
	// 1 true
	// per processor: true
}

func ExampleNew() {
	_, err := monitor.New(monitor.Config{Recorder: new(monitor.Recorder)})
	fmt.Println(errors.Is(err, decision.ErrInvalid))
	fmt.Println(err)
	// Output:
	// true
	// warden: monitor.Config.Recorder is a zero Recorder; allowed: nil or a recorder made by NewRecorder
}

// An execution that says nothing about the work is discarded.
func ExampleSpan_Discard() {
	work := monitor.NewRecorder()
	sampler, _ := monitor.New(monitor.Config{Recorder: work})
	for i := range 3 {
		span := work.Start("resize")
		<-time.After(time.Millisecond)
		if i == 2 { // the connection was hijacked
			span.Discard()
			continue
		}
		span.End()
	}
	fmt.Println(sampler.Sample().Service.Count)
	// Output: 2
}
