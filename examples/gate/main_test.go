package main

// What the program prints is part of it.

func Example() {
	main()
	// Output:
	// third: rejected by payments at limit 2
	// paying
	// fourth: paid, 0 in flight
}
