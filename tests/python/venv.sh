#!/usr/bin/env bash
# Makes build/venv: a Python with the modules and tools of requirements.txt. Does
# nothing if they are there already.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=build/venv
requirements=tests/python/requirements.txt
if cmp -s "$requirements" "$venv/installed.txt"; then
  echo "they are there"
  exit
fi
python3 -m venv "$venv"
"$venv/bin/pip" install -q -r "$requirements"
cp "$requirements" "$venv/installed.txt"
