#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Measures a long function of a program in a Linux guest, by how many of its pages are in the private pool, next to Interf in VMs.
set -e
cd /tmp
# A real-time program beside three busy cores makes the kernel complain in the middle of lines.
dmesg -n 1

order() { for vm in 1 2 3; do cloisonctl vm "$1" interf-$vm; done; }

# Runs something that says nothing unless it fails.
quietly() { "$@" > said 2> ended || { cat said ended >&2; exit 1; }; }

# Prints the mean of the cycles in the row of a number of pages.
row() { sed -n "s/^$1,[0-9]*,\([0-9.]*\),.*/\1/p" said; }

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
