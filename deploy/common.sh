# What several scripts of this folder need, and source. Its functions want to be called in
# the root of the tree.
# shellcheck shell=bash

# The exposure that `systemd-analyze security` may find in attnd.service, in tenths of its
# points, of which there are ten. What computes on a GPU needs its devices and the network,
# which cost the rest.
# shellcheck disable=SC2034  # deploy/checks/systemd.sh and deploy/debian/check.sh use it
most_exposed=20

# The version of attnd that the tree is of.
attnd_version() { sed -n 's/^project(attnd VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt; }

# bare_debian SUITE FOLDER [FLAG_OF_DEBOOTSTRAP...]: a Debian with nothing but what every one
# has, from ATTND_DEBIAN_MIRROR if that is set. It takes root.
bare_debian() {
  local log
  log=$(mktemp)
  if debootstrap --variant=minbase "${@:3}" "$1" "$2" \
      "${ATTND_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$log" 2>&1; then
    rm "$log"
  else
    tail -n 20 "$log" >&2
    rm "$log"
    echo "debootstrap cannot make a $1" >&2
    return 1
  fi
}

# stand_in FILE COMMAND...: a script that runs the command with what the script is given.
# deploy/real_data.sh asks the programs of a build folder: one of these runs them elsewhere.
stand_in() {
  local file=$1
  shift
  mkdir -p "$(dirname "$file")"
  printf '#!/usr/bin/env bash\nexec %s "$@"\n' "${*@Q}" >"$file"
  chmod +x "$file"
}
