#!/usr/bin/env bash
# Builds a command for the platforms that it is published for. Usage: bash internal/tools/binaries.sh MODULE VERSION DIR
# DIR gets NAME_VERSION_OS_ARCH, the release of Go and the modules that each is made of (NAME….sbom), and SHA256SUMS. The same
# commit and release of Go give the same bytes, wherever and whenever they are built.
set -euo pipefail
cd "$(dirname "$0")/../.."
module=$1 version=$2
export GOWORK=off # go.work would put the modules beside it in the place of their releases
mkdir -p "$3" && dir=$(cd "$3" && pwd)
for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64; do
  GOOS=${platform%/*} GOARCH=${platform#*/}
  name=${module##*/}_${version}_${GOOS}_$GOARCH
  [ "$GOOS" != windows ] || name=$name.exe
  (cd "$module" && CGO_ENABLED=0 GOOS=$GOOS GOARCH=$GOARCH go build -trimpath -buildvcs=false -o "$dir/$name" .)
  go version -m "$dir/$name" | sed '1s/.*: /\tgo\t/' > "$dir/$name.sbom"
done
cd "$dir" && sha256sum -- "${module##*/}_$version"_* > SHA256SUMS
