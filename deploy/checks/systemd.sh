#!/usr/bin/env bash
# What systemd itself says of units that are not installed: are they valid, and how much of
# the system they can reach.
#
#   deploy/checks/systemd.sh ANALYZE SCRATCH UNIT...   ANALYZE is systemd-analyze
set -euo pipefail
analyze=$1 scratch=$2
shift 2
# shellcheck source=deploy/common.sh
. "$(dirname "$0")/../common.sh"

wrong=0
for unit; do
  # A root of its own, with the programs that the unit starts: they are not installed here.
  root=$scratch/$(basename "$unit").root
  mkdir -p "$root/etc/systemd/system"
  cp "$unit" "$root/etc/systemd/system/"
  sed -n 's/^Exec[A-Za-z]*=[-@:+!]*\([^ ]*\).*/\1/p' "$unit" | while read -r program; do
    install -D -m 755 /dev/null "$root$program"
  done
  # Units that it refers to, as a bare root has none: sockets, targets and the like.
  for folder in /usr/lib/systemd/system /lib/systemd/system; do
    [ ! -d "$folder" ] || { mkdir -p "$root/usr/lib/systemd" && cp -rn "$folder" "$root/usr/lib/systemd/"; break; }
  done
  said=$("$analyze" verify --man=no --root="$root" "$(basename "$unit")" 2>&1) || wrong=1
  said=$(grep -F "$(basename "$unit")" <<<"$said" || true)
  [ -z "$said" ] || { echo "$said"; wrong=1; }
  "$analyze" security --offline=true --no-pager --root="$root" \
    --threshold="$most_exposed" "$(basename "$unit")" 2>/dev/null | tail -n 1 || wrong=1
done
exit $wrong
