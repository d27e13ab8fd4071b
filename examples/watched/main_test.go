package main

// The program's output: the metrics of two processed partitions.

import "fmt"

func Example() {
	if err := run(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// stopbank_dispatch_committed_offset dispatcher=orders,partition=orders-0 3
	// stopbank_dispatch_committed_offset dispatcher=orders,partition=orders-1 3
	// stopbank_dispatch_dead_letters_total dispatcher=orders,partition=orders-0 1
	// stopbank_dispatch_dead_letters_total dispatcher=orders,partition=orders-1 1
	// stopbank_dispatch_floor_offset dispatcher=orders,partition=orders-0 3
	// stopbank_dispatch_floor_offset dispatcher=orders,partition=orders-1 3
	// stopbank_dispatch_given_up_total cause=permanent,dispatcher=orders,partition=orders-0 1
	// stopbank_dispatch_given_up_total cause=permanent,dispatcher=orders,partition=orders-1 1
	// stopbank_dispatch_partitions dispatcher=orders 2
	// stopbank_dispatch_partitions_held dispatcher=orders 2
	// stopbank_dispatch_records_total dispatcher=orders,partition=orders-0,result=succeeded 2
	// stopbank_dispatch_records_total dispatcher=orders,partition=orders-1,result=succeeded 2
}
