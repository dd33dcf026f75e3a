#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures functions of programs in a Linux guest.
# usage: linux-apps.sh c2is                       pages of a long function in the private pool, next to Interf in VMs
#        linux-apps.sh times alone|vms|processes [MOVED]   benchmarks, with no Interf, with three VMs or three processes of this Linux
#        linux-apps.sh sweep                      a benchmark next to three processes, by how many of their pages have moved
#        linux-apps.sh profile|inputs NAME        the pages of a benchmark, and its rank curves with other inputs
set -e
cd /tmp
# A real-time program beside three busy cores makes the kernel complain in the middle of lines.
dmesg -n 1

order() { for vm in 1 2 3; do cloisonctl vm "$1" interf-$vm; done; }

# Runs something that says nothing unless it fails.
quietly() { "$@" > said 2> ended || { cat said ended >&2; exit 1; }; }

# Prints a column's value in the row of a number of pages.
row() { sed -n "s/^$1,[0-9]*,\([0-9.]*\),.*/\1/p" said; }

# Prints the mean of the time with all pages cacheable, of a profile that hardly looks at pages.
measure() {
    quietly bbprof group -n 3 --quiet --block 10000 --covered 0 --mode nc -f s -o t.toml -s bbprof_benchmark::segment bbprof-benchmark "$1" "$2" 1
    bbprof export --format json t.toml | tr -d ' \n' | sed 's/.*"all":{[^}]*"mean":\([0-9.]*\).*/\1/'
}

each_time() {
    for size in 1 2; do
        for name in disparity segmentation; do
            echo "printed ${name}_$size $(measure $name $size)"
        done
    done
    echo "printed matmul_1 $(measure matmul 1)"
}

processes() {
    for vcpu in 1 2 3; do
        bbprof-interf 105 "$1" $vcpu > interf-$vcpu &
    done
    for vcpu in 1 2 3; do
        while ! grep -q moved=$1 interf-$vcpu; do sleep 1; done
    done
}

case $1 in
c2is)
    order stop
    quietly bbprof profile --quiet -f t -o p.toml -s bbprof_c2is::calling bbprof-c2is 3
    echo "printed pages $(sed -n 's/^bbprof: \([0-9]*\) pages to profile.*/\1/p' ended)"
    quietly bbprof migrate -g 64 -i p.toml -- 40
    echo "printed solo $(row 0)"
    echo "printed solo_top_64 $(row 64)"
    order start
    # They begin some time after their start, as at boot.
    sleep 11
    for k in 8 16 24 32 40 43 48 52 56 60 62 64 65; do
        quietly bbprof migrate -g $k -i p.toml -- 40
        echo "printed interf $(row 0)"
        echo "printed top_$k $(row $k)"
    done
    order stop
    ;;
times)
    case $2 in
    alone) order stop ;;
    vms) sleep 11 ;;
    processes) processes "$3" ;;
    esac
    each_time
    ;;
sweep)
    echo "printed solo $(measure segmentation 1)"
    for moved in 0 20 35 41 47 53 60 70 105; do
        processes $moved
        echo "printed moved_$moved $(measure segmentation 1)"
        killall bbprof-interf
        sleep 1
        cloisonctl migrate restore > said
    done
    ;;
profile | inputs)
    order stop
    program="-s bbprof_benchmark::segment bbprof-benchmark $2 1 1"
    if [ "$1" = profile ]; then
        # shellcheck disable=SC2086 # several words
        quietly bbprof profile --quiet -f hs -o p.toml $program
        bbprof export --format csv p.toml > pages.csv
        cat pages.csv
    else
        # shellcheck disable=SC2086
        quietly bbprof group --quiet --block 8 --mode nc -f hs -o p.toml $program
    fi
    echo "printed pages $(sed -n 's/^bbprof: \([0-9]*\) pages to profile.*/\1/p' ended)"
    for input in 1 2 3 noise solid; do
        quietly bbprof rank --coarse -i p.toml -- "$2" 1 $input
        sed -n "s/^\([0-9]*\),[0-9]*,\([0-9.]*\),.*/printed input_${input}_rank_\1 \2/p" said
        echo "printed input_${input}_k $(sed -n 's/.*k\* = \([0-9]*\) .*/\1/p' ended)"
        [ "$1" = inputs ] || break
    done
    ;;
esac
