#!/usr/bin/env bash
# V4-Flash on 3 nodes of 8 GPUs, windows of 4,096 tokens, one sample a row (BSHD).
#
# Also the base of every other recipe: they hand it other defaults and nothing else, and differences.txt says which.
# A setting is what the table below says, then what recipes on the way here say (--default KEY=VALUE, the last one
# counts), then --smoke, then V4_KEY of the environment, then --key VALUE. No other variable is asked for, so that all
# of it works under `env -i`.
set -euo pipefail
set -f # no setting is a file pattern

# use: `launch` is this script's; `train` is an option of `v4model train` of the same name; `wish` is one that is left
# out, with a line that says so, where `v4model train` does not offer it. kind: choices, or a name that check_kinds
# knows. A dash is an empty default.
settings='
name              launch text                       4k-bshd  of the run: its rendezvous, and its folder under reports/
nnodes            launch count                      3        nodes
node_rank         launch number                     0        which node this is, from 0
gpus_per_node     launch count                      8        processes a node, one a GPU
master_addr       launch text                       -        host of node 0; several nodes need it, or rdzv_endpoint
master_port       launch count                      29500    its port
rdzv_endpoint     launch text                       -        HOST:PORT of a c10d rendezvous; nodes get numbers there
nccl_interface    launch text                       -        network interface of NCCL and gloo, such as eth0
python            launch text                       -        interpreter; else .venv beside the package, else python3
packs_per_replica launch count                      8        packs a step that each data-parallel replica runs
data              launch text                       -        Alpaca .json, chat .jsonl, datasets folder; else built-in text
pp                train  count                      3        pipeline stages
cp                train  count                      1        context-parallel ranks
ep                train  count                      8        ranks that the experts are spread over
engine            train  torch|megatron             megatron what sums gradients, updates and saves
offload           wish   share                      1.0      share of the optimizer that lives on the host, 0 to 1
recompute         wish   on|off                     on       compute activations again in the backward pass
preset            train  text                       flash    tiny, three_kinds, flash or pro
config            train  text                       -        a released config.json instead of a preset
set               train  words                      -        FIELD=VALUE of the configuration, blanks between several
window            train  count                      4096     tokens of a pack
mode              train  padded|best-fit|sequential padded   one sample a row (BSHD), or packed (THD)
tokenizer         train  text                       v4       v4, bytes, or a tokenizer.json
cache             train  text                       -        folder that keeps packs
steps             train  count                      1000     steps of the whole run
lr                train  float                      3e-4     learning rate
warmup            train  number                     100      steps until it is reached
decay             train  count?                     -        step at which a cosine has brought it to a tenth
weight_decay      train  float                      0.1      of matrices
clip              train  float                      1.0      largest norm of a gradient; 0 for any
dtype             train  float64|float32|bfloat16   bfloat16 of weights and products
seed              train  number                     0        of the weights, and of the order of packs
weights           train  text                       -        folder of safetensors to begin from, else a seed
device            train  cpu|cuda                   cuda     what the ranks compute on
output            train  text                       -        folder of the run; else reports/NAME
save_every        train  count?                     -        steps between checkpoints; the last one is always saved
checkpoints       train  on|off                     on       save what a run needs to go on
resume            train  on|off                     off      go on from the newest checkpoint of the folder
preflight         train  on|off                     on       prove isolation on the first pack before step 1
'

# The same path on one CPU process in seconds.
smoke=(
    nnodes=1 gpus_per_node=1 pp=1 cp=1 ep=1 device=cpu dtype=float32 engine=torch offload=0
    preset=tiny config= set= window=512 packs_per_replica=1 steps=2 lr=0.003 warmup=0
)

recipes=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
root=$(dirname -- "$(dirname -- "$recipes")")
# shellcheck source-path=SCRIPTDIR source=settings.sh
source "$recipes/settings.sh"

# A run ends at what is missing on this machine; a dry run, often made on another one, only says it.
missing() { # what, as one sentence
    say "missing: $1"
    is_missing=1
}

# What follows from the settings: how many replicas the ranks leave room for, and how many packs those run a step.
derive() {
    local cut=$((value[cp] * value[pp])) world=$((value[nnodes] * value[gpus_per_node]))
    value[world]=$world
    ((world % cut == 0)) ||
        refuse "$world ranks (${value[nnodes]} nodes of ${value[gpus_per_node]})" "a multiple of cp * pp = $cut" \
            "nnodes, gpus_per_node, cp ${value[cp]} of ${origin[cp]}, pp ${value[pp]} of ${origin[pp]}"
    value[dp]=$((world / cut))
    local stage=$((value[dp] * value[cp]))
    ((stage % value[ep] == 0)) || refuse "ep ${value[ep]}" "a divisor of dp * cp = $stage" "${origin[ep]}"
    ((value[node_rank] < value[nnodes])) ||
        refuse "node_rank ${value[node_rank]}" "less than the ${value[nnodes]} nodes" "${origin[node_rank]}"
    value[packs]=$((value[packs_per_replica] * value[dp]))
    value[output]=${value[output]:-reports/${value[name]}}
}

find_python() {
    local candidates=("$root/.venv/bin/python" python3) candidate
    [[ -z ${value[python]} ]] || candidates=("${value[python]}")
    for candidate in "${candidates[@]}"; do
        if value[python]=$(command -v -- "$candidate"); then
            return
        fi
    done
    refuse "no interpreter ${candidates[*]}" "Python with v4pack installed" "--python, V4_PYTHON"
}

ask_library() {
    local question=(--lines --tokenizer "${value[tokenizer]}" --preset "${value[preset]}") answers fact answer word
    [[ -z ${value[config]} ]] || question+=(--config "${value[config]}")
    for word in ${value[set]}; do
        question+=(--set "$word")
    done
    # Which GPUs a machine has is asked where they are used.
    [[ -n $is_dry || ${value[device]} != cuda ]] || question+=(--gpus "${value[gpus_per_node]}")
    answers=$("${environment[@]}" "${value[python]}" -m v4model.recipes.probe "${question[@]}" 2>&1) ||
        refuse "${value[python]} that cannot ask v4model (${answers##*$'\n'})" "Python with v4pack installed" \
            "--python, V4_PYTHON"
    while IFS='=' read -r fact answer; do
        if [[ $fact == [a-z]*.* ]]; then
            offers[$fact]=$answer
        fi
    done <<<"$answers"
}

off() { # key, why
    say "$1 ${value[$1]} is off: $2"
    value[$1]=off
}

check_answers() {
    if [[ ${offers[model.config]} != yes ]]; then
        say "${offers[model.config]}"
        exit 2
    fi
    local fact
    for fact in "launcher.torchrun" "tokenizer.${value[tokenizer]}" gpu.count gpu.nccl; do
        [[ ${offers[$fact]-yes} == yes ]] || missing "${offers[$fact]}"
    done
    [[ -z ${value[data]} || -e ${value[data]} ]] ||
        missing "got no data at ${value[data]}; expected a file or a folder; where: ${origin[data]}"
    [[ ${value[nnodes]} == 1 || -n ${value[master_addr]}${value[rdzv_endpoint]} ]] ||
        missing "got ${value[nnodes]} nodes that cannot find each other; expected --master-addr or --rdzv-endpoint"
    [[ ${value[dtype]} != bfloat16 || ${offers[gpu.bfloat16]-yes} == yes ]] ||
        say "bfloat16 is not fast: ${offers[gpu.bfloat16]}"
    [[ ${value[pp]} == 1 || ${value[preflight]} == off ]] ||
        off preflight "it looks through a whole model, and a rank holds one of ${value[pp]} stages"
    [[ -n ${value[data]} ]] || say "trains on built-in text; --data names other"
}

build_launch() {
    launch=("${value[python]}" -m torch.distributed.run --nproc-per-node "${value[gpus_per_node]}")
    if [[ -n ${value[rdzv_endpoint]} ]]; then
        launch+=(--nnodes "${value[nnodes]}" --rdzv-backend c10d --rdzv-id "${value[name]}")
        launch+=(--rdzv-endpoint "${value[rdzv_endpoint]}")
    elif [[ ${value[nnodes]} == 1 ]]; then
        launch+=(--standalone) # a free port of its own choice
    else
        launch+=(--nnodes "${value[nnodes]}" --node-rank "${value[node_rank]}")
        launch+=(--master-addr "${value[master_addr]}" --master-port "${value[master_port]}")
    fi
}

build_train() {
    local key option word
    train=(-m v4model train --packs "${value[packs]}")
    for key in "${keys[@]}"; do
        [[ ${use[$key]} != launch && -n ${value[$key]} ]] || continue
        option=$(option_of "$key")
        if [[ ${kind[$key]}=${value[$key]} =~ ^('on|off=off'|share=[0.]+)$ ]]; then
            [[ -z ${offers[option.no-${option#--}]-} ]] || train+=("--no-${option#--}")
        elif [[ -z ${offers[option.${option#--}]-} ]]; then
            [[ ${use[$key]} == wish ]] || refuse "$key" "an option that v4model train offers" "$root/v4model"
            off "$key" "v4model train does not offer $option"
        elif [[ ${kind[$key]} == 'on|off' ]]; then
            train+=("$option")
        elif [[ ${kind[$key]} == words ]]; then
            for word in ${value[$key]}; do
                train+=("$option" "$word")
            done
        else
            train+=("$option" "${value[$key]}")
        fi
    done
    [[ -z ${value[data]} ]] || train+=("${value[data]}")
}

declare -A offers=()
is_missing=''
read_table
resolve "$@"
check_kinds
derive
find_python
# The recipe's own v4model, also where another one is installed.
environment=(env "PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}")
if [[ -n ${value[nccl_interface]} ]]; then
    environment+=("NCCL_SOCKET_IFNAME=${value[nccl_interface]}" "GLOO_SOCKET_IFNAME=${value[nccl_interface]}")
fi
ask_library
check_answers
build_launch
build_train
command=("${environment[@]}" "${launch[@]}" "${train[@]}")
printf -v shown '%q ' "${command[@]}"
shown=${shown% }
if [[ -n $is_dry ]]; then
    for key in "${!value[@]}"; do
        echo "$key=${value[$key]}"
    done | LC_ALL=C sort
    printf '\n%s\n' "$shown"
    exit 0
fi
[[ -z $is_missing ]] || exit 2
say "$shown"
exec "${command[@]}"
