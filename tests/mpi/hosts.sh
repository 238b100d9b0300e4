#!/usr/bin/env bash
# Two hosts train as one process does, started by examples/two-hosts.sh. The hosts are namespaces
# of this machine, with a cable between them: names, networks, processes and memory of their own.
# They vanish with the script. Exits with 77, and says why, where namespaces are not permitted.
#   hosts.sh SOURCE_DIR FPDT_PLAN FPDT_RUN
set -u
if [ "${1-}" != inside ]; then
  namespaces=(unshare --user --map-root-user --net --mount --uts --ipc --pid --fork --kill-child
    --mount-proc)
  if ! why=$("${namespaces[@]}" ip link add cable type veth peer name end 2>&1); then
    echo "skipped: this user may not create hosts: $why"
    exit 77
  fi
  place=$(mktemp -d)
  trap 'rm -r "$place"' EXIT
  "${namespaces[@]}" "$0" inside "$place" "$@"
  exit
fi
place=$2 source_dir=$3 plan=$4
export FPDT_RUN=$5
cd "$place" || exit 1

# Host a: this shell. Root of the namespace is who called the script.
hostname a
printf '127.0.0.1 localhost\n10.0.0.1 a\n10.0.0.2 b\n' >hosts
mount --bind hosts /etc/hosts
mount -t tmpfs a /dev/shm
ip link set lo up
ip link add cable type veth peer name end
ip address add 10.0.0.1/24 dev cable
ip link set cable up
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# Host b: whatever `on_b` runs. It gets the other end of the cable as soon as it exists.
mkfifo is_up
unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc \
  sh -c 'echo >is_up; exec sleep infinity' &
read -r <is_up
b=$(pgrep -x --parent $! sleep)
on_b() { nsenter --target "$b" --net --mount --uts --ipc --pid "$@"; }
ip link set end netns "$b"
on_b sh -c 'hostname b; mount -t tmpfs b /dev/shm; ip link set lo up
  ip address add 10.0.0.2/24 dev end; ip link set end up'

# In place of ssh: HOST COMMAND...
cat >agent <<END
#!/bin/sh
shift
exec nsenter --target $b --net --mount --uts --ipc --pid sh -c "\$*"
END
chmod +x agent
export OMPI_MCA_plm_rsh_agent=$place/agent

failures=0
complain() { echo "$1"; failures=$((failures + 1)); }

# train NAME FLAGS...: on both hosts; leaves NAME, the log of steps, and NAME.said.
train() {
  local name=$1
  shift
  timeout -s KILL 200 "$source_dir/examples/two-hosts.sh" a:2,b:2 plan/schedule.json \
    --data "$source_dir/docs/schedule-format.md" --threads 1 --log "$name" "$@" >"$name.said" 2>&1
}
# expect CODE NAME FLAGS...: trains, and expects this exit code.
expect() {
  local code=$1 found=0
  shift
  train "$@" || found=$?
  [ $found -eq "$code" ] || complain "$1: exit code $found, expected $code: $(cat "$1.said")"
}
# signal_b SIGNAL NAME: sends it to a rank of host b when the log has a step.
signal_b() {
  until [ -s "$2" ]; do sleep 0.1; done
  on_b kill "-$1" "$(on_b pgrep --newest -x fpdt-run)"
}
results() { grep -oE '"(loss|grad_norm)":[^,]*' "$1"; }
bytes_sent() { awk '$1 == "cable:" { print $10 }' /proc/net/dev; }

sed 's/^nodes: .*/nodes: 2/; s/^devices_per_node: .*/devices_per_node: 2/' \
  "$source_dir/configs/clusters/cpu-local.yaml" >cluster.yaml
"$plan" lower --model "$source_dir/models/llama-tiny.yaml" --cluster cluster.yaml --seq-len 1K \
  --strategy "$source_dir/configs/strategies/quickstart.yaml" --device-budget 64MiB \
  --out-dir plan >plan.said 2>&1 || complain "no schedule: $(cat plan.said)"
"$FPDT_RUN" train plan/schedule.json --data "$source_dir/docs/schedule-format.md" --threads 1 \
  --log threads --steps 2 >threads.said 2>&1 || complain "$(cat threads.said)"

sent=$(bytes_sent)
expect 0 processes --steps 2 --json
sent=$(($(bytes_sent) - sent))
[ "$(results threads)" = "$(results processes)" ] ||
  complain "other results than threads: $(cat threads processes)"
# Formula, schedule and communicator agree on the bytes of a step. Half of those between hosts leave
# this one, beside headers and a few small messages.
bytes='":\{"node":[0-9]+,"network":[0-9]+\}'
formula=$(grep -oE "predicted$bytes" processes.said)
counted=$(grep -oE "measured$bytes" processes.said)
[ "${formula#*:}" = "${counted#*:}" ] || complain "predicted $formula, counted $counted"
network=$(sed -E 's/.*"network":([0-9]+).*/\1/' <<<"$counted")
echo "cable: $sent bytes in 2 steps, of which $network are the collectives'"
{ [ "$sent" -ge "$network" ] && [ "$sent" -le $((network * 5 / 4)) ]; } ||
  complain "the cable carried $sent bytes, not about $network"

# A bench knows its hosts, and measures what is between them.
timeout -s KILL 200 mpirun --host a:2,b:2 --bind-to none "$FPDT_RUN" bench --quick --storage f32 \
  --threads 1 --communicator mpi --out both.yaml >both.said 2>&1 || complain "$(cat both.said)"
for text in 'nodes: 2' 'devices_per_node: 2' '  link: ' '  network: '; do
  grep -q "^$text" both.yaml || complain "no \"$text\" in the cluster file: $(cat both.yaml)"
done
grep -qE 'all_to_all +256 KiB between nodes' both.said || complain "not measured: $(cat both.said)"

signal_b USR2 finished &
expect 0 finished --steps 1000 --save checkpoint
steps=$(wc -l <finished)
[ "$steps" -lt 1000 ] || complain "SIGUSR2 on host b does not end the job"
"$FPDT_RUN" train plan/schedule.json --data "$source_dir/docs/schedule-format.md" --threads 1 \
  --resume checkpoint --log resumed --steps $((steps + 1)) >resumed.said 2>&1 ||
  complain "threads do not resume: $(cat resumed.said)"
[ "$(wc -l <resumed)" -eq 1 ] || complain "another step was saved than $steps: $(cat resumed)"

signal_b KILL killed &
expect 137 killed --steps 1000

left=$(find /dev/shm -mindepth 1; on_b find /dev/shm -mindepth 1)
[ -z "$left" ] || complain "files are left: $left"
exit $((failures > 0))
