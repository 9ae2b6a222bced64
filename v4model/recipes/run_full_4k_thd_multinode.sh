#!/usr/bin/env bash
# As run_full_4k_multinode.sh, with many samples packed into each window (THD). Settings and --help are the base's.
set -euo pipefail

recipes=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
exec "$recipes/run_full_4k_multinode.sh" --default name=4k-thd --default mode=best-fit "$@"
