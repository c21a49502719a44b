#!/bin/sh
# run.sh PYTHON SCRIPT [ARGUMENT...]: runs a script of this folder by PYTHON, or by
# the system's where that lacks modules. Where both do it says which, and that the
# script is skipped; or, where ATTND_REQUIRE_TOOLS is set (tests/run.sh), that it
# failed.
folder=$(dirname "$0")
script=$2
for python in "$1" /usr/bin/python3; do
  if missing=$("$python" -c 'import numpy, matplotlib.figure' 2>&1); then
    shift 2
    # Small matrices: threads of a BLAS would only take others' cores.
    OPENBLAS_NUM_THREADS=1 exec "$python" -B "$folder/$script" "$@"
  fi
done
why="$1 and /usr/bin/python3 lack what deploy/packages.sh test installs: $(echo "$missing" | tail -n 1)"
if [ -n "${ATTND_REQUIRE_TOOLS:-}" ]; then
  echo "FAILED: $why"
  exit 1
fi
echo "SKIPPED: $why"
exit 77
