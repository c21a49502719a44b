#!/usr/bin/env bash
# Does with attnd's packages what an operator would, in a fresh root of a
# distribution that systemd boots, without a network: installs them, asks the
# service for attention of a real model, breaks and stops it, upgrades, removes and
# purges. Says what failed and fails; ends with the score of the unit's sandbox.
#
#   deploy/debian/check.sh SUITE DIR_OF_PACKAGES BUILD
#
# BUILD has tests/oracle_check/oracle_check, which judges the answers. It takes root.
set -euo pipefail
[ $# -eq 3 ] || { sed -n '2,9s/^# \?//p' "$0" >&2; exit 2; }
suite=$1 packages=$(realpath "$2") build=$(realpath "$3")
cd "$(dirname "$0")/../.."
# shellcheck source=deploy/common.sh
. deploy/common.sh
# shellcheck source=deploy/debian/root.sh
. deploy/debian/root.sh
[ "$(id -u)" -eq 0 ] || { echo "a root of $suite takes root" >&2; exit 2; }
step() { printf '\n=== [%4ds] %s\n' "$SECONDS" "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

root=$packages/check.$suite
nspawn='' leader='' server=''
halt() {
  [ -n "$nspawn" ] || return 0
  kill "$nspawn" 2>/dev/null || true
  wait "$nspawn" || true
  nspawn='' leader=''
}
cleanup() {
  local status=$?
  if [ "$status" -ne 0 ] && [ -n "$leader" ]; then
    in_root systemctl status --no-pager --full attnd || true
    in_root journalctl --no-pager --lines=40 --unit=attnd || true
  fi
  halt
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  remove_root "$root"
}
trap cleanup EXIT

# The systemd of the root, as process 1 of namespaces of its own.
boot() {
  umount "$root/proc"
  systemd-nspawn --quiet --directory="$root" --boot --private-network --register=no --keep-unit \
    --link-journal=no --settings=no </dev/null >"$packages/boot.log" 2>&1 &
  nspawn=$!
  local state=''
  for _ in $(seq 600); do
    kill -0 "$nspawn" 2>/dev/null || { nspawn=''; cat "$packages/boot.log" >&2; fail "$suite does not boot"; }
    leader=$(pgrep --parent "$nspawn" --exact systemd || true)
    state=$([ -z "$leader" ] || in_root systemctl is-system-running 2>/dev/null || true)
    case "$state" in running) return ;; degraded) break ;; esac
    sleep 0.5
  done
  in_root systemctl --failed --no-pager >&2 || true
  fail "$suite is ${state:-not up} after its start"
}
in_root() {
  nsenter --target "$leader" --all -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
    DEBIAN_FRONTEND=noninteractive "$@"
}
property() { in_root systemctl show --value --property="$1" attnd; }
expect() {  # WHAT IS WANTED
  [ "$2" = "$3" ] || fail "$1 is \"$2\", and not \"$3\""
  echo "$1: $2"
}
await() {  # WHAT WANTED COMMAND...: until the command says so
  local what=$1 wanted=$2 is=''
  shift 2
  for _ in $(seq 300); do
    is=$("$@" 2>/dev/null || true)
    [ "$is" != "$wanted" ] || { echo "$what: $is"; return; }
    sleep 0.2
  done
  fail "$what is \"$is\", and not \"$wanted\""
}
# Every path of the root but what any use of a system leaves behind.
paths() {
  (cd "$root" && find . -xdev -printf '%P\n') | LC_ALL=C sort |
    grep -vE '^(proc|sys|dev|run|tmp|var/tmp|var/log|var/cache|var/lib/dpkg|var/lib/apt|packages|data)/' |
    grep -vE '^var/lib/systemd/(random-seed|timers|coredump|catalog|pstore)|^etc/[a-z]+-$'
}
in_files() {  # NAMES...: paths of the packages of that name, as the root sees them
  local name
  for name in "$@"; do echo "/packages/$(basename "$packages/$name"_*~*_*.deb)"; done
}

step "a fresh root of $suite"
fresh_root "$suite" "$root"
mkdir "$root/packages" "$root/data"
cp "$packages"/*~*.deb "$root/packages/"
cp -r tests/data/minilm/. "$root/data/"
cp "$build/tests/oracle_check/oracle_check" "$root/data/"
in_chroot "$root" apt-get -q update

step "install and purge without services; what they depend on stays"
mapfile -t programs < <(in_files attnd attnd-client)
in_chroot "$root" apt-get -q -y --no-install-recommends install "${programs[@]}"
in_chroot "$root" attnd --version
in_chroot "$root" apt-get -q -y purge attnd attnd-client

step "boot, and install"
boot
paths >"$packages/paths.before"
in_root dpkg --install "${programs[@]}"
in_root systemd-analyze verify --man=no /usr/lib/systemd/system/attnd.service
await ActiveState active property ActiveState
expect Type "$(property Type)" notify
expect NotifyAccess "$(property NotifyAccess)" main
expect "user of the server" "$(in_root stat --format=%U "/proc/$(property MainPID)")" attnd
expect capabilities "$(in_root sed -n 's/^CapEff:\t*//p' "/proc/$(property MainPID)/status")" 0000000000000000
in_root journalctl --no-pager --output=cat --unit=attnd | sed 's/^/  | /'
in_root attnctl health --server=127.0.0.1:7411
in_root attnctl health --server=127.0.0.1:7412

step "attention of a real model, forward and backward"
ask() {  # LAYER
  local in=/data/$1 to=/data/out/$1
  in_root mkdir -p "$to"
  in_root attnctl forward --server=127.0.0.1:7411 --q="$in/q.npy" --k="$in/k.npy" --v="$in/v.npy" \
    --o="$to/o.npy" --lse="$to/lse.npy"
  in_root attnctl backward --server=127.0.0.1:7411 --q="$in/q.npy" --k="$in/k.npy" --v="$in/v.npy" \
    --d_o="$in/d_o.npy" --o="$to/o.npy" --lse="$to/lse.npy" \
    --dq="$to/dq.npy" --dk="$to/dk.npy" --dv="$to/dv.npy"
  in_root /data/oracle_check "$in" "$to" --all
}
ask layer0
ask layer5

step "killed, it is started again; a flag that is wrong ends it for good"
before=$(property MainPID)
in_root systemctl kill --signal=KILL --kill-who=main attnd
await NRestarts 1 property NRestarts
await ActiveState active property ActiveState
[ "$(property MainPID)" != "$before" ] || fail "it is the same process"
in_root attnctl health --server=127.0.0.1:7411
echo 'prot = 1' >>"$root/etc/attnd.conf"
! in_root systemctl restart attnd || fail "it started with a flag that there is not"
expect ActiveState "$(property ActiveState)" failed
expect ExecMainStatus "$(property ExecMainStatus)" 2
in_root journalctl --no-pager --output=cat --unit=attnd | grep -F '"prot" is no flag' ||
  fail "the journal does not say why"
sed -i '$d' "$root/etc/attnd.conf"

step "without a GPU, the narrower sandbox of README.md"
mkdir "$root/etc/systemd/system/attnd.service.d"
grep -xE '\[Service\]|[A-Za-z]+=yes' deploy/debian/README.md >"$root/etc/systemd/system/attnd.service.d/override.conf"
in_root systemctl daemon-reload
in_root systemctl restart attnd
expect MemoryDenyWriteExecute "$(property MemoryDenyWriteExecute)" yes
expect PrivateDevices "$(property PrivateDevices)" yes
ask layer0
rm -r "$root/etc/systemd/system/attnd.service.d"
in_root systemctl daemon-reload

step "SIGTERM drains"
in_root systemctl restart attnd
in_root systemctl stop attnd
expect ActiveState "$(property ActiveState)" inactive
expect Result "$(property Result)" success
expect ExecMainStatus "$(property ExecMainStatus)" 0
in_root journalctl --no-pager --output=cat --unit=attnd | grep -F 'draining for up to' | tail -n 1
in_root systemctl start attnd

step "an upgrade to a version with another /etc/attnd.conf leaves the edited one"
# Edited by the operator, and effective.
echo 'max_queue_requests = 77' >>"$root/etc/attnd.conf"
in_root systemctl restart attnd
dpkg-deb --raw-extract "$root${programs[0]}" "$root/data/next"
sed -i 's/^\(Version: .*\)-1~/\1-2~/' "$root/data/next/DEBIAN/control"
echo '# The next version has one more line.' >>"$root/data/next/etc/attnd.conf"
dpkg-deb --root-owner-group -Zgzip -z1 --build "$root/data/next" "$root/packages/next.deb" >/dev/null
before=$(property MainPID)
in_root dpkg --install --force-confold /packages/next.deb
await ActiveState active property ActiveState
[ "$(property MainPID)" != "$before" ] || fail "the old process still serves"
in_root dpkg-query --show attnd
grep -qx 'max_queue_requests = 77' "$root/etc/attnd.conf" || fail "the edit is lost"
[ -s "$root/etc/attnd.conf.dpkg-dist" ] || fail "the new file is nowhere"
in_root attnd --config=/etc/attnd.conf --print_config | grep -x 'max_queue_requests = 77'
ask layer0

step "remove leaves the configuration, purge leaves nothing"
in_root dpkg --remove attnd attnd-client
! in_root sh -c 'grep -x attnd /proc/[0-9]*/comm' || fail "it still runs"
[ -s "$root/etc/attnd.conf" ] || fail "the configuration is gone"
in_root dpkg --purge attnd attnd-client
paths >"$packages/paths.after"
diff "$packages/paths.before" "$packages/paths.after" || fail "that is left"
in_root getent passwd attnd || fail "the user is gone, and what it owns may become another's"

step "the sandbox, by systemd $(in_root systemctl --version | head -n 1)"
in_root dpkg --install "${programs[@]}" >/dev/null
in_root systemd-analyze security --offline=true --threshold="$most_exposed" --no-pager attnd.service
halt

step "a program in C++ with libattnd-client-dev, against attnd started by hand as its user"
mount -t proc proc "$root/proc"
mapfile -t dev < <(in_files libattnd-client-dev)
in_chroot "$root" apt-get -q -y --no-install-recommends install "${dev[@]}" g++ cmake ninja-build
cp -r tests/client/outside "$root/data/outside"
in_chroot "$root" cmake -S /data/outside -B /data/outside/build -G Ninja -DCMAKE_BUILD_TYPE=Release
in_chroot "$root" cmake --build /data/outside/build
mkdir -m 0777 "$root/data/run"
env -i PATH=/usr/sbin:/usr/bin chroot "$root" \
  setpriv --reuid=attnd --regid=attnd --clear-groups --no-new-privs -- attnd --config=/etc/attnd.conf --port=0 --admin_address= --port_file=/data/run/port \
  >"$packages/by_hand.log" 2>&1 &
server=$!
for _ in $(seq 300); do
  [ ! -s "$root/data/run/port" ] || break
  kill -0 "$server" 2>/dev/null || { cat "$packages/by_hand.log" >&2; fail "attnd did not start"; }
  sleep 0.1
done
answered=0
in_chroot "$root" /data/outside/build/outside "127.0.0.1:$(cat "$root/data/run/port")" || answered=$?
kill "$server"
wait "$server" || fail "attnd ended with $?"
server=''
[ "$answered" -eq 0 ] || fail "the program was not answered"

step "$suite: the packages install, serve, upgrade and go"
