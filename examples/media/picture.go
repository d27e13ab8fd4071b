// The CPU-bound work: generate an image and encode it as JPEG.
package main

import (
	"image"
	"image/color"
	"image/jpeg"
	"io"
)

// side is the width and height of an image in pixels.
const side = 256

// encode writes frame n of a video.
func encode(w io.Writer, n int) error {
	picture := image.NewRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			picture.SetRGBA(x, y, color.RGBA{R: uint8(x ^ y), G: uint8(x + n), B: uint8(y - n), A: 255})
		}
	}
	return jpeg.Encode(w, picture, nil)
}
