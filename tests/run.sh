#!/usr/bin/env bash
# Installs what the tests need, builds, and runs every test through ctest.
#
#   tests/run.sh                                release build, all tests
#   tests/run.sh --sanitize=address,undefined   what needs no GPU, under these sanitizers
#   tests/run.sh --sanitize=thread              of that, what has no gRPC in its process
#   tests/run.sh ... -- -R codec                further arguments are ctest's
#
# Builds in build/<preset>. ATTND_JOBS: how many things to do at once.
# ATTND_WERROR=ON: fail where a compiler warns.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=release
while [ $# -gt 0 ]; do
  case "$1" in
    --sanitize=address,undefined | --sanitize=address) preset=address ;;
    --sanitize=thread) preset=thread ;;
    --) shift; break ;;
    -h | --help) sed -n '2,10s/^# \?//p' "$0"; exit ;;
    *) echo "unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done
jobs=${ATTND_JOBS:-$(nproc)}
step() { printf '\n=== [%4ds] %s\n' "$SECONDS" "$*"; }

# Python brings the package ca-certificates, which would replace certificates
# that were put in its place by hand, such as a proxy's: pip goes on trusting
# those.
certificates=/etc/ssl/certs/ca-certificates.crt
if [ -s "$certificates" ] && ! dpkg -s ca-certificates >/dev/null 2>&1; then
  mkdir -p build
  cp "$certificates" build/ca-certificates.crt
fi
[ ! -s build/ca-certificates.crt ] || export PIP_CERT=$PWD/build/ca-certificates.crt

step "system packages"
deploy/packages.sh test

step "Python modules in build/venv"
tests/python/venv.sh

step "promtool and Prometheus"
PATH=$(tests/monitoring/prometheus.sh):$PATH

step "configure ($preset)"
cmake --preset "$preset" -DATTND_WERROR="${ATTND_WERROR:-OFF}" >build/configure.log || { cat build/configure.log; exit 1; }
tail -n 3 build/configure.log

targets=()
chosen=()
if [ "$preset" = thread ]; then
  targets=(--target no_rpc_tests)
  chosen=(-L no_rpc)
fi
step "build ($preset)"
NINJA_STATUS='[%f/%t %es] ' cmake --build "build/$preset" -j "$jobs" "${targets[@]}"

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-print_suppressions=0 suppressions=$PWD/tests/lsan.supp}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1 second_deadlock_stack=1 suppressions=$PWD/tests/tsan.supp}
# All of them are there: a test that misses one fails instead of skipping.
export ATTND_REQUIRE_TOOLS=1
step "test ($preset)"
ctest --preset "$preset" -j "$jobs" "${chosen[@]}" "$@"
