#!/usr/bin/env bash
# Tests tools/install-deps on a machine that is made up: its dpkg-query knows the packages in the
# file `installed`, and its apt-get writes down what it is asked to install.
#   install_deps_test.sh INSTALL_DEPS
set -u
program=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failures=0

complain() { echo "install_deps_test: $1"; failures=$((failures + 1)); }

cat >"$place/dpkg-query" <<END
#!/bin/sh
for package; do :; done
grep -qx -- "\$package" "$place/installed" && echo 'install ok installed'
END
cat >"$place/apt-get" <<END
#!/bin/sh
[ "\$1" = install ] || exit 0
for word; do case \$word in install | -*) ;; *) echo "\$word" >>"$place/asked" ;; esac; done
[ ! -e "$place/refuses" ] || ! grep -qxf "$place/refuses" "$place/asked"
END
printf '#!/bin/sh\nexec "$@"\n' >"$place/sudo"
chmod +x "$place"/*
export PATH=$place:$PATH

# expect CODE ARGUMENT...: runs install-deps from what is installed; sets `asked` to what it asks
# for.
expect() {
  local code=$1
  shift
  : >"$place/asked"
  "$program" "$@" >"$place/said" 2>&1
  local found=$?
  [ $found -eq "$code" ] || complain "exit code $found, not $code, of: $* ($(cat "$place/said"))"
  asked=$(sort "$place/asked")
}

: >"$place/installed"
expect 0
user=$asked
for package in g++ cmake ninja-build libfmt-dev zlib1g-dev; do
  grep -qx -- "$package" <<<"$user" || complain "a user gets no $package"
done
for package in libgtest-dev chromium clang-format graphviz libbenchmark-dev libopenmpi-dev; do
  ! grep -qx "$package" <<<"$user" || complain "a user gets $package"
done
expect 0 --developer
developer=$asked
[ -z "$(comm -23 <(echo "$user") <(echo "$developer"))" ] || complain "a developer gets less"
grep -qx libgtest-dev <<<"$developer" || complain "a developer gets no libgtest-dev"

echo "$user" >"$place/installed"
expect 0
[ -z "$asked" ] || complain "installs again: $asked"
expect 0 --developer
[ "$asked" = "$(comm -13 <(echo "$user") <(echo "$developer"))" ] || complain "not the rest: $asked"

# What the build needs must be there; it works without what is useful.
echo chromium >"$place/refuses"
expect 0 --developer
grep -q 'could not install .*chromium.*; the build works without' "$place/said" ||
  complain "silent about chromium"
echo libgtest-dev >"$place/refuses"
expect 1 --developer
expect 2 --user
exit $((failures > 0))
