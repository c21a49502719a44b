#!/usr/bin/env bash
# Builds attnd's Debian packages for the distribution that it runs on: attnd,
# attnd-client and libattnd-client-dev, into build/debian.
#
#   deploy/debian/build.sh [--build=DIR] [--out=DIR] [--suite=NAME] [--check] [-- FLAG_OF_CMAKE...]
#
# --build=DIR   packs that release build, which has all that `cmake --install` takes,
#               instead of building one with the flags of a Debian package
# --out=DIR     where the packages go, instead of build/debian
# --suite=NAME  builds for that suite (bookworm, trixie) in a fresh root of it
# --check       installs, runs, upgrades and removes them in a fresh root: check.sh
set -euo pipefail
usage() { sed -n '2,12s/^# \?//p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/../.."
source_root=$PWD
here=deploy/debian
out=build/debian built='' suite='' check=''
while [ $# -gt 0 ]; do
  case "$1" in
    --build=?*) built=$(realpath "${1#*=}") ;;
    --out=?*) out=${1#*=} ;;
    --suite=?*) suite=${1#*=} ;;
    --check) check=1 ;;
    --) shift; break ;;
    *) usage ;;
  esac
  shift
done
step() { printf '\n=== [%4ds] %s\n' "$SECONDS" "$*"; }
mkdir -p "$out"
out=$(realpath "$out")

step "system packages"
deploy/packages.sh package
# shellcheck source=deploy/common.sh
. deploy/common.sh
# shellcheck source=deploy/debian/root.sh
. "$here/root.sh"
# shellcheck source=/dev/null
. /etc/os-release
: "${suite:=$VERSION_CODENAME}"

if [ "$suite" != "$VERSION_CODENAME" ]; then
  [ -z "$built" ] || { echo "--build is a build for $VERSION_CODENAME, and not for $suite" >&2; exit 2; }
  step "build in a fresh root of $suite"
  build_in_root "$suite" "$out" "$@"
else
  if [ -n "$built" ]; then
    for setting in CMAKE_BUILD_TYPE:Release ATTND_SANITIZE:; do
      grep -q "^${setting%:*}:[A-Z]*=${setting#*:}$" "$built/CMakeCache.txt" ||
        { echo "$built is no release build" >&2; exit 2; }
    done
  fi
  # As Debian has it, the suffix sorts before the same version of a later release.
  case "$ID" in debian) suffix=deb$VERSION_ID ;; *) suffix=$ID$VERSION_ID ;; esac
  upstream=$(attnd_version)
  version=$upstream-1~$suffix
  # All times in the packages are this one, so that the same sources give the same bytes.
  : "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}"
  export SOURCE_DATE_EPOCH

  # pack OUT BUILD BUILT FLAG_OF_CMAKE...: BUILT is BUILD, or empty where it is to be built.
  pack() {
    local out=$1 stage=$1/stage
    rm -rf "$stage"
    mkdir -p "$stage"
    cp -r "$here" "$stage/debian"
    cp "$here/README.md" "$stage/debian/attnd.README.Debian"
    sed "s/@BUILD@/$(deploy/packages.sh --print | paste -sd,)/" "$here/control.in" >"$stage/debian/control"
    cat >"$stage/debian/changelog" <<END_OF_CHANGELOG
attnd ($version) $VERSION_CODENAME; urgency=medium

  * attnd $upstream. What is new is in /usr/share/doc/attnd/changelog.gz.

 -- attnd maintainers <maintainers@attnd.invalid>  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END_OF_CHANGELOG
    (
      cd "$stage"
      export ATTND_SOURCE=$source_root ATTND_BUILD=$2 ATTND_BUILT=$3 ATTND_CMAKE_FLAGS="${*:4}"
      dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes
    )
  }
  step "attnd $version"
  rm -f "$out"/*.deb
  pack "$out" "${built:-$out/build}" "$built" "$@"
  if [ -n "$check" ]; then
    step "packed again, it is the same"
    mkdir -p "$out/again"
    rm -f "$out"/again/*.deb
    pack "$out/again" "${built:-$out/build}" "${built:-$out/build}" >/dev/null
    for package in "$out"/again/*.deb; do cmp "$package" "$out/$(basename "$package")"; done
    sha256sum "$out"/again/*.deb
  fi
  step "lintian"
  lintian --fail-on error,warning "$out/attnd_${version}"_*.changes
fi

if [ -n "$check" ]; then
  "$here/check.sh" "$suite" "$out" "${built:-$out/build}"
fi

step "done"
(cd "$out" && du -h --apparent-size -- *~*.deb)
