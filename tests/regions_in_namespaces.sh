#!/usr/bin/env bash
# Whether regions work between containers that share the sockets' folder and
# nothing else: attnd and attnload each in process, IPC, mount and network
# namespaces of their own, with an empty /dev/shm.
#
#   tests/regions_in_namespaces.sh                of build/release, on the processor
#   tests/regions_in_namespaces.sh --device=cuda --transport=device_region
#   tests/regions_in_namespaces.sh --device=cuda  host memory beside a GPU
#
# --build=FOLDER: another build. Where no namespace can be made it skips and says
# so.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/release
device=cpu
transport=region
for flag in "$@"; do
  case "$flag" in
    --build=*) build=${flag#*=} ;;
    --device=*) device=${flag#*=} ;;
    --transport=*) transport=${flag#*=} ;;
    -h | --help) sed -n '2,11s/^# \?//p' "$0"; exit ;;
    *) echo "unknown argument: $flag (see --help)" >&2; exit 2 ;;
  esac
done
attnd=$(realpath "$build/server/attnd")
attnload=$(realpath "$build/client/attnload/attnload")

# As root of the machine there is no need to be another root.
apart=(unshare --pid --fork --kill-child --mount-proc --ipc --net --mount)
[ "$(id -u)" = 0 ] || apart+=(--user --map-root-user)

# What both see is at /mnt. Nothing else that is written can be seen by the other.
shared=$(mktemp -d)
# shellcheck disable=SC2016  # it is another shell that expands them
inside='set -e
  mount --bind "$1" /mnt
  mount -t tmpfs -o size=4k none /dev/shm
  for kind in pid ipc mnt net; do readlink /proc/self/ns/$kind; done >"/mnt/$2.namespaces"

  shift 2
  exec "$@"'

if ! why=$("${apart[@]}" sh -c "$inside" sh "$shared" probe true 2>&1); then
  rm -rf "$shared"
  echo "SKIPPED: no namespaces of its own here: $(echo "$why" | tail -n 1)"
  exit 0
fi

server=
finish() {
  if [ -n "$server" ]; then
    # unshare heeds nothing less, and takes its child along.
    kill -KILL "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$shared"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

"${apart[@]}" sh -c "$inside" sh "$shared" server \
  "$attnd" --device="$device" --port=-1 --unix_socket=/mnt/grpc --port_file=/mnt/port \
  --region_socket=/mnt/regions --region_memory=256MiB --region_slab=32MiB \
  >"$shared/server.log" 2>&1 &
server=$!
# The file appears once it serves, and there is nothing to wait on for that.
until [ -e "$shared/port" ]; do
  if ! kill -0 "$server" 2>/dev/null; then
    echo "FAILED: attnd does not start:"
    cat "$shared/server.log"
    exit 1
  fi
  sleep 0.05
done

# Every answer is checked. Were a region of no use there, its calls would fail.
status=0
"${apart[@]}" sh -c "$inside" sh "$shared" client \
  "$attnload" unix:/mnt/grpc --transport="$transport" --region_socket=/mnt/regions \
  --shape=forward:f32:s300:h4/2:d64:causal --shape=backward:f32:s200:h2:d64 \
  --shape=forward:bf16:s1000:h4:d128 --concurrency=2 --requests=30 --warmup=0 --check=1 \
  >"$shared/client.log" 2>&1 || status=$?
cat "$shared/client.log"
if [ "$status" != 0 ]; then
  echo "FAILED: attnload ended with $status; attnd says:"
  cat "$shared/server.log"
  exit 1
fi
# Apart they were.
for kind in pid ipc mnt net; do
  if [ "$(grep "^$kind:" "$shared/server.namespaces")" = "$(grep "^$kind:" "$shared/client.namespaces")" ]; then
    echo "FAILED: both were in one $kind namespace"
    exit 1
  fi
done
echo "ok: by $transport between namespaces of their own"
