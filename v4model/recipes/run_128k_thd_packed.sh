#!/usr/bin/env bash
# As run_full_128k_thd_multinode.sh, on one node: three of Flash's layers at full width, one of each attention kind
# (dense, CSA, HCA), and its MTP block. The first has the hash router, as in Flash; the others have learned ones.
set -euo pipefail

recipes=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
exec "$recipes/run_full_128k_thd_multinode.sh" --default name=128k-thd-packed --default nnodes=1 --default pp=1 \
    --default "set=num_hidden_layers=3 compress_ratios=0:4:128:0 num_hash_layers=1" "$@"
