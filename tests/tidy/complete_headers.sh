#!/usr/bin/env bash
# Every header of lib and runtime is complete: it compiles by itself. Headers of other projects are
# compiled once, for all of them.
#   complete_headers.sh SOURCE_DIR BUILD_DIR COMPILER
set -eu
build=$2 compiler=$3
place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
cd "$1"

# Those of kernels are for nvcc.
mapfile -t headers < <(grep -L '#include "simt.h"' -r lib/fpdt runtime/fpdt --include='*.h' |
  xargs grep -L '#include "fpdt/cuda/device.h"' | sort)
mapfile -t folders < <(grep -oE -- '-(I|isystem )[^ ]+' "$build/compile_commands.json" | sort -u |
  sed 's/^-isystem /-I/')
flags=(-std=c++20 -w "${folders[@]}")
grep -hE '^#include <' "${headers[@]}" | grep -vE 'cu|nccl|mpi' | sort -u >"$place/others.h"
"$compiler" "${flags[@]}" -x c++-header "$place/others.h" -o "$place/others.h.gch"
printf '%s\n' "${headers[@]}" | xargs -P 2 -n 8 \
  "$compiler" "${flags[@]}" -include "$place/others.h" -fsyntax-only -x c++
echo "${#headers[@]} headers are complete"
