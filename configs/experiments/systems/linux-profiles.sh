#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Profiles benchmarks that are programs of a Linux guest.
# usage: linux-profiles.sh pages NAME           how much each page saves, and how many are enough
#        linux-profiles.sh inputs NAME STEP     rank curves with several inputs, by the profile of one
#        linux-profiles.sh roi NAME             the profile with the model on in the segment, and from the program's start
set -e
cd /tmp
name=$2
# A command that runs the profiler.
before=

# Runs something that says nothing unless it fails.
quietly() { "$@" > said 2> ended || { cat said ended >&2; exit 1; }; }

# Profiles a benchmark, and prints how many pages it has. Without randomized addresses: two pages of the stack may matter most, and which
# of its lines they hold must not differ between runs.
profile() {
    # shellcheck disable=SC2086 # several words, or none
    quietly $before bbprof "$@" --quiet --fixed -f hs -o p.toml -s bbprof_benchmark::segment bbprof-benchmark "$name" 1 1
    echo "printed pages $(sed -n 's/^bbprof: \([0-9]*\) pages to profile.*/\1/p' ended)"
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

case $1 in
pages)
    profile profile
    for what in none all; do echo "printed $what $(baseline $what)"; done
    ranked > pages
    rank=0
    # Of each page, the part of the cycles without any cacheable page that it saves alone.
    while IFS=, read -r _ kind _ _ _ _ _ _ _ _ part _; do
        rank=$((rank + 1))
        echo "printed page_${kind}_$rank $part"
    done < pages
    quietly bbprof rank --fixed --coarse -i p.toml
    curve rank
    ;;
inputs)
    profile group --block 8 --mode nc
    # The one that was profiled, two more, and the degenerate ones.
    for input in 1 2 3 noise solid; do
        quietly bbprof rank --fixed --every "$3" -i p.toml -- "$name" 1 $input
        curve input_$input
    done
    ;;
roi)
    # The second is for comparison: by how much do two profiles of the same kind differ?
    for way in segment again start; do
        options=
        if [ $way = start ]; then
            before="cloisonctl roi"
            options=--keep-model
        fi
        # shellcheck disable=SC2086
        profile profile $options
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
esac
