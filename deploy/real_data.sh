#!/usr/bin/env bash
# Starts attnd from a build folder on a free loopback port, sends it the real
# attention of two layers of a transformer, forward and backward, and says how
# far the answers are from the model's own and from the float64 oracle. Stops
# the server. Fails when anything disagrees.
#
#   deploy/real_data.sh BUILD [RESULTS] [-- FLAG_OF_ATTND...]
set -euo pipefail
usage() { sed -n '2,7s/^# \?//p' "$0" >&2; exit 2; }
places=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do places+=("$1"); shift; done
[ $# -eq 0 ] || shift
case ${#places[@]} in 1 | 2) ;; *) usage ;; esac
build=$(realpath "${places[0]}")
results=$(realpath -m "${places[1]:-$build/real_data}")
# Short paths in what is printed.
cd "$(dirname "$0")/.."
build=$(realpath --relative-base=. "$build")
results=$(realpath -m --relative-base=. "$results")
data=tests/data/minilm
attnd=$build/server/attnd
attnctl=$build/client/attnctl
oracle_check=$build/tests/oracle_check/oracle_check
mkdir -p "$results"

server=
stop() {
  [ -n "$server" ] || return 0
  kill "$server" 2>/dev/null || true
  wait "$server" || { echo "attnd ended with $?; its log:"; cat "$results/attnd.log"; return 1; }
  server=
}
trap 'stop || true' EXIT

rm -f "$results/port"
"$attnd" --port=0 --port_file="$results/port" "$@" >"$results/attnd.log" 2>&1 &
server=$!
for _ in $(seq 300); do
  [ -s "$results/port" ] && break
  kill -0 "$server" 2>/dev/null || { server=; cat "$results/attnd.log" >&2; echo "attnd did not start" >&2; exit 1; }
  sleep 0.1
done
address=127.0.0.1:$(cat "$results/port")
sed 's/^/  | /' "$results/attnd.log"

failed=0
run() {
  echo "\$ $*"
  "$@" || { echo "FAILED: exit status $?"; failed=1; }
}
for layer in layer0 layer5; do
  in=$data/$layer
  out=$results/$layer
  mkdir -p "$out"
  rm -f "$out"/*.npy
  echo
  echo "--- $layer: all-MiniLM-L6-v2 on the opening of On the Origin of Species"
  run "$attnctl" forward --server="$address" \
    --q="$in/q.npy" --k="$in/k.npy" --v="$in/v.npy" --o="$out/o.npy" --lse="$out/lse.npy"
  run "$attnctl" backward --server="$address" \
    --q="$in/q.npy" --k="$in/k.npy" --v="$in/v.npy" --d_o="$in/d_o.npy" \
    --o="$out/o.npy" --lse="$out/lse.npy" \
    --dq="$out/dq.npy" --dk="$out/dk.npy" --dv="$out/dv.npy"
  echo "largest error, and RMS, next to a plain f32 computation's:"
  run "$oracle_check" "$in" "$out" --all
done

stop || failed=1
echo
if [ "$failed" -ne 0 ]; then
  echo "SOMETHING DISAGREES: see above"
  exit 1
fi
echo "Everything agrees: O, LSE and the gradients of both layers."
