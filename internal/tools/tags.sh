# Tags every published module in a clone of the last commit, and serves the tags from a module proxy in files. Sourced at the
# root by alone.sh and release.sh, with $dir an empty directory. It pushes nothing and leaves this checkout as it is.
# Then $dir holds:
#   repository  the clone: each module has a tag, on a commit that adds its siblings' checksums to its go.sum
#   proxy       the tags as the go command reads them from the clone: GOPROXY=file://$dir/proxy
# The commits have the author and the time of HEAD, so that a second run makes the same ones.
# shellcheck shell=bash disable=SC2154
project=github.com/stopbank/stopbank

# each COMMAND...: runs it once for each line of standard input, with the line's words after its own; as many at a time as there are
# processors, since some wait for servers and downloads while others compile. What one says is printed as a whole.
each() {
  # shellcheck disable=SC2016 # the shells below expand it
  xargs -L 1 -P "$(getconf _NPROCESSORS_ONLN)" bash -c \
    'code=0; out=$(bash -euo pipefail -c "\"\$@\"" each "$@" 2>&1) || code=$?; printf "%s\n" "$out"; exit "$code"' each "$@"
}

# The next version is the first that CHANGELOG.md describes. A go.mod requires siblings at that version if they have no tag yet.
version=$(sed -n 's/^## \(v[^ ]*\).*/\1/p' CHANGELOG.md | head -n 1)
[ -n "$version" ] || { echo 'CHANGELOG.md begins with no section "## v0.1.0"' >&2; exit 1; }
siblings() { sed -n "s,^[^=]*$project/\([^ ]*\) $version\( .*\)\?$,\1,p" "$1/go.mod"; }

# Published are all modules of go.work but these two, and the one for Caddy. tsort puts a module after its siblings.
published=$(go list -m | sed "s|^$project/||" | grep -vxE 'examples|internal'; echo warden/wardencaddy)
published=$(for m in $published; do echo "$m $m" && for s in $(siblings "$m"); do echo "$s $m"; done; done | tsort)

# Third-party modules come from the configured proxy, or from the module cache if they were downloaded before.
GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPROXY GOWORK=off GONOSUMDB=$project

git clone --quiet . "$dir/repository"
tag() ( # tag MODULE
  GIT_AUTHOR_NAME=$(git log -1 --format=%an) GIT_AUTHOR_EMAIL=$(git log -1 --format=%ae)
  GIT_AUTHOR_DATE=$(git log -1 --format=%cI)
  GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
  export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE
  # The go command fetches the tags from the clone, as later from the public host.
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.$dir/repository.insteadOf" GIT_CONFIG_VALUE_0="https://$project"
  export GONOPROXY=$project GOMODCACHE=$dir/cache/tags GOFLAGS=-modcacherw
  cd "$dir/repository/$1"
  for s in $(siblings .); do go mod download "$project/$s@$version"; done # notes its checksums in go.sum
  git diff --quiet || git commit --quiet --message "$1: checksums of its siblings at $version" -- go.sum
  git diff --exit-code # nothing else changed
  git tag --annotate --message "$1 $version" "$1/$version"
  cd "$dir" && go mod download "$project/$1@$version"
)
for m in $published; do tag "$m"; done
mkdir -p "$dir/proxy/$project"
cp -r "$dir/cache/tags/cache/download/$project/." "$dir/proxy/$project"
