#!/usr/bin/env bash
# Whether the tests depend on speed: runs them again and again on a machine that
# is kept busy, and says which failed how often.
#
#   tests/under_load.sh                all tests of build/release, 10 times
#   tests/under_load.sh 3              3 times
#   tests/under_load.sh 3 -- -L grpc   further arguments are ctest's
#
# Two processes keep two cores busy meanwhile (ATTND_LOAD: how many).
# ATTND_BUILD: another build's folder. ATTND_JOBS: how many tests at once.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=10
while [ $# -gt 0 ]; do
  case "$1" in
    --) shift; break ;;
    -h | --help) sed -n '2,10s/^# \?//p' "$0"; exit ;;
    [1-9]*) runs=$1 ;;
    *) echo "unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done
run=0
build=${ATTND_BUILD:-build/release}
jobs=${ATTND_JOBS:-$(nproc)}

scratch=$(mktemp -d)
busy=()
finish() {
  [ ${#busy[@]} -eq 0 ] || kill "${busy[@]}" 2>/dev/null || true
  rm -rf "$scratch"
}
trap finish EXIT
trap 'echo "ended by a signal in run $run"; exit 130' INT TERM HUP
for ((i = 0; i < ${ATTND_LOAD:-2}; ++i)); do
  (while :; do :; done) &
  busy+=($!)
done

# The tests that failed in the last run of ctest, a line each.
failed_tests() {
  sed -n '/^The following tests FAILED:/,$s/^[[:space:]]*[0-9]* - \(.*\) (.*)[^()]*$/\1/p' "$1"
}

failures=$scratch/failures
: >"$failures"
for ((run = 1; run <= runs; ++run)); do
  log=$scratch/log
  start=$SECONDS
  verdict=passed
  ctest --test-dir "$build" -j "$jobs" --output-on-failure --no-tests=error "$@" >"$log" 2>&1 ||
    verdict=FAILED
  printf 'run %d of %d: %s in %d s: %s\n' "$run" "$runs" "$verdict" $((SECONDS - start)) \
    "$(grep -E '% tests passed' "$log" || tail -n 1 "$log")"
  if [ "$verdict" = FAILED ]; then
    names=$(failed_tests "$log")
    echo "${names:-(ctest itself)}" | tee -a "$failures" | sed 's/^/  /'
    cp "$log" "$build/under_load.$run.log"
    echo "  see $build/under_load.$run.log"
  fi
done

if [ -s "$failures" ]; then
  echo "failed, with how often in $runs runs:"
  sort "$failures" | uniq -c | sort -rn
  exit 1
fi
echo "none failed in $runs runs"
