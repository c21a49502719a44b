#!/bin/sh
# Runs a compiler, and fails where ptxas says that it has spilled registers or
# put a wait behind each wgmma: both leave a kernel right and slow.
#   strict_ptxas.sh COMPILER ARGUMENT...
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
"$@" 2>"$log"
status=$?
cat "$log" >&2
if grep -qE 'Registers are spilled|wgmma.mma_async instructions are serialized' "$log"; then
  echo 'strict_ptxas: a kernel spills, or its wgmma are serialised' >&2
  exit 1
fi
exit $status
