#!/usr/bin/env bash
# Packs a build's programs and their libraries into a tarball, for nodes that run no
# containers. It needs glibc 2.36 or later there, and nothing else of the system.
#
#   deploy/tarball.sh [--check] [BUILD [FOLDER]]
#
# BUILD is build/quickstart unless told otherwise, and must be of Debian 12, or of a
# system with as old a glibc. The tarball goes to FOLDER, or to BUILD. --check also
# unpacks it in bare roots of Debian 12 and Debian 13, which debootstrap makes (from
# ATTND_DEBIAN_MIRROR if that is set), and has it compute real attention there, as a user
# without rights; for this one must be root. The last line has the size and the verdict.
set -euo pipefail
glibc=2.36
usage() { sed -n '2,12s/^# \?//p' "$0" >&2; exit 2; }

# tarball.sh --in ROOT RESULTS PROGRAMS, from below: what is mounted here is so in a
# namespace of its own, and gone when this ends.
if [ "${1:-}" = --in ]; then
  root=$2 results=$3 programs=$4
  cd "$(dirname "$0")/.."
  umask 000
  chmod 0777 "$results"
  mount -t proc proc "$root/proc"
  mount --bind "$results" "$root$results"
  mount --bind -o ro tests/data "$root/check/tests/data"
  # The loader lists what it would load: what is carried, and parts of glibc.
  for program in attnd attnctl attnload; do
    loaded=$(chroot "$root" /usr/bin/env LD_TRACE_LOADED_OBJECTS=1 "/opt/attnd/bin/$program")
    stray=$(grep -vE '=> /opt/attnd/bin/\.\./lib/|linux-vdso|(^\s*|/)(libc|libm|libmvec|libresolv|ld-linux[-a-z0-9_]*)\.so\.[0-9]+ ' <<<"$loaded" || true)
    if [ -n "$stray" ]; then
      echo "$program would load what is neither carried nor glibc's: $stray" >&2
      exit 1
    fi
  done
  exec deploy/real_data.sh "$programs" "$results"
fi

check=
[ "${1:-}" = --check ] && { check=1; shift; }
[ $# -le 2 ] || usage
[[ "${1:-}" != -* ]] || usage
here=$(realpath "$(dirname "$0")/..")
build=$(realpath "${1:-$here/build/quickstart}")
folder=$(realpath "${2:-$build}")
cd "$here"
# shellcheck source=deploy/common.sh
. deploy/common.sh
deploy/packages.sh bundle
version=$(attnd_version)
name=attnd-$version-linux-$(uname -m)
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
fail() { echo "tarball.sh: $*" >&2; exit 1; }

deploy/bundle.sh "$build" "$work/$name"

# Each file says which versions of symbols it needs of which library. Of what is not
# carried that must be glibc's, and not too new.
needs=$(find "$work/$name/bin" "$work/$name/lib" -type f -exec objdump -p {} + |
  awk '/file format/ {file = $1; sub(":", "", file)}
       /required from/ {library = $3; sub(":", "", library)}
       /^    0x/ && library {print file, library, $4}
       /^$/ {library = ""}')
[ -n "$needs" ] || fail "no file says what it needs"
while read -r file library symbols; do
  [ ! -e "$work/$name/lib/$library" ] || continue
  case $library in
    libc.so.6 | libm.so.6 | libmvec.so.1 | libresolv.so.2 | ld-linux-*) ;;
    *) fail "${file##*/} needs $library, which is neither carried nor glibc's" ;;
  esac
  case $symbols in
    GLIBC_ABI_DT_RELR) ;;  # since 2.36
    GLIBC_[0-9]*) printf '%s\n' "${symbols#GLIBC_}" $glibc | sort -CV ||
      fail "${file##*/} needs $symbols of $library: build it on Debian 12" ;;
    *) fail "${file##*/} needs $symbols of $library, which may be gone in another glibc" ;;
  esac
done <<<"$needs"

epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
tarball=$folder/$name.tar.gz
tar -C "$work" --create --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w --mtime="@$epoch" "$name" |
  gzip -9n >"$tarball"
size="$(awk -v bytes="$(stat --format=%s "$tarball")" 'BEGIN {printf "%.1f MB", bytes / 1e6}')"
if [ -z "$check" ]; then
  echo "$tarball: $size; not checked"
  exit
fi

check_in() {
  local release=$1 root=$work/$1 results=$work/results-$1 programs=$work/programs-$1 program
  echo
  echo "--- $release"
  bare_debian "$release" "$root"
  chroot "$root" ldd --version | sed -n 1p
  mkdir "$root/opt/attnd"
  tar -C "$root/opt/attnd" --strip-components=1 -xzf "$tarball"
  for program in server/attnd client/attnctl; do
    stand_in "$programs/$program" \
      chroot --userspec=65532:65532 "$root" /usr/bin/env -C /check "/opt/attnd/bin/${program##*/}"
  done
  stand_in "$programs/tests/oracle_check/oracle_check" "$build/tests/oracle_check/oracle_check"
  mkdir -p "$results" "$root$results" "$root/check/tests/data"
  unshare --mount --propagation=private "$here/deploy/tarball.sh" --in "$root" "$results" "$programs"
}
for release in bookworm trixie; do check_in "$release"; done
echo
echo "$tarball: $size; runs on bare Debian 12 and 13"
