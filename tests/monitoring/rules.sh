#!/usr/bin/env bash
# Whether Prometheus takes its configuration and the alerts as they are shipped, and
# whether each alert fires, clears and leaves its neighbour alone (alerts_test.yml).
#
#   tests/monitoring/rules.sh [PROMTOOL]   prometheus.sh's unless told otherwise
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ $# -gt 0 ]; then
  promtool=$1  # deploy/check.sh has one of its own
elif tools=$(tests/monitoring/prometheus.sh); then
  promtool=$tools/promtool
else
  # tests/run.sh has it all.
  [ -z "${ATTND_REQUIRE_TOOLS:-}" ] || exit 1
  echo "SKIPPED: promtool is not here and cannot be had"
  exit
fi
wrong=0
# It checks the rules that the configuration names as well.
"$promtool" check config --lint=all --lint-fatal deploy/monitoring/prometheus/prometheus.yml || wrong=1
"$promtool" check rules --lint=all --lint-fatal deploy/monitoring/prometheus/alerts.yml || wrong=1
"$promtool" test rules tests/monitoring/alerts_test.yml || wrong=1
exit $wrong
