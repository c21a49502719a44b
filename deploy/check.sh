#!/usr/bin/env bash
# Checks everything that is deployed: the image's recipe, compose files, the Helm chart and
# what it renders, Prometheus' rules, the systemd unit, scripts, YAML and JSON.
#
#   deploy/check.sh                    all checks; one line each: OK, FAILED or SKIPPED
#   deploy/check.sh --only=NAME,...    these
#   deploy/check.sh --list             their names
#   deploy/check.sh --build=FOLDER     where attnd is built (build/release), for `config`
#   deploy/check.sh --allow-missing    a tool that cannot be installed here is no failure
#   deploy/check.sh --self-test        breaks a copy of each thing that is checked, and fails
#                                      unless its check notices (tests/deploy/check_test.py)
#
# It fails where a check fails, where what is to be checked is not there, and where a check
# is SKIPPED, unless --allow-missing says otherwise. Tools have fixed versions and are kept
# in build/tools/deploy; deploy/checks/tools.sh says where each comes from.
set -euo pipefail
cd "$(dirname "$0")/.."

only="" list="" allow_missing="" build=build/release
while [ $# -gt 0 ]; do
  case "$1" in
    --only=*) only=${1#*=} ;;
    --list) list=1 ;;
    --build=*) build=${1#*=} ;;
    --allow-missing) allow_missing=1 ;;
    --self-test) exec python3 -B tests/deploy/check_test.py ;;
    -h | --help) sed -n '2,16s/^# \?//p' "$0"; exit ;;
    *) echo "unknown argument: $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done
# shellcheck source=deploy/checks/tools.sh
. deploy/checks/tools.sh
# shellcheck source=deploy/checks/checks.sh
. deploy/checks/checks.sh

[ -z "$list" ] || { printf '%s\n' "${checks[@]}"; exit; }

chosen=("${checks[@]}")
if [ -n "$only" ]; then
  IFS=, read -ra chosen <<<"$only"
  for name in "${chosen[@]}"; do
    [[ " ${checks[*]} " == *" $name "* ]] || { echo "no such check: $name (see --list)" >&2; exit 2; }
  done
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0 skipped=0
for name in "${chosen[@]}"; do
  scratch=$folder/$name log=$folder/$name.log
  mkdir "$scratch"
  begin=$(date +%s%N)
  # Nobody asks this subshell for its status by `if` or ||: there `set -e` would be off.
  set +e
  (set -euo pipefail; "check_$name") >"$log" 2>&1
  status=$?
  set -e
  seconds=$(awk "BEGIN { printf \"%.1f\", ($(date +%s%N) - $begin) / 1e9 }")
  line=$(printf '%-11s %5s s  %s' "$name" "$seconds" "${about[$name]}")
  case $status in
    0) echo "OK       $line" ;;
    3)
      skipped=$((skipped + 1))
      echo "SKIPPED  $line: $(tail -n 1 "$log")"
      ;;
    *)
      failed=$((failed + 1))
      echo "FAILED   $line"
      sed -n '1,80s/^/    /p; 81s/.*/    .../p' "$log"
      ;;
  esac
done
echo "${#chosen[@]} checks in $SECONDS s: $((${#chosen[@]} - failed - skipped)) OK, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || exit 1
[ "$skipped" -eq 0 ] || [ -n "$allow_missing" ] || exit 1
