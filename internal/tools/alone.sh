#!/usr/bin/env bash
# Runs a command in the folder of each module, alone: GOWORK=off, and siblings that have no tag yet from a module proxy, which
# has those of the last commit under the next version. Usage: bash internal/tools/alone.sh COMMAND
# The command finds $MODULE, $PROJECT, $VERSION, and $SIBLINGS, which is empty if the module requires no such sibling. A module
# that does runs in a clone, where its go.sum has their checksums, and with a module cache of its own, because the next version
# is another one with each commit.
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
modules=$(git ls-files '*go.mod')
# shellcheck source=internal/tools/tags.sh
. internal/tools/tags.sh
[ -z "$(git status --porcelain)" ] || echo "note: of siblings, changes that are not committed are not seen"

alone() { # alone COMMAND MODULE
  echo "== $2"
  export MODULE=$2 SIBLINGS=
  ! grep -qxF "$MODULE" <<< "$published" || SIBLINGS=$(siblings "$MODULE")
  if [ -z "$SIBLINGS" ]; then
    cd "$MODULE"
  else
    cd "$dir/repository/$MODULE"
    GOFLAGS="$(go env GOFLAGS) -trimpath -modcacherw" GOPROXY=file://$dir/proxy,$GOPROXY GOMODCACHE=$dir/cache/alone
    export GOFLAGS GOPROXY GOMODCACHE
  fi
  sh -euc "$1"
}
export -f alone siblings
export PROJECT=$project VERSION=$version dir project published version
# shellcheck disable=SC2086 # a line each
printf '%s\n' ${modules//\/go.mod/} | each alone "$1"
