#!/usr/bin/env bash
# Compiles the kernels and their tests for aarch64 (NEON) on an x86-64 Debian 12
# and runs the CPU's under qemu, in build/aarch64.
#
#   tests/aarch64.sh            compile, then run the CPU backend's tests
#   tests/aarch64.sh -R math    arguments are ctest's, in place of those tests
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -h | --help) sed -n '2,6s/^# \?//p' "$0"; exit ;; esac
# One test is too slow emulated.
[ $# -gt 0 ] || set -- -R '^(Cpu|Math|Rows|Flash|Accuracy|Composition)' -E WavesBound -j "$(nproc)"

root=$PWD/build/aarch64-root
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
if ! command -v aarch64-linux-gnu-g++ >/dev/null || ! command -v qemu-aarch64-static >/dev/null; then
  "${sudo[@]}" apt-get -q update
  "${sudo[@]}" apt-get -q install -y --no-install-recommends g++-aarch64-linux-gnu qemu-user-static
fi

# Libraries for aarch64 beside the system, not in it.
if [ ! -e "$root/complete" ]; then
  if ! dpkg --print-foreign-architectures | grep -qx arm64; then
    "${sudo[@]}" dpkg --add-architecture arm64
    "${sudo[@]}" apt-get -q update
  fi
  mkdir -p "$root/packages"
  (cd "$root/packages" && apt-get -q download libhwy-dev:arm64 libhwy1:arm64 \
      libabsl-dev:arm64 libabsl20220623:arm64 libgtest-dev:arm64 libgmock-dev:arm64 googletest)
  for package in "$root"/packages/*.deb; do dpkg -x "$package" "$root"; done
  touch "$root/complete"
fi

cmake -S . -B build/aarch64 -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DATTND_AARCH64_ROOT="$root" \
    -DATTND_RPC=OFF -DATTND_CUDA=OFF
cmake --build build/aarch64
ctest --test-dir build/aarch64 --output-on-failure --no-tests=error "$@"
