#!/usr/bin/env bash
# Trains on the GPUs of one host or several, started by torchrun. Run it on every host.
#
#   examples/torchrun.sh HOST HOSTS GPUS MAIN SCHEDULE --data FILE --steps N --save DIR ...
#
# HOST counts from 0 to HOSTS - 1, GPUS are those of each host, and MAIN is the name of host 0.
# All that follows goes to `fpdt-run train`.
#
# Neither torchrun nor NCCL asks who connects to its ports: use trusted networks only.
set -u
host=$1 hosts=$2 gpus=$3 main=$4
shift 4

# --no_python: the ranks are programs. --max_restarts 0: a rank alone cannot start again; start all
# of them with --resume.
exec torchrun --nnodes "$hosts" --node_rank "$host" --nproc_per_node "$gpus" \
  --master_addr "$main" --master_port 29500 --max_restarts 0 \
  --no_python "${FPDT_RUN:-fpdt-run}" train --backend cuda --communicator nccl "$@"
