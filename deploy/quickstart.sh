#!/usr/bin/env bash
# From a fresh Debian 12 or Ubuntu 24.04 to attention that has been computed and
# checked: installs what a build needs, builds a release of all that `cmake
# --install` takes, and sends real data through it (see real_data.sh). Run it
# again at will: it does only what is left to do.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/quickstart
step() { printf '\n=== [%4ds] %s\n' "$SECONDS" "$*"; }

step "system packages"
deploy/packages.sh

step "configure a release in $build"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DATTND_TESTS=OFF

step "build attnd, attnctl, attnload, the client's package and the oracle"
cmake --build "$build" --target attnd attnctl attnload attnd_client_package \
  attnd_client_tls_guard_package oracle_check

step "attention of a real model, forward and backward"
deploy/real_data.sh "$build"

step "done"
cat <<END
To do the last part again:   deploy/real_data.sh $build
To start a server:           $build/server/attnd --port=7411
To ask it:                   $build/client/attnctl info --server=127.0.0.1:7411
To put load on it:           $build/client/attnload/attnload 127.0.0.1:7411
To install all of it:        cmake --install $build --prefix=/opt/attnd
END
