#!/usr/bin/env bash
# Makes a release of every published module in a clone, and installs each of them from there as a user would.
# Usage: bash internal/tools/release.sh v0.1.0 DIR. It needs PostgreSQL's server programs, pushes nothing and leaves this checkout as
# it is. Then DIR holds:
#   repository  a clone with one commit and one tag for each module, siblings first
#   proxy       the modules as a module proxy serves them: GOPROXY=file://DIR/proxy
#   scratch     a module for each of them that requires it, with its published examples
# The commits have the author and the time of HEAD, so that a second run makes the same ones.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD version=${1:-} dir=${2:-}
project=github.com/stopbank/stopbank

fail() { printf 'release: %s\n' "$*" >&2; exit 1; }

[[ $version =~ ^v(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}(-[0-9a-z.]+)?$ ]] || fail "VERSION is \"$version\"; allowed: v0.1.0, v0.1.0-rc.1"
[ -n "$dir" ] || fail 'DIR is empty; allowed: an empty or new directory'
mkdir -p "$dir" && dir=$(cd "$dir" && pwd)
[ -z "$(ls -A "$dir")" ] || fail "DIR is $dir, which is not empty"
[ -z "$(git status --porcelain)" ] || fail 'the checkout has changes that are not committed'
grep -Eq "^## $version( |\$)" CHANGELOG.md || fail "CHANGELOG.md has no section \"## $version\""
echo "== docs/api"
bash internal/tools/apidiff.sh || fail 'docs/api does not show what the modules export: make api'

# Published is each module of go.work but the examples and the internal ones. tsort puts a module after the siblings that it requires.
modules=$(go list -m | sed "s|^$project/||" | grep -Ev '^(examples|internal/)')
modules=$(for m in $modules; do
  echo "$m $m"
  sed -n "s|.*$project/\([^ ]*\) v.*|\1 $m|p" "$m/go.mod"
done | tsort)

# Modules of others come from where they always do; those that this machine has downloaded before are not fetched again.
GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
GOFLAGS="$(go env GOFLAGS) -trimpath -modcacherw"
export GOPROXY GOFLAGS GOWORK=off GONOSUMDB=$project

# Each module requires the published siblings, has their sums and compiles with its tests before it gets a tag. The go command fetches
# the tags from the clone as it will fetch them from the public host, and keeps them as a proxy does.
git clone --quiet --no-tags "$root" "$dir/repository"
GIT_AUTHOR_NAME=$(git log -1 --format=%an) GIT_AUTHOR_EMAIL=$(git log -1 --format=%ae) GIT_AUTHOR_DATE=$(git log -1 --format=%cI)
GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE
publish() ( # publish MODULE
  export GONOPROXY=$project GOMODCACHE=$dir/cache/publish
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.$dir/repository.insteadOf" GIT_CONFIG_VALUE_0="https://$project"
  cd "$dir/repository/$1"
  # shellcheck disable=SC2046 # a flag is a word
  go mod edit $(printf -- "-dropreplace=$project/%s " $modules) $(sed -n "s|.*\($project/[^ ]*\) v.*|-require=\1@$version|p" go.mod)
  go mod tidy
  ! grep -q '=>' go.mod || fail "$1/go.mod still replaces a module"
  ! grep "$project/" go.mod | grep -v -e '^module ' -e " $version\( \|\$\)" || fail "$1/go.mod requires a sibling at another version"
  go list -export -test ./... > /dev/null # compiles the packages and their tests, and links nothing
  git commit --quiet --allow-empty --message "$1: $version" -- go.mod go.sum
  [ -z "$(git status --porcelain)" ] || fail "$1: go mod tidy changed more than go.mod and go.sum"
  git tag --annotate --message "$1 $version" "$1/$version"
  go mod download "$project/$1@$version"
)
for m in $modules; do
  echo "== $m/$version"
  publish "$m"
done
mkdir -p "$dir/proxy/$project"
cp -r "$dir/cache/publish/cache/download/$project/." "$dir/proxy/$project"

# A user has the proxy and nothing else of the project.
install() ( # install MODULE
  export GOPROXY=file://$dir/proxy,$GOPROXY GOMODCACHE=$dir/cache/install GOBIN=$dir/bin
  mkdir -p "$dir/scratch/$1" && cd "$dir/scratch/$1"
  if [ "$1" = lease/leasectl ]; then
    go install "$project/$1@$version"
    "$dir/bin/leasectl" -h 2>&1 | grep '^Usage: leasectl '
    return
  fi
  go mod init example.com/scratch 2> /dev/null
  go get "$project/$1@$version"
  published=$(go list -m -f '{{.Dir}}' "$project/$1")
  [ -f "$published/LICENSE" ] || fail "$1 has no LICENSE"
  (cd "$published" && find . -name 'example*_test.go' -exec cp --parents {} "$dir/scratch/$1" \;)
  ! [ -f "$root/internal/tools/testdata/${1##*/}_test.go" ] || cp "$root/internal/tools/testdata/${1##*/}_test.go" .
  chmod -R u+w .
  go mod tidy
  go test -count=1 -v ./... > tests || { cat tests; fail "$1: a published example failed"; }
  grep -c '^--- PASS' tests || fail "$1: no example ran"
)
for m in $modules; do
  echo "== go get $project/$m@$version"
  install "$m"
done
# The quick starts' own words, without a tidy that would hide a missing module.
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
quickstart handler handler admission
quickstart server server warden/wardenhttp
quickstart dependency dependency warden/wardenhttp
quickstart client client warden/wardenhttp
quickstart kafka ordered lease/leasekafka
quickstart jetstream ordered lease/leasenats
quickstart postgres ordered lease/leasepg
printf '\n%s of %s; to publish: git -C %s push REMOTE --tags\n' "$version" "$(git rev-parse --short HEAD)" "$dir/repository"
