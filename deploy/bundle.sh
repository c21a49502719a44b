#!/usr/bin/env bash
# Copies a build's programs, and every shared library that they need, to a folder
# that can go to another machine:
#
#   deploy/bundle.sh [--libc] BUILD DEST
#
#   DEST/bin                   attnd, attnctl and attnload, stripped
#   DEST/lib                   their libraries, unchanged; glibc is left out, as the
#                              machine has one, unless --libc is given
#   DEST/share/doc/PACKAGE     the licence of each package that went in
#   DEST/share/doc/attnd       the licence of attnd, and packages.txt: each package
#                              that went in, with its version
#
# Programs find their libraries by where they lie themselves, so DEST may be moved.
# Runs on Debian and Ubuntu, whose package database says what a file belongs to.
set -euo pipefail
libc=
[ "${1:-}" = --libc ] && { libc=1; shift; }
[ $# -eq 2 ] || { sed -n '2,16s/^# \?//p' "$0" >&2; exit 2; }
build=$(realpath "$1")
dest=$(realpath -m "$2")
cd "$(dirname "$0")/.."
fail() { echo "bundle.sh: $*" >&2; exit 1; }

rm -rf "$dest/share/doc"
mkdir -p "$dest/bin" "$dest/lib" "$dest/share/doc/attnd"

programs=()
for built in server/attnd client/attnctl client/attnload/attnload; do
  [ -x "$build/$built" ] || fail "there is no $build/$built: build it first"
  program=$dest/bin/${built##*/}
  programs+=("$program")
  strip --strip-all -o "$program" "$build/$built"
  chmod 0755 "$program"
done

# The package that a file belongs to. The database has paths from before or after
# /lib became a link to /usr/lib.
owner() {
  local file=$1 path found
  for path in "$file" "/usr$file" "${file#/usr}"; do
    if found=$(dpkg-query -S "$path" 2>/dev/null); then
      echo "${found%%:*}"
      return
    fi
  done
  fail "no package has $file, so its licence is not known"
}

packages=()
carry() {
  local file=$1 name=$2 package
  package=$(owner "$file")
  # Out of glibc's package comes only what was asked for.
  [ "$package" = libc6 ] && [ -z "$libc" ] && return
  packages+=("$package")
  install -m 0644 "$(realpath "$file")" "$dest/lib/$name"
}

# ldd prints "NAME => FILE (ADDRESS)", and resolves what libraries need in turn.
needed=$(ldd "${programs[@]}")
! grep -q 'not found' <<<"$needed" || fail "this machine lacks a library: $(grep 'not found' <<<"$needed")"
while read -r name file; do
  carry "$file" "$name"
done < <(awk '$2 == "=>" {print $1, $3}' <<<"$needed" | sort -u)

if [ -n "$libc" ]; then
  loader=$(patchelf --print-interpreter "${programs[0]}")
  carry "$loader" "${loader##*/}"
  chmod 0755 "$dest/lib/${loader##*/}"
  # What the driver of a GPU links, although glibc 2.34 and later have it in libc.so.6.
  folder=$(dirname "$(awk '$1 == "libc.so.6" {print $3; exit}' <<<"$needed")")
  for name in libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1 libresolv.so.2; do
    carry "$folder/$name" "$name"
  done
fi

# The older of two kinds of run path (DT_RPATH) covers what libraries need in turn,
# which leaves them as the distribution signed them, and goes before LD_LIBRARY_PATH: a
# GPU node often has that set, to folders with another libstdc++ or OpenSSL.
for program in "${programs[@]}"; do
  patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$program"
done
strays=$(ldd "${programs[@]}" | awk '$2 == "=>" {print $3}' | sort -u | grep -v "^$dest/" || true)
for file in $strays; do
  package=$(owner "$file")
  if [ -n "$libc" ] || [ "$package" != libc6 ]; then
    fail "$file is still found outside of $dest"
  fi
done

# Headers and archives that were compiled in come from the -dev packages of
# packages.sh.
mapfile -t developed < <(deploy/packages.sh --print | grep -- '-dev$')
mapfile -t packages < <(printf '%s\n' "${packages[@]}" "${developed[@]}" | sort -u)
for package in "${packages[@]}"; do
  copyright=/usr/share/doc/$package/copyright
  [ -f "$copyright" ] || fail "there is no $copyright"
  install -D -m 0644 "$copyright" "$dest/share/doc/$package/copyright"
done
dpkg-query -W -f '${binary:Package} ${Version}\n' "${packages[@]}" |
  sed 's/:[a-z0-9]* / /' | sort -u >"$dest/share/doc/attnd/packages.txt"
install -m 0644 LICENSE "$dest/share/doc/attnd/LICENSE"
if grep '^CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt" | grep -qv NOTFOUND; then
  cat >"$dest/share/doc/attnd/NOTICE" <<'END'
attnd contains the CUDA runtime (libcudart_static), (c) NVIDIA Corporation, which NVIDIA
lets programs distribute under the CUDA Toolkit End User License Agreement:
https://docs.nvidia.com/cuda/eula/
END
fi

echo "$dest: ${#programs[@]} programs, $(find "$dest/lib" -type f | wc -l) libraries of $(
  wc -l <"$dest/share/doc/attnd/packages.txt") packages, $(du -sh --apparent-size "$dest" | cut -f1)"
