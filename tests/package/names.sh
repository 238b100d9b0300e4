#!/usr/bin/env bash
# Checks that an installation works wherever it is: moves its programs and files to another folder,
# asks there for a model, a cluster and a strategy by name, and looks for the path of the build.
#   names.sh PREFIX MOVED BUILD_DIR BINDIR
set -euo pipefail
prefix=$1 moved=$2 build=$3 bin=$2/$4
rm -rf "$moved"
cp -r "$prefix" "$moved"
cd "$moved"
"$bin/fpdt-plan" lower --model llama-tiny --cluster cpu-local --strategy quickstart --seq-len 2K \
  --out-dir plan
test -s plan/schedule.json
for program in fpdt-plan fpdt-run; do
  test -s "share/man/man1/$program.1"
  test -s "share/bash-completion/completions/$program"
  if grep -qF "$build" "$bin/$program"; then
    echo "$program holds the path of its build" >&2
    exit 1
  fi
done
