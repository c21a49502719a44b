#!/usr/bin/env bash
# Builds attnd's image with docker or, where there is no Docker engine, with podman:
#
#   deploy/docker/build.sh [--check] [--tag=NAME] [--build_base=IMAGE] [--toolkit=DIR]
#                          [--cuda=AUTO|ON|OFF] [--ccache=DIR]
#
# --check       also runs it, as check.sh beside this file says. The last line has the
#               image's size and the verdict; the exit status is 0 if all is well.
# --build_base  the image that it is built in, debian:12 unless told otherwise. Docker
#               pulls it. Without Docker debian:12 is made by debootstrap, from
#               ATTND_DEBIAN_MIRROR if that is set; others are pulled.
# --toolkit     a CUDA toolkit of this machine to build with, which podman alone can lend to
#               a build; /usr/local/cuda if that is one. Empty: none. With Docker, use
#               --build_base=nvidia/cuda:13.0.1-devel-ubuntu24.04.
# --cuda        whether to build for GPUs: AUTO does if there is a toolkit
# --ccache      a cache of this machine's builds that this one shares, with podman alone;
#               else the builder keeps one of its own. What tests/run.sh has compiled with
#               the same ATTND_WERROR of the environment is not compiled again.
set -euo pipefail
usage() { sed -n '2,18s/^# \?//p' "$0" >&2; exit 2; }
check='' tag=attnd:latest base=debian:12 cuda=AUTO ccache='' lent=''
toolkit=/usr/local/cuda
[ -x $toolkit/bin/nvcc ] || toolkit=
for flag; do
  case $flag in
    --check) check=1 ;;
    --tag=*) tag=${flag#*=} ;;
    --build_base=*) base=${flag#*=} ;;
    --toolkit=*) toolkit=${flag#*=} lent=$flag ;;
    --cuda=*) cuda=${flag#*=} ;;
    --ccache=*) ccache=$(realpath "${flag#*=}") lent=$flag ;;
    *) usage ;;
  esac
done
[[ $tag == *:* ]] || tag+=:latest
judge=${tag%:*}-judge:${tag##*:}
cd "$(dirname "$0")/../.."
# shellcheck source=deploy/common.sh
. deploy/common.sh
step() { printf '\n=== [%4ds] %s\n' "$SECONDS" "$*"; }

step "container engine"
# shellcheck source=deploy/docker/engine.sh
. deploy/docker/engine.sh
"${engine[@]}" --version
flags=(--file=deploy/docker/Dockerfile --network=host)
if [ "${engine[0]}" = docker ] && [ -n "$lent" ]; then
  echo "build.sh: Docker cannot lend a build what $lent names" >&2
  exit 2
fi

# A Debian 12 with nothing but what every Debian has, as an image.
make_base() {
  local root mirror
  root=$(mktemp -d)
  # shellcheck disable=SC2064  # this root
  trap "rm -rf --one-file-system '$root'" RETURN
  bare_debian bookworm "$root" || return
  mirror=$(awk '$1 == "deb" {print $2; exit}' "$root/etc/apt/sources.list")
  cat >"$root/etc/apt/sources.list" <<END
deb $mirror bookworm main
deb $mirror bookworm-updates main
deb ${mirror%/debian}/debian-security bookworm-security main
END
  chroot "$root" apt-get clean
  tar -C "$root" --one-file-system -c . | "${engine[@]}" import - "docker.io/library/$base"
}

if [ "${engine[0]}" = podman ]; then
  flags+=(--format=docker --isolation=chroot --pull=missing)
  # apt reaches its servers as this machine's does.
  proxy=$(apt-config dump --format '%v' Acquire::http::Proxy)
  [ -z "$proxy" ] || export http_proxy=$proxy
  if [ "$base" = debian:12 ]; then
    flags+=(--pull=never)
    "${engine[@]}" image exists "docker.io/library/$base" || { step "$base, by debootstrap"; make_base; }
  fi
  [ -z "$ccache" ] || flags+=(--volume="$ccache:/ccache" --build-arg=CCACHE_DIR=/ccache)
  if [ -n "$toolkit" ] && [ "$cuda" != OFF ]; then
    echo "CUDA toolkit: $(realpath "$toolkit"), mounted into the build"
    flags+=(--volume="$(realpath "$toolkit"):/usr/local/cuda:ro")
  fi
fi

version=$(attnd_version)
revision=$(git describe --always --abbrev=40 --dirty 2>/dev/null || echo unknown)
flags+=(--build-arg=BUILD_BASE="$base" --build-arg=CUDA="$cuda"
        --build-arg=WERROR="${ATTND_WERROR:-OFF}"
        --build-arg=VERSION="$version" --build-arg=REVISION="$revision")

step "build $tag: attnd $version, $revision"
"${engine[@]}" build "${flags[@]}" --tag="$tag" .
if [ -z "$check" ]; then
  step "$tag is built, and has not been checked"
  exit
fi
step "build $judge, which checks it"
"${engine[@]}" build "${flags[@]}" --target=judge --tag="$judge" .
step "check"
deploy/docker/check.sh "$tag" "$judge"
