#!/bin/sh
# Explores every interleaving of the model with spin, and makes sure that each fault built into it is found.
set -eu
models=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

explore() { # model, then macros
	model=$1
	shift
	macros=$*
	rm -rf ./*
	spin "$@" -a "$models/$model" >/dev/null
	cc -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=3000 -o pan pan.c
	./pan -m1000000 >out 2>&1 || { cat out; exit 1; }
	grep -q '^error: max search depth' out && { echo "$model $*: not explored to the end"; exit 1; }
	grep -q 'Search not completed' out && ! grep -q 'errors: 1' out && { echo "$model $*: not explored to the end"; exit 1; }
	errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' out)
	states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' out)
}

sound() {
	explore "$@"
	printf '%-12s %-34s %9s states, %s errors\n' "$model" "$macros" "$states" "$errors"
	[ "$errors" = 0 ] || { sed -n '/^pan:1:/p' out; exit 1; }
}

broken() {
	explore "$@"
	printf '%-12s %-34s %9s states, found: %s\n' "$model" "$macros" "$states" "$(sed -n 's/^pan:1: //p' out)"
	[ "$errors" = 1 ] || { echo "the fault was not found"; exit 1; }
}

command -v spin >/dev/null || { echo "spin is not installed (Debian: apt-get install spin)"; exit 1; }
sound limiter.pml
sound limiter.pml -DTARGET=2
sound limiter.pml -DOWNED=1
sound limiter.pml -DOWNED=1 -DTARGET=2
for fault in 1 2; do broken limiter.pml -DBROKEN=$fault; done
broken limiter.pml -DOWNED=1 -DBROKEN=3
