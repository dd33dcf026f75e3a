#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures a function of a program of a Linux guest.
# usage: interf-linux.sh none|alone|vms|processes MOVED SAMPLES FUNCTION PROGRAM…    in a system without Interf, next to VMs that are
#                                             stopped, to three VMs, or to three processes of this Linux, of each of which so many pages
#                                             have moved
#        interf-linux.sh sweep "MOVED…" SAMPLES FUNCTION PROGRAM…    next to three processes, by how many of their pages have moved
# FUNCTION is `-s NAME` or `--at ADDRESS`, as of bbprof.
set -e
cd /tmp
# A real-time program beside three busy cores makes the kernel complain in the middle of lines.
dmesg -n 1
case_of=$1
moved=$2
samples=$3
function="$4 $5"
shift 5

# Runs something that says nothing unless it fails.
quietly() { "$@" > said 2> ended || { cat said ended >&2; exit 1; }; }

# Prints the cycles of the function, each in a process of its own, none of whose pages are moved.
measure() {
    : > cycles
    while [ "$(wc -l < cycles)" -lt "$samples" ]; do
        quietly bbprof migrate -g 0 -i name.toml
        sed -n "s/^0,\([0-9]*\),.*/printed $1 \1/p" said >> cycles
    done
    head -n "$samples" cycles
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

# A profile of which the function's and the program's names alone are used.
# shellcheck disable=SC2086 # two words
quietly bbprof group --quiet --block 10000 --covered 0 --mode nc -f s -o name.toml $function "$@"
case $case_of in
none) measure cycles ;;
alone)
    for vm in 1 2 3; do cloisonctl vm stop interf-$vm; done
    measure cycles
    ;;
vms)
    # They begin some time after their start.
    sleep 11
    measure cycles
    ;;
processes)
    start_processes "$moved"
    measure cycles
    end_processes
    ;;
sweep)
    measure solo
    for pages in $moved; do
        start_processes "$pages"
        measure "moved_$pages"
        end_processes
    done
    ;;
*)
    echo "there is no case $case_of" >&2
    exit 1
    ;;
esac
