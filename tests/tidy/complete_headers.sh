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

# A header may follow those that it includes anyway, and is compiled as if it were alone. So each
# source is a chain of headers, each of which includes the one before, at once or by others.
awk -v place="$place" -v root="$PWD" '
  function add(from, file,   parts, count, i, folder, to) {
    count = split(included[file], parts)
    folder = file
    sub("[^/]*$", "", folder)
    for (i = 1; i <= count; ++i) {
      to = folder parts[i]
      if ("lib/" parts[i] in known) to = "lib/" parts[i]
      if ("runtime/" parts[i] in known) to = "runtime/" parts[i]
      if (!(to in known) || (from, to) in includes) continue
      includes[from, to]
      ++size[from]
      add(from, to)
    }
  }
  # The header with the most includes that is not yet in a source; one of those of `from`, if given.
  function largest(from,   file, best) {
    for (file in left) {
      if (from != "" && !((from, file) in includes)) continue
      if (best == "" || size[file] > size[best]) best = file
    }
    return best
  }
  FNR == 1 { known[FILENAME] = left[FILENAME] }
  /^#include "/ { included[FILENAME] = included[FILENAME] " " substr($2, 2, length($2) - 2) }
  END {
    for (file in known) add(file, file)
    while ((file = largest("")) != "") {
      chain = ""
      for (; file != ""; file = largest(file)) {
        chain = "#include \"" root "/" file "\"\n" chain
        delete left[file]
      }
      printf "%s", chain >(place "/" ++chains ".cpp")
      close(place "/" chains ".cpp")
    }
  }' "${headers[@]}"
find "$place" -name '*.cpp' | sort | xargs -P 2 -n 8 \
  "$compiler" "${flags[@]}" -include "$place/others.h" -fsyntax-only
echo "${#headers[@]} headers are complete"
