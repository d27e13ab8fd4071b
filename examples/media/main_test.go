package main

// The program's output, on any number of processors, and the size of its pools.

import (
	"bytes"
	"image/jpeg"
	"os"
	"testing"
)

func Example() {
	if err := run(os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// images encoded while all video slots are busy: 8
	// API calls served while all video slots are busy: 50
	// videos in flight beyond their slots: 0 finished: 0
	// videos canceled while they were queued: 3
	// frames were encoded: true
}

// TestPoolsFitTheProcessors: CPU-bound compartments have as many slots as there are processors, and at least one each.
func TestPoolsFitTheProcessors(t *testing.T) {
	for _, processors := range []int{1, 2, 3, 8, 64} {
		s, err := open(processors)
		if err != nil {
			t.Fatal(err)
		}
		s.close()
		cpuBound := 0
		for _, share := range s.set.Plan().Compartments {
			if share.Max < 1 || share.Max != share.Guaranteed {
				t.Errorf("%d processors: %+v", processors, share)
			}
			if share.Name != "api" {
				cpuBound += share.Max
			}
		}
		if cpuBound != max(2, processors) {
			t.Errorf("%d processors: %d slots for CPU-bound work", processors, cpuBound)
		}
	}
}

// TestEncode: encode writes a JPEG, and each frame differs from the one before.
func TestEncode(t *testing.T) {
	var first, second bytes.Buffer
	for n, b := range []*bytes.Buffer{&first, &second} {
		if err := encode(b, n); err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two frames are equal")
	}
	picture, err := jpeg.Decode(&first)
	if err != nil || picture.Bounds().Dx() != side || picture.Bounds().Dy() != side {
		t.Error(err)
	}
}
