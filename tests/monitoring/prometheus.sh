#!/usr/bin/env bash
# Prints the folder that has prometheus and promtool: where they are installed, else
# build/tools, where this puts them. They are taken out of Debian's or Ubuntu's
# package, as installing that would start a Prometheus server.
#
#   PATH=$(tests/monitoring/prometheus.sh):$PATH
set -euo pipefail
cd "$(dirname "$0")/../.."

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
  dirname "$(command -v prometheus)"
  exit
fi
tools=$PWD/build/tools
if [ ! -x "$tools/usr/bin/prometheus" ] || [ ! -x "$tools/usr/bin/promtool" ]; then
  # Two tests may ask at once, so each has a folder of its own until it is whole.
  mkdir -p "$tools"
  new=$(mktemp -d "$tools/prometheus.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  chmod 755 "$new"  # apt drops its privileges to download
  (cd "$new" && apt-get -q -o Dpkg::Use-Pty=0 download prometheus && dpkg-deb -x prometheus_*.deb .) >&2
  mkdir -p "$tools/usr/bin"
  mv -f "$new/usr/bin/prometheus" "$new/usr/bin/promtool" "$tools/usr/bin/"
fi
echo "$tools/usr/bin"
