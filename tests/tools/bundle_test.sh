#!/usr/bin/env bash
# tools/bundle-deps makes a bundle that can travel, replaces it, and refuses what it must.
#   bundle_test.sh BUNDLE_DEPS DIR; leaves the bundle in DIR
set -u
bundle_deps=$1 bundle=$2
failures=0
complain() { echo "$1"; failures=$((failures + 1)); }

rm -rf "$bundle" "$bundle-consumer"
"$bundle_deps" "$bundle" || complain "no bundle was made"
"$bundle_deps" "$bundle" >/dev/null || complain "an earlier bundle was not replaced"
[ -z "$(find "$bundle" -type l)" ] || complain "there are links"
[ "$(du -sm "$bundle" | cut -f1)" -le 30 ] || complain "it is over 30 MiB"
grep -q '^  libfmt-dev [0-9]' "$bundle/README" || complain "README lacks the version of libfmt-dev"
left=$(find "$(dirname "$bundle")" -maxdepth 1 -name 'bundle.??????')
[ -z "$left" ] || complain "a temporary folder is left: $left"

# refuses CODE WORD ARGUMENTS...
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
refuses 0 usage --help

# Without a package: a dpkg-query that knows none.
mkdir -p "$bundle-consumer"
printf '#!/bin/sh\nexit 1\n' >"$bundle-consumer/dpkg-query"
chmod +x "$bundle-consumer/dpkg-query"
PATH=$bundle-consumer:$PATH \
  refuses 2 "libfmt-dev is not installed; run tools/install-deps" "$bundle-again"
[ ! -e "$bundle-again" ] || complain "something was written without packages"
rm -r "$bundle-consumer"
exit $((failures > 0))
