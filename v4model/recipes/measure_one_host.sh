#!/usr/bin/env bash
# Everything that is to be measured on the GPUs of one host, with one table and one picture at the end.
#
#   measure_one_host.sh 8 --data alpaca_en_demo.json
#   measure_one_host.sh 4 --rehearsal
#
# The first word is how many GPUs; all others are options of `python -m v4model.recipes.one_host` (--help lists them).
# The interpreter is that of .venv beside the package, else python3.
set -euo pipefail

if (($# < 1)) || [[ ! $1 =~ ^[1-9][0-9]?$ ]]; then
    echo "measure_one_host.sh: got '${1-}'; expected how many GPUs, such as 8; where: the first word" >&2
    exit 2
fi
root=$(dirname -- "$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")")
python=$root/.venv/bin/python
[[ -x $python ]] || python=python3
# This copy's v4model and harness, also where others are installed.
exec env "PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}" "$python" -m v4model.recipes.one_host --gpus "$@"
