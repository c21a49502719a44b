#!/usr/bin/env bash
# Runs an image of attnd the way an operator should, and tries what its README promises:
# what is in it, as whom it runs, a root that nobody can write to, its health check, real
# attention that agrees with a float64 oracle, a call in flight when SIGTERM comes, where
# it finds a GPU's driver, its size, and how long it takes to start.
#
#   deploy/docker/check.sh IMAGE JUDGE
#
# JUDGE is the Dockerfile's stage of that name (build.sh --check makes both). The last
# line has the figures and the verdict; the exit status is 0 if all is well.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,10s/^# \?//p' "$0" >&2; exit 2; }
image=$1 judge=$2
most_bytes=60000000
most_seconds=2
cd "$(dirname "$0")/../.."
# shellcheck source=deploy/common.sh
. deploy/common.sh
# shellcheck source=deploy/docker/engine.sh
. deploy/docker/engine.sh
data=$PWD/tests/data/minilm
results=$(mktemp -d)
umask 000  # the image's user writes into folders that are made in there
chmod 0777 "$results"
server=attnd-check-$$
client=$server-client
watcher=$server-watcher
mounts=(--volume="$results:$results" --volume="$data:$data:ro")

remove() { "${engine[@]}" rm --force "$1" >/dev/null 2>&1 || true; }
cleanup() {
  remove "$watcher"
  remove "$client"
  remove "$server"
  rm -rf "$results"
}
trap cleanup EXIT

failures=0
# judged WHAT COMMAND...: good if the command succeeds.
judged() {
  local what=$1
  shift
  if "$@"; then echo "  good: $what"; else echo "  BAD:  $what"; failures=$((failures + 1)); fi
}
die() { echo "check.sh: $*" >&2; exit 1; }
state() { "${engine[@]}" container inspect --format "{{json .State.$2}}" "$1" | tr -d '"'; }
# run NAME FLAG_OF_RUN... IMAGE ARGUMENT...: in the background.
run() {
  remove "$1"
  "${engine[@]}" run --detach --no-healthcheck --name="$1" "${confined[@]}" "${mounts[@]}" "${@:2}" >/dev/null
}
once() { "${engine[@]}" run --rm --no-healthcheck "${confined[@]}" "$@"; }

# start_server FLAG...: attnd, and waits until it listens.
start_server() {
  rm -f "$results/port"
  run "$server" --network=none "$image" --port=7411 --admin_address=127.0.0.1:7412 \
    --port_file="$results/port" "$@"
  for _ in $(seq 600); do
    [ ! -s "$results/port" ] || return 0
    [ "$(state "$server" Running)" = true ] || break
    sleep 0.05
  done
  "${engine[@]}" logs "$server" >&2
  die "attnd did not start"
}

contents() {
  "${engine[@]}" image inspect "$image" >"$results/config.json"
  remove "$server"
  "${engine[@]}" create --name="$server" --no-healthcheck "$image" >/dev/null
  "${engine[@]}" export "$server" | tar --list --verbose --numeric-owner >"$results/files"
  judged "programs, licences, modes, user, entry point, labels, and no shell or toolkit" \
    deploy/docker/check_contents.py "$results/config.json" "$results/files"
}

# From the process's first moment, as the kernel has it, until attnd listens. Others may
# keep the machine busy during one start or another: the quickest counts.
start_times() {
  local began seconds
  quickest=1e9
  for _ in 1 2 3; do
    start_server
    began=$(awk -v now="$(date +%s.%N)" -v uptime="$(cut -d ' ' -f 1 /proc/uptime)" -v hertz="$(getconf CLK_TCK)" \
      '{sub(/.*\) /, ""); printf "%.3f", now - uptime + $20 / hertz}' "/proc/$(state "$server" Pid)/stat")
    seconds=$(awk -v began="$began" -v ready="$(stat --format=%.9Y "$results/port")" \
      'BEGIN {printf "%.2f", ready - began}')
    quickest=$(printf '%s\n' "$quickest" "$seconds" | sort -g | head -n 1)
  done
  judged "listens $quickest s after its start, the quickest of three; at most $most_seconds" \
    awk -v quickest="$quickest" -v most=$most_seconds 'BEGIN {exit !(quickest <= most)}'
}

# Of the server that runs.
confinement() {
  local status written
  "${engine[@]}" logs "$server" 2>&1 | sed 's/^/  | /'
  status=$(cat "/proc/$(state "$server" Pid)/status")
  has() { grep -qP "$1" <<<"$status"; }
  belongs() {
    awk '/^[UG]id:/ {for (i = 2; i <= NF; ++i) bad += $i != 65532}
         /^Groups:/ {for (i = 2; i <= NF; ++i) bad += $i != 65532}
         END {exit bad || NR == 0}' <<<"$status"
  }
  judged "user and group 65532, no other group" belongs
  judged "no capability, and none to be had" has '^CapBnd:\t0+$'
  judged "no new privileges" has '^NoNewPrivs:\t1$'
  judged "process 1 of its container" has '^NSpid:.*\t1$'
  written=$("${engine[@]}" exec --user=0:0 "$server" /usr/bin/attnctl forward --q="$data/layer0/q.npy" \
    --k="$data/layer0/k.npy" --v="$data/layer0/v.npy" --o=/o.npy 2>&1 || true)
  judged "nobody can write to its root, root included" grep -q 'Read-only file system' <<<"$written"
}

health() {
  local check
  mapfile -t check < <(python3 -c '
import json, sys
image = json.load(open(sys.argv[1]))[0]
print(*(image.get("Healthcheck") or image["Config"]["Healthcheck"])["Test"][1:], sep="\n")' "$results/config.json")
  judged "its health check, of a server that serves" "${engine[@]}" exec "$server" "${check[@]}"
  dead() {
    ! once --network=none --entrypoint="${check[0]}" "$image" "${check[@]:1}" >/dev/null 2>&1
  }
  judged "its health check fails where no server is" dead
}

real_data() {
  local build=$results/build
  local start=("${engine[@]}" run --rm --no-healthcheck "${confined[@]}" "${mounts[@]}" --network=none)
  remove "$server"
  stand_in "$build/server/attnd" "${start[@]}" --name="$server" "$image"
  stand_in "$build/client/attnctl" "${engine[@]}" exec --workdir="$PWD" "$server" /usr/bin/attnctl
  stand_in "$build/tests/oracle_check/oracle_check" "${start[@]}" --workdir="$PWD" \
    --entrypoint=/src/attnd/build/image/tests/oracle_check/oracle_check "$judge"
  judged "attention of a real model agrees, forward and backward" \
    deploy/real_data.sh "$build" "$results/real_data"
}

# Ends once attnd, in whose network it runs, says that it runs a request.
# shellcheck disable=SC2016  # the variables of the shell that runs it
watch='
  status() {
    exec 3<>/dev/tcp/127.0.0.1/7412 && printf "GET /status HTTP/1.1\r\nHost: attnd\r\nConnection: close\r\n\r\n" >&3 && cat <&3
  }
  for _ in $(seq 1200); do
    [[ $(status) != *"\"running_requests\": 1"* ]] || exit 0
    sleep 0.05
  done
  exit 1'
drain() {
  local stopped more ended answered
  deploy/docker/long_request.py write "$results"
  # One thread, so that the call takes seconds on any processor.
  start_server --device=cpu --lanes=1 --threads=1 --drain_time=10m
  run "$watcher" --network="container:$server" --entrypoint=/bin/bash "$judge" -c "$watch"
  run "$client" --network="container:$server" --entrypoint=/usr/bin/attnctl "$image" forward --timeout=10m \
    --q="$results/q.npy" --k="$results/k.npy" --v="$results/v.npy" --o="$results/o.npy"
  judged "a call is under way" [ "$("${engine[@]}" wait "$watcher")" -eq 0 ]
  "${engine[@]}" kill --signal=TERM "$server" >/dev/null
  stopped=$(date +%s.%N)
  answered=$("${engine[@]}" wait "$client")
  ended=$("${engine[@]}" wait "$server")
  "${engine[@]}" logs "$client" 2>&1 | sed 's/^/  | /'
  more=$(date --date="$(state "$client" FinishedAt)" +%s.%N |
    awk -v stopped="$stopped" '{printf "%.1f", $1 - stopped}')
  judged "SIGTERM while a call is in flight, for $more s more" awk -v more="$more" 'BEGIN {exit !(more > 0)}'
  judged "it was answered" [ "$answered" -eq 0 ]
  judged "and rightly" deploy/docker/long_request.py judge "$results"
  judged "attnd then ended with status 0" [ "$ended" -eq 0 ]
}

# The folders that NVIDIA's container toolkit and device plugins mount a driver in. The
# library that stands in for it has no function, so attnd says that there is no GPU.
driver() {
  local folder
  if ! grep -q 'usr/share/doc/attnd/NOTICE$' "$results/files"; then
    echo "  NOT CHECKED: where it finds a GPU's driver, as it was built without a CUDA toolkit"
    return
  fi
  remove "$client"
  "${engine[@]}" create --name="$client" "$judge" /bin/true >/dev/null
  "${engine[@]}" cp "$client:/libcuda.so.1" "$results/libcuda.so.1"
  finds() {
    once --network=none --env=LD_DEBUG=libs --volume="$results/libcuda.so.1:$1/libcuda.so.1:ro" \
      "$image" --device=cuda >"$results/loader" 2>&1 || true
    # /lib is a link to /usr/lib.
    grep -qE "calling init: ($1|${1#/usr})/libcuda\.so\.1$" "$results/loader"
  }
  for folder in "/usr/lib/$(uname -m)-linux-gnu" /usr/lib64 /usr/local/nvidia/lib64; do
    judged "finds a GPU's driver in $folder" finds "$folder"
  done
}

echo "--- what is in it";                        contents
echo "--- a confined start";                     start_times; confinement; health
echo "--- real attention";                       real_data
echo "--- SIGTERM";                              drain
echo "--- a GPU's driver";                       driver
echo "--- size"
bytes=$("${engine[@]}" save "$image" | gzip -6 | wc -c)
megabytes=$(awk -v bytes="$bytes" 'BEGIN {printf "%.1f", bytes / 1e6}')
judged "$bytes bytes compressed (docker save | gzip -6), at most $most_bytes" [ "$bytes" -le $most_bytes ]

verdict="all is well"
[ $failures -eq 0 ] || verdict="FAILED: $failures of these are bad"
echo
echo "$image: $megabytes MB compressed, listens after $quickest s; $verdict"
[ $failures -eq 0 ]
