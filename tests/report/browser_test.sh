#!/usr/bin/env bash
# Opens the HTML timeline in a real browser and acts as a reader would (browser_test.js).
# usage: browser_test.sh WRITE_PAGE BROWSER_TEST_JS; exit code 77: there is no browser.
set -euo pipefail

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
  echo "browser_test: no chromium; tools/install-deps --developer installs it" >&2
  exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$1" "$scratch/page.html"
{ echo '<script>'; cat "$2"; echo '</script>'; } >>"$scratch/page.html"

# Our own page needs no sandbox, and a container often cannot provide one.
HOME=$scratch timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu \
  --disable-dev-shm-usage --user-data-dir="$scratch/profile" --window-size=1400,1000 \
  --virtual-time-budget=20000 --dump-dom "file://$scratch/page.html" \
  >"$scratch/dom.html" 2>"$scratch/log"
result=$(sed -n '/^<pre id="result">/,/<\/pre>/p' "$scratch/dom.html")
printf '%s\n' "$result"
if grep -q 'FAILED' <<<"$result" || ! grep -q 'checks done' <<<"$result"; then
  grep -v dbus "$scratch/log" | tail -20
  exit 1
fi
