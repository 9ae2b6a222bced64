#!/usr/bin/env bash
# As run_full_4k_thd_multinode.sh, in windows of 131,072 tokens, each cut over the 8 GPUs of a node.
set -euo pipefail

recipes=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
exec "$recipes/run_full_4k_thd_multinode.sh" --default name=128k-thd --default window=131072 --default cp=8 "$@"
