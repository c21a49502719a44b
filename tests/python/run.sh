#!/bin/sh
# run.sh PYTHON SCRIPT [ARGUMENT...]: runs a test of this folder, or says which
# modules its Python lacks and that it is skipped; or, where ATTND_REQUIRE_TOOLS
# is set (tests/run.sh), that it failed.
folder=$(dirname "$0")
python=$1
script=$2
shift 2
# Small matrices: threads of a BLAS would only take the server's cores.
export OPENBLAS_NUM_THREADS=1
if ! missing=$("$python" -c 'import grpc_health, grpc_reflection, grpc_status, grpc_tools, numpy' 2>&1); then
  if [ -n "${ATTND_REQUIRE_TOOLS:-}" ]; then
    echo "FAILED: $python lacks requirements.txt: $(echo "$missing" | tail -n 1)"
    exit 1
  fi
  echo "SKIPPED: $python lacks requirements.txt: $(echo "$missing" | tail -n 1)"
  exit 0
fi
exec "$python" "$folder/$script" "$@"
