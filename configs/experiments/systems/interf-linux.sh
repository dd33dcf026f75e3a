#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures a function of benchmarks that are programs of a Linux guest.
# usage: interf-linux.sh times alone|vms|processes [MOVED]   next to no Interf, to three VMs, or to three processes of this Linux, of
#                                                   each of which so many pages have moved
#        interf-linux.sh one alone|vms|processes [MOVED]     the same for one benchmark
#        interf-linux.sh sweep [MOVED]...             one benchmark next to three processes, by how many of their pages have moved
set -e
cd /tmp
# A real-time program beside three busy cores makes the kernel complain in the middle of lines.
dmesg -n 1

order() { for vm in 1 2 3; do cloisonctl vm "$1" interf-$vm; done; }

# Runs something that says nothing unless it fails.
quietly() { "$@" > said 2> ended || { cat said ended >&2; exit 1; }; }

# Makes a profile of which the function's name alone is used.
name_function() {
    quietly bbprof group --quiet --block 10000 --covered 0 --mode nc -f s -o name.toml -s bbprof_benchmark::segment bbprof-benchmark matmul 1 1
}

# Prints the cycles of the function in four processes, none of whose pages are moved.
measure() {
    name=$1
    shift
    for again in 1 2; do
        quietly bbprof migrate -g 0 -i name.toml -- "$@"
        sed -n "s/^0,\([0-9]*\),.*/printed $name \1/p" said
    done
}

measure_all() {
    measure disparity_small disparity 1 1
    measure disparity_medium disparity 2 1
    measure segmentation_small segmentation 1 1
    measure segmentation_medium segmentation 2 1
    measure matmul_small matmul 1 1
}

start_processes() {
    for vcpu in 1 2 3; do
        bbprof-interf 105 "$1" $vcpu > interf-$vcpu &
    done
    for vcpu in 1 2 3; do
        while ! grep -q "moved=$1$" interf-$vcpu; do sleep 1; done
    done
}

end_processes() {
    killall bbprof-interf
    wait
    cloisonctl migrate restore > said
}

name_function
case $1 in
times | one)
    case $2 in
    alone) order stop ;;
    # They begin some time after their start.
    vms) sleep 11 ;;
    processes) start_processes "$3" ;;
    esac
    if [ "$1" = times ]; then measure_all; else measure segmentation_small segmentation 1 1; fi
    [ "$2" != processes ] || end_processes
    ;;
sweep)
    shift
    measure solo segmentation 1 1
    for moved in "$@"; do
        start_processes "$moved"
        measure moved_$moved segmentation 1 1
        end_processes
    done
    ;;
esac
