#!/usr/bin/env bash
# Runs the commands of documents as a reader would, in a copy of what they name.
#   run_commands.sh SOURCE_DIR PROGRAMS_DIR DOCUMENT...
# Blocks marked sh are set-up (those that call ./tools or build are left out). In blocks marked console every
# line after "$ " is a command, what follows is its output. A command whose shown output has a line
# "fpdt-plan: ..." or "fpdt-run: ..." must fail, every other must succeed; what fpdt-plan prints must be
# exactly what is shown, since it is the same on every machine; and a training that shows "loss A -> B" must
# end within 0.3 of B, since training amplifies the rounding of another machine.
set -u
source_dir=$1 programs=$2
shift 2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for folder in docs models configs; do ln -s "$source_dir/$folder" "$place/$folder"; done
mkdir -p "$place/build/quickstart"
cd "$place" || exit 1
export PATH="$programs:$PATH"
failures=0

complain() { printf '%s: %s\n' "$document" "$1"; failures=$((failures + 1)); }

# final_loss OUTPUT: of a training's summary, nothing without one.
final_loss() { sed -nE 's/.*loss [0-9.]+ -> ([0-9.]+)$/\1/p' <<<"$1"; }

# near A B: both are numbers, and close.
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && (a - b) ^ 2 <= 0.3 ^ 2) }'; }

# check COMMAND SHOWN: runs a command and compares.
check() {
  local command=$1 shown=$2 found code
  found=$(bash -c "$command" 2>&1)
  code=$?
  if grep -qE '^fpdt-(plan|run): ' <<<"$shown"; then
    [ $code -ne 0 ] || complain "should fail: $command"
  else
    [ $code -eq 0 ] || complain "exit code $code: $command
$found"
  fi
  case $command in
    fpdt-plan*) [ "$found" = "$shown" ] || complain "prints something else now: $command
$(diff <(echo "$shown") <(echo "$found"))" ;;
    fpdt-run\ train*)
      local promised reached
      promised=$(final_loss "$shown") reached=$(final_loss "$found")
      [ -z "$promised" ] || near "$promised" "$reached" ||
        complain "ends with loss '$reached', not $promised: $command" ;;
  esac
}

# run DOCUMENT: one pass over its lines.
run() {
  local block="" command="" shown="" text=""
  while IFS= read -r line; do
    case $block:$line in
      ':```sh') block=sh text="" ;;
      ':```console') block=console command="" shown="" ;;
      ':```'*) block=other ;;
      'sh:```')
        block=""
        case $text in *./tools/* | *cmake* | *'apps:$PATH'*) mkdir -p build/tour ;; *)
          bash -c "$text" >/dev/null || complain "set-up fails: $text" ;;
        esac ;;
      'console:```')
        block=""
        [ -z "$command" ] || check "$command" "$shown" ;;
      'other:```') block="" ;;
      sh:*) text+=$line$'\n' ;;
      'console:$ '*)
        [ -z "$command" ] || check "$command" "$shown"
        command=${line#\$ } shown="" ;;
      console:*)
        if [ -z "$command" ]; then continue; fi
        if [[ $command == *\\ && -z $shown ]]; then
          command=${command%\\}${line#"${line%%[![:space:]]*}"}
        else
          shown+=${shown:+$'\n'}$line
        fi ;;
    esac
  done <"$1"
}

for document in "$@"; do run "$source_dir/$document"; done
exit $((failures > 0))
