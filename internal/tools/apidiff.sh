#!/usr/bin/env bash
# Prints the changes of every module's exported API since a commit, by golang.org/x/exp/cmd/apidiff.
# Usage: bash internal/tools/apidiff.sh BASE
set -eu
cd "$(dirname "$0")/../.."
base=$1
dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/base" 2>/dev/null; rm -rf "$dir"' EXIT
GOWORK=off CGO_ENABLED=0 GOBIN=$dir go install "$(grep /apidiff@ internal/tools/versions)"
git worktree add --quiet --detach "$dir/base" "$base"

# An adapter has its siblings from go.work. A root needs none, and "lease/..." must not be its adapters too.
api() ( # api CHECKOUT ARGUMENTS: apidiff in the folder $path of the checkout
  cd "$1/$path"
  [[ $path == */* ]] || export GOWORK=off
  "$dir/apidiff" -m "${@:2}"
)

for file in docs/api/*.txt; do
  module=$(sed -n '1s|^# What \(.*\) exports\..*|\1|p' "$file")
  path=${module#*/*/*/}
  if [ ! -d "$dir/base/$path" ]; then
    echo "== $path: new"
    continue
  fi
  api "$dir/base" -w "$dir/export" "$module"
  api . "$dir/export" "$module" > "$dir/report"
  if [ -s "$dir/report" ]; then
    echo "== $path"
    cat "$dir/report"
  else
    echo "== $path: no change"
  fi
done
