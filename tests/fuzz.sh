#!/usr/bin/env bash
# Builds libFuzzer's targets in build/fuzz and runs each on its corpus.
#
#   tests/fuzz.sh                        20,000 inputs each, the same every time
#   tests/fuzz.sh --seconds=600 [NAME]   whatever comes in ten minutes, of all or of one
#
# Inputs that find more are kept in build/fuzz/found/NAME; one that fails is
# printed and kept in build/fuzz. ATTND_JOBS: how many things to build at once.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=build/fuzz
how=(-runs=20000 -seed=1)
only=
for argument; do
  case "$argument" in
    --seconds=*) how=(-max_total_time="${argument#*=}") ;;
    -*) sed -n '2,8s/^# \?//p' "$0" >&2; exit 2 ;;
    *) only=$argument ;;
  esac
done

# The target, its corpus, and the longest input.
targets=(
  "codec_fuzz tests/proto/corpus 4096"
  "header_list_fuzz tests/server/fuzz/corpus/header_list 128"
  "inspector_fuzz tests/server/fuzz/corpus/inspector 160"
  "certificate_fuzz tests/server/fuzz/corpus/certificate 1024"
  "token_lines_fuzz tests/server/fuzz/corpus/token_lines 1024"
)

mkdir -p "$dir"
cmake -S . -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang \
  -DCMAKE_CXX_COMPILER=clang++ -DATTND_CUDA=OFF -DATTND_FUZZ=ON >"$dir/configure.log" 2>&1 ||
  { cat "$dir/configure.log" >&2; exit 1; }
names=("${targets[@]%% *}")
[ -z "$only" ] || names=("$only")
cmake --build "$dir" -j "${ATTND_JOBS:-$(nproc)}" --target "${names[@]}"

for target in "${targets[@]}"; do
  read -r name corpus longest <<<"$target"
  [ -z "$only" ] || [ "$only" = "$name" ] || continue
  found=$dir/found/$name
  mkdir -p "$found"
  # Where what is found before adds to the corpus, a run is not as the last one.
  [ "${how[0]}" != -runs=20000 ] || rm -rf "${found:?}"/*
  echo "=== $name"
  # An allocation's stack costs more than most inputs do.
  ASAN_OPTIONS=malloc_context_size=0 "$(find "$dir/tests" -name "$name" -type f)" \
    -max_len="$longest" -entropic=0 -artifact_prefix="$dir/" -verbosity=0 \
    -print_final_stats=1 "${how[@]}" "$found" "$corpus" 2>&1 | { grep -vE '^(###|"|INFO)' || true; }
done
