#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Profiles a function of a program of a Linux guest.
# usage: linux-profiles.sh pages SAMPLES FUNCTION PROGRAM…    how much each page saves, and how many are enough
#        linux-profiles.sh curve STEPS FUNCTION PROGRAM…      the rank curve, in at most so many steps
#        linux-profiles.sh inputs STEPS FUNCTION PROGRAM… -- INPUT ARGUMENTS… -- INPUT ARGUMENTS…
#                                                             rank curves with several inputs, by the profile of the first
#        linux-profiles.sh roi SAMPLES FUNCTION PROGRAM…      the profile with the model on in the segment, and from the program's start
# FUNCTION is `-s NAME` or `--at ADDRESS`, as of bbprof.
set -e
cd /tmp
mode=$1
number=$2
function="$3 $4"
shift 4
# A command that runs the profiler.
before=

# Runs something that says nothing unless it fails.
quietly() { "$@" > said 2> ended || { cat said ended >&2; exit 1; }; }

# Profiles the program, with bbprof's mode and options, and prints how many pages it has. Without randomized addresses: two pages of the
# stack may matter most, and which of its lines they hold must not differ between runs.
profile() {
    options=$1
    shift
    # shellcheck disable=SC2086 # several words, or none
    quietly $before bbprof $options --quiet --fixed -f hs -o p.toml $function "$@"
    pages=$(sed -n 's/^bbprof: \([0-9]*\) pages to profile.*/\1/p' ended)
    echo "printed pages $pages"
    # A power of two, so that curves of similar programs have the same points.
    step=1
    while [ $((step * number)) -lt "$pages" ]; do step=$((step * 2)); done
}

# Prints each point of a rank curve, and how many pages are enough.
curve() {
    sed -n "s/^\([0-9]*\),[0-9]*,\([0-9.]*\),.*/printed $1_\1 \2/p" said
    echo "printed $1_enough $(sed -n 's/.*k\* = \([0-9]*\) .*/\1/p' ended)"
}

# Prints the profile's pages, the most important first.
ranked() { bbprof export p.toml | tail -n +2 | sort -t , -k 10,10 -rn; }

# Prints the mean of what pages are compared with: `none` of them cacheable, `all`, or an empty segment (`tracing`).
baseline() { bbprof export --format json p.toml | sed "s/.*\"$1\":{[^}]*\"mean\":\([0-9.]*\).*/\1/"; }

# Ranks with an input by the profile, if there are words of one.
rank_input() {
    [ $# -gt 0 ] || return 0
    input=$1
    shift
    quietly bbprof rank --fixed --every "$step" -i p.toml -- "$@"
    curve "input_$input"
}

case $mode in
pages)
    profile "profile -n $number" "$@"
    for what in none all; do echo "printed $what $(baseline $what)"; done
    # Of each page, the part of the cycles without any cacheable page that it saves alone: in the mean of the samples, in the one in
    # which it saves least, and in the one in which it saves most.
    ranked | awk -F , -v none="$(baseline none)" '{
        printf "printed page_%s_%d %.6f\n", $2, NR, $11
        printf "printed least_%s_%d %.6f\n", $2, NR, (none - $8) / none
        printf "printed most_%s_%d %.6f\n", $2, NR, (none - $6) / none
    }'
    quietly bbprof rank --fixed --coarse -i p.toml
    curve rank
    ;;
curve)
    profile "group --block 8 --mode nc" "$@"
    for what in none all; do echo "printed $what $(baseline $what)"; done
    quietly bbprof rank --fixed --every "$step" -i p.toml
    curve rank
    ;;
inputs)
    # The words up to the first `--` are the program; after each `--` there is an input. An argument has no quote in it.
    words=
    is_profiled=
    for word in "$@" --; do
        if [ "$word" != -- ]; then
            words="$words '$word'"
        elif [ -z "$is_profiled" ]; then
            eval "profile 'group --block 8 --mode nc' $words"
            is_profiled=yes
            words=
        else
            eval "rank_input $words"
            words=
        fi
    done
    ;;
roi)
    # The second is for comparison: by how much do two profiles of the same kind differ?
    for way in segment again start; do
        options="profile -n $number"
        if [ $way = start ]; then
            before="cloisonctl roi"
            options="$options --keep-model"
        fi
        profile "$options" "$@"
        ranked | cut -d , -f 1,4 > $way
        for what in none all tracing; do echo "printed ${way}_$what $(baseline $what)"; done
    done
    for top in 5 10 20 40; do
        head -n $top segment > first
        for way in again start; do
            echo "printed same_${way}_$top $(head -n $top $way | grep -c -x -F -f first || true)"
        done
    done
    ;;
*)
    echo "there is no mode $mode" >&2
    exit 1
    ;;
esac
