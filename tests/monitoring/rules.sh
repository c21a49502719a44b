#!/usr/bin/env bash
# Whether Prometheus takes its configuration and the alerts as they are shipped, and
# whether each alert fires, clears and leaves its neighbour alone (alerts_test.yml).
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! tools=$(tests/monitoring/prometheus.sh); then
  # tests/run.sh has it all.
  [ -z "${ATTND_REQUIRE_TOOLS:-}" ] || exit 1
  echo "SKIPPED: promtool is not here and cannot be had"
  exit
fi
PATH=$tools:$PATH
# It checks the rules that the configuration names as well.
promtool check config deploy/monitoring/prometheus/prometheus.yml
promtool check rules --lint=all --lint-fatal deploy/monitoring/prometheus/alerts.yml
promtool test rules tests/monitoring/alerts_test.yml
