#!/usr/bin/env bash
# tools/bundle-deps makes a bundle that can be moved, replaces it, and refuses wrong use.
#   bundle_test.sh BUNDLE_DEPS BUILD DIR; leaves the bundle in DIR
set -u
bundle_deps=$1 build=$2 bundle=$3
failures=0
complain() { echo "$1"; failures=$((failures + 1)); }

rm -rf "$bundle" "$bundle-consumer"
"$bundle_deps" --no-programs "$bundle" || complain "no bundle was made"
[ ! -e "$bundle/bin" ] || complain "there are programs"

# With the programs of this build, if it has them.
if [ -x "$build/tests/cuda/cuda_gpu_test" ]; then
  "$bundle_deps" --build "$build" "$bundle" || complain "an earlier bundle was not replaced"
  "$bundle/bin/fpdt-plan" --version >/dev/null || complain "a program does not run"
  for program in apps/fpdt-plan apps/fpdt-run tests/cuda/cuda_gpu_test; do
    [ "$(stat -c %s "$bundle/bin/${program##*/}")" -lt "$(stat -c %s "$build/$program")" ] ||
      complain "$program is not stripped"
  done
  [ -f "$bundle/lib/libfmt.so.9" ] || [ -f "$bundle/lib/libfmt.so.10" ] ||
    complain "a library that programs need is missing"
  ls "$bundle"/lib | grep -qE '^lib(c|stdc\+\+|cudnn|cublasLt|cuda)\.' &&
    complain "libraries of the other machine were taken along"
  architecture=$(sed -n 's/^FPDT_CUDA_ARCHITECTURES:[A-Z]*=\(.*\)-real$/\1/p' "$build/CMakeCache.txt")
  grep -qE "^[0-9a-f]{16} sm_$architecture " "$bundle/SOURCES" || complain "SOURCES does not say of which"
fi
[ -z "$(find "$bundle" -type l)" ] || complain "there are links"
[ "$(du -sm "$bundle" | cut -f1)" -le 60 ] || complain "it is over 60 MiB"
grep -q '^  libfmt-dev [0-9]' "$bundle/README" || complain "README lacks the version of libfmt-dev"
left=$(find "$(dirname "$bundle")" -maxdepth 1 -name 'bundle.??????')
[ -z "$left" ] || complain "a temporary folder is left: $left"

# refuses CODE WORD ARGUMENTS...: expects this exit code and this word in the message.
refuses() {
  local code=$1 word=$2 said
  shift 2
  said=$("$bundle_deps" "$@" 2>&1)
  [ $? -eq "$code" ] || complain "another exit code than $code: $*"
  [[ $said == *$word* ]] || complain "says nothing of '$word': $said"
}
mkdir -p "$bundle-consumer"
touch "$bundle-consumer/mine"
refuses 2 "not empty" "$bundle-consumer"
[ -f "$bundle-consumer/mine" ] || complain "a folder that is not a bundle was emptied"
rm -r "$bundle-consumer"
refuses 2 usage
refuses 2 usage --unknown
refuses 2 usage one two
refuses 2 usage --architecture
refuses 2 "has no apps/fpdt-plan" --build "$bundle-consumer" "$bundle-again"
refuses 0 usage --help

# A package is missing: this dpkg-query knows none.
mkdir -p "$bundle-consumer"
printf '#!/bin/sh\nexit 1\n' >"$bundle-consumer/dpkg-query"
chmod +x "$bundle-consumer/dpkg-query"
PATH=$bundle-consumer:$PATH \
  refuses 2 "libfmt-dev is not installed; run tools/install-deps --developer" \
    --no-programs "$bundle-again"
[ ! -e "$bundle-again" ] || complain "something was written without packages"
rm -r "$bundle-consumer"
exit $((failures > 0))
