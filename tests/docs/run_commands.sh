#!/usr/bin/env bash
# Runs the commands of documents as a reader would, in a copy of the files that they name.
#   run_commands.sh [--update] SOURCE_DIR PROGRAMS_DIR DOCUMENT...
# Blocks marked sh are set-up (those that call ./tools or build are left out). In blocks marked
# console every line after "$ " is a command, and the lines below it are its output. A command must
# fail if its shown output has a line "fpdt-plan: ...", "fpdt-run: ..." "NO PLAN FOUND: ..." or "DOES NOT FIT: ...";
# every other command must succeed. The output of fpdt-plan is the same on every machine, so it must
# be exactly what is shown, except for the seconds of a search. A training that shows "loss A -> B"
# must end within 0.01 of B: threads do not change it, and another instruction set rounds a little
# differently (0.0005 after 40 steps without AVX). Files that commands write under docs/images must
# equal those that are there.
# The reference of commands is made from the help of both programs, and must equal it.
# With --update, documents and pictures become what fpdt-plan prints and draws now. Where all but the
# seconds of a search is as shown, they stay.
set -u
update=no
if [ "$1" = --update ]; then
  update=yes
  shift
fi
source_dir=$(realpath "$1") programs=$(realpath "$2")
shift 2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for folder in models configs examples; do ln -s "$source_dir/$folder" "$place/$folder"; done
cp -r "$source_dir/docs" "$place/docs"
mkdir -p "$place/build/quickstart"
cd "$place" || exit 1
export PATH="$programs:$PATH"
failures=0

complain() { printf '%s: %s\n' "$document" "$1"; failures=$((failures + 1)); }

# final_loss OUTPUT: prints the final loss in a training's summary; nothing without one.
final_loss() { sed -nE 's/.*loss [0-9.]+ -> ([0-9.]+)$/\1/p' <<<"$1"; }

# near A B: succeeds if both are numbers and close.
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && (a - b) ^ 2 <= 0.01 ^ 2) }'; }

# timeless OUTPUT: prints it without the seconds of a search.
timeless() { sed -E 's/^(search .* simulated), .*/\1/' <<<"$1"; }

# check COMMAND SHOWN: runs a command and compares its output. Sets `answer` to what the document
# should show.
check() {
  local command=$1 shown=$2 found code
  answer=$shown
  found=$(bash -c "$command" 2>&1)
  code=$?
  if grep -qE '^(fpdt-(plan|run)|DOES NOT FIT|NO PLAN FOUND): ' <<<"$shown"; then
    [ $code -ne 0 ] || complain "should fail: $command"
  else
    [ $code -eq 0 ] || complain "exit code $code: $command
$found"
  fi
  case $command in
    fpdt-plan*)
      [ "$(timeless "$found")" = "$(timeless "$shown")" ] && return
      answer=$found
      [ $update = yes ] || complain "prints something else now: $command
$(diff <(echo "$shown") <(echo "$found"))" ;;
    fpdt-run\ train*)
      local promised reached
      promised=$(final_loss "$shown") reached=$(final_loss "$found")
      [ -z "$promised" ] || near "$promised" "$reached" ||
        complain "ends with loss '$reached', not $promised: $command" ;;
  esac
}

# flush: checks the command that was read, and writes its output to the new document.
flush() {
  [ -n "$command" ] || return
  check "$command" "$shown"
  [ -z "$answer" ] || printf '%s\n' "$answer" >&3
  command="" shown=""
}

# run DOCUMENT: one pass over its lines; writes the corrected document to descriptor 3.
run() {
  local block="" command="" shown="" text="" open=no
  while IFS= read -r line; do
    case $block:$line in
      ':```sh') block=sh text="" ;;
      ':```console') block=console command="" shown="" ;;
      ':```'*) block=other ;;
      'sh:```')
        block=""
        case $text in *./tools/* | *cmake* | *'apps:$PATH'*) mkdir -p build/tour ;; *)
          bash -ec "$text" >/dev/null || complain "set-up fails: $text" ;;
        esac ;;
      'console:```')
        block=""
        flush ;;
      'other:```') block="" ;;
      sh:*) text+=$line$'\n' ;;
      'console:$ '*)
        flush
        command=${line#\$ } open=yes
        commands_read=$((commands_read + 1)) ;;
      console:*)
        if [ $open = yes ] && [[ $command == *\\ ]]; then
          command=${command%\\}${line#"${line%%[![:space:]]*}"}
        elif [ -n "$command" ]; then
          open=no
          shown+=${shown:+$'\n'}$line
          continue
        fi ;;
    esac
    printf '%s\n' "$line" >&3
  done <"$1"
}

# help_of WORDS...: prints the help of a program or a verb as a block, without the exit codes.
help_of() {
  printf '```text\n$ %s --help\n' "$*"
  "$@" --help | sed -e '/^Exit codes:/,$d' | cat -s | sed -e '${/^$/d}'
  printf '```\n'
}

# commands: prints the reference of commands to descriptor 3.
commands() {
  local program verb
  {
    cat <<'END'
# Commands

What `--help` prints, for both programs and each verb; the documents test compares it. Sizes are
written as `80GiB`, token counts as `2M` (2^21) or `2000000`. [Planning](../planning.md) shows
fpdt-plan at work, and the [tour](../tour.md) both programs. The [README](../../README.md#commands)
lists the exit codes.
END
    for program in fpdt-plan fpdt-run; do
      printf '\n## %s\n\n' $program
      help_of $program
      for verb in $($program --help | sed -nE '/^Subcommands:/,/^$/s/^  ([a-z-]+) .*/\1/p'); do
        printf '\n### %s %s\n\n' $program "$verb"
        help_of $program "$verb"
      done
    done
  } >&3
}

for document in "$@"; do
  if [ "$document" = docs/reference/commands.md ]; then
    commands 3>"$place/document"
    [ $update = yes ] || diff "$source_dir/$document" "$place/document" ||
      complain "differs from the help of the programs"
  else
    commands_read=0
    run "$source_dir/$document" 3>"$place/document" || complain "cannot be read"
    [ $commands_read -gt 0 ] || complain "has no command"
  fi
  if [ $update = yes ]; then cat "$place/document" >"$source_dir/$document"; fi
done
for picture in docs/images/*; do
  cmp -s "$picture" "$source_dir/$picture" && continue
  if [ $update = yes ]; then cp "$picture" "$source_dir/$picture"; else complain "draws another $picture"; fi
done
exit $((failures > 0))
