#!/bin/bash -eu
# Builds every fuzz target of the repository, in whose root it runs. compile_native_go_fuzzer_v2 comes with OSS-Fuzz's image:
# its arguments are the package, the function and the name of the program.
grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do
  folder=$(dirname "$file")
  package=$(cd "$folder" && go list .)
  # github.com/stopbank/stopbank/lease/durable FuzzRecordDecode: lease_durable_fuzz_record_decode
  prefix=${package#github.com/stopbank/stopbank/}
  sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(f \*testing\.F\).*/\1/p' "$file" | while read -r name; do
    compile_native_go_fuzzer_v2 "$package" "$name" "${prefix//\//_}$(sed -E 's/([A-Z])/_\L\1/g' <<<"$name")"
  done
done
