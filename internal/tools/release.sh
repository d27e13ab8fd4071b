#!/usr/bin/env bash
# Makes the next release, of every published module, in a clone, and installs each module from there like a user.
# Usage: bash internal/tools/release.sh DIR. It needs PostgreSQL's server programs, pushes nothing and leaves this checkout as
# it is. Then DIR holds what tags.sh makes, and scratch: a module for each of them that requires it, with its published examples.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD dir=${1:-}

fail() { printf 'release: %s\n' "$*" >&2; exit 1; }

[ -n "$dir" ] || fail 'DIR is empty; allowed: an empty or new directory'
mkdir -p "$dir" && dir=$(cd "$dir" && pwd)
[ -z "$(ls -A "$dir")" ] || fail "DIR is $dir, which is not empty"
[ -z "$(git status --porcelain)" ] || fail 'the checkout has changes that are not committed'
echo "== docs/api"
go test -count=1 -run '^TestExportedAPI$' ./internal/system || fail 'docs/api does not show what the modules export: make api'
# shellcheck source=internal/tools/tags.sh
. internal/tools/tags.sh
GOFLAGS="$(go env GOFLAGS) -trimpath -modcacherw"
GODEBUG=goindex=0 # the index trusts that a version in a module cache never changes; a second run in DIR may change it
export GOFLAGS GODEBUG

# A user has the module proxy, which serves git's archive of each tag, and nothing else of the project.
install() ( # install MODULE
  echo "== go get $project/$1@$version"
  export GOPROXY=file://$dir/proxy,$GOPROXY GOMODCACHE=$dir/cache/install GOBIN=$dir/bin
  mkdir -p "$dir/scratch/$1" && cd "$dir/scratch/$1"
  get=
  case $1 in
  warden)
    go install "$project/$1/flood@$version"
    "$dir/bin/flood" -h 2>&1 | grep '^Usage: flood ' ;;
  lease/leasectl)
    go install "$project/$1@$version"
    "$dir/bin/${1##*/}" -h 2>&1 | grep "^Usage: ${1##*/} "
    GOCACHE=$dir/cache/again GOMODCACHE=$dir/cache/again-modules GOBIN=$dir/again go install "$project/$1@$version"
    cmp "$dir/bin/${1##*/}" "$dir/again/${1##*/}" || fail "$1: two builds differ"
    get=-tool ;;
  esac
  go mod init example.com/scratch 2> /dev/null
  go get $get "$project/$1@$version"
  source=$(go list -m -f '{{.Dir}}' "$project/$1")
  [ -f "$source/LICENSE" ] || fail "$1 has no LICENSE"
  (cd "$source" && find . -name 'example*_test.go' -exec cp --parents {} "$dir/scratch/$1" \;)
  usage=$root/internal/tools/testdata/${1##*/}_test.go
  [ ! -f "$usage" ] || { mkdir usage && cp "$usage" usage; }
  chmod -R u+w .
  go mod tidy
  go mod vendor
  [ -z "$get" ] || exit 0
  go test -count=1 -v ./... > tests || { cat tests; fail "$1: a published example failed"; }
  grep -c '^--- PASS' tests || fail "$1: no example ran"
)
export -f fail install
export dir project root version
# shellcheck disable=SC2086 # a line each
printf '%s\n' $published | each install
# The quick starts' own commands. A go mod tidy would hide a missing module.
quickstart() ( # quickstart PROGRAM PAGE MODULE
  export GOPROXY=file://$dir/proxy,$GOPROXY GOMODCACHE=$dir/cache/install
  mkdir -p "$dir/scratch/quickstart/$1" && cd "$dir/scratch/quickstart/$1"
  go mod init example.com/scratch 2> /dev/null
  gets=$(sed -n "s|.*\`go get \($project/$3\)@v[0-9.]*\([^\`]*\)\`.*|\1@$version\2|p" "$root/docs/quickstart/$2.md")
  [ -n "$gets" ] || fail "docs/quickstart/$2.md does not install $3"
  echo "== docs/quickstart/$2.md: go get $gets"
  # shellcheck disable=SC2086 # several modules
  go get $gets
  cp "$root/examples/quickstart/$1/main.go" .
  go build -o /dev/null . || fail "docs/quickstart/$2.md does not build"
)
export -f quickstart
each quickstart << 'END'
handler handler admission
server server warden/wardenhttp
dependency dependency warden/wardenhttp
client client warden/wardenhttp
kafka ordered lease/leasekafka
jetstream ordered lease/leasenats
postgres ordered lease/leasepg
END
printf '\n%s; to publish: git -C %s push REMOTE HEAD:main --tags\n' "$version" "$dir/repository"
