#!/usr/bin/env bash
# How a recipe's settings are resolved; sourced by the base, which says what they are:
#
#   settings  a table, a line each: key, use, kind, default (a dash for none), what it is
#   smoke     KEY=VALUE words that --smoke stands for
#
# It leaves, by key: use, kind, value, origin (who said the value), help; keys in the table's order; is_dry.
# shellcheck disable=SC2034,SC2154  # what the base reads, and what it declares

declare -A use=() kind=() value=() origin=() help=()
keys=() is_dry=''

say() {
    echo "${value[name]}: $*" >&2
}

refuse() { # got, expected, where
    say "got $1; expected $2; where: $3"
    exit 2
}

option_of() {
    echo "--${1//_/-}"
}

set_from() { # origin, key, value
    [[ $2 =~ ^[a-z_]+$ && -n ${kind[$2]-} ]] || refuse "a setting '$2'" "one that --help lists" "$1"
    value[$2]=$3 origin[$2]=$1
}

read_table() {
    local key its_use its_kind default what
    while read -r key its_use its_kind default what; do
        [[ -n $key ]] || continue
        keys+=("$key")
        use[$key]=$its_use kind[$key]=$its_kind help[$key]=$what
        set_from "the recipe" "$key" "${default#-}"
    done <<<"$settings"
}

print_help() {
    echo "Usage: RECIPE [--dry-run] [--smoke] [--KEY VALUE]..."
    echo
    echo "  --dry-run  print the resolved settings and the command; run nothing"
    echo "  --smoke    the tiny preset, 2 steps, one CPU process, built-in text unless told otherwise"
    echo
    echo "A setting comes from the recipe, then --smoke, then the environment, then the command line."
    echo
    local key choices
    for key in "${keys[@]}"; do
        choices=''
        [[ ${kind[$key]} != *\|* ]] || choices=" (${kind[$key]//|/, })"
        printf '  %-20s V4_%-18s %s [%s]\n' "$(option_of "$key")" "${key^^}" "${help[$key]}$choices" "${value[$key]}"
    done
    echo
    echo "Exit codes: torchrun's; 2 when a setting is wrong or something is missing."
}

resolve() {
    local given=() word option key variable is_smoke='' is_help=''
    while (($#)); do
        word=$1
        shift
        case $word in
        --dry-run) is_dry=1 ;;
        --smoke) is_smoke=1 ;;
        -h | --help) is_help=1 ;;
        --[a-z]*)
            if [[ $word != *=* || $word == --default ]]; then
                (($#)) || refuse "$word without a value" "$word VALUE" "the command line"
                word+="=$1"
                shift
            fi
            if [[ $word == --default=* ]]; then
                word=${word#--default=}
                set_from "the recipe" "${word%%=*}" "${word#*=}"
            else
                given+=("$word")
            fi
            ;;
        *) refuse "'$word'" "--KEY VALUE" "the command line" ;;
        esac
    done
    if [[ -n $is_help ]]; then
        print_help
        exit 0
    fi
    if [[ -n $is_smoke ]]; then
        for word in "${smoke[@]}"; do
            set_from "--smoke" "${word%%=*}" "${word#*=}"
        done
    fi
    for variable in $(compgen -e V4_ || true); do
        key=${variable#V4_}
        set_from "$variable" "${key,,}" "${!variable}"
    done
    for word in ${given[@]+"${given[@]}"}; do
        option=${word%%=*}
        key=${option#--}
        set_from "$option" "${key//-/_}" "${word#*=}"
    done
}

check_kinds() {
    local key pattern expected
    for key in "${keys[@]}"; do
        case ${kind[$key]} in
        count) pattern='^[1-9][0-9]{0,8}$' expected='a whole number from 1' ;;
        number) pattern='^(0|[1-9][0-9]{0,8})$' expected='a whole number from 0' ;;
        share) pattern='^(0(\.[0-9]+)?|1(\.0+)?)$' expected='a number from 0 to 1' ;;
        count\?) pattern='^([1-9][0-9]{0,8})?$' expected='a whole number from 1, or nothing' ;;
        float) pattern='^[0-9]*\.?[0-9]+(e-?[0-9]+)?$' expected='a number from 0, such as 3e-4' ;;
        words) pattern='^( *[a-z_0-9]+=[^ ]+)* *$' expected='FIELD=VALUE, several with blanks between' ;;
        text) continue ;;
        *) pattern="^(${kind[$key]})$" expected="one of ${kind[$key]//|/, }" ;;
        esac
        [[ ${value[$key]} =~ $pattern ]] || refuse "$key '${value[$key]}'" "$expected" "${origin[$key]}"
    done
}
