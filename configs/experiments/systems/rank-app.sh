#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Profiles a program of a Debian package, ranks its pages, and measures it next to Interf: as it is, with the k* most important pages in
# the private pool, with as many at random, and with half as many of both kinds. Then the same with another input, by its own profile and by the first one's.
# usage: rank-app.sh NAME
set -e
name=$1
cd /tmp
# A real-time program beside three busy cores makes the kernel complain in the middle of lines.
dmesg -n 1

# Two inputs: something like data, and something that repeats.
dd if=/bin/busybox of=data1 bs=4k count=4 skip=20 2>/dev/null
yes cloison | dd of=data2 bs=4k count=4 iflag=fullblock 2>/dev/null
for input in 1 2; do
    dd if=data$input of=in$input bs=4k count=2 2>/dev/null
    { printf 'P6\n64 64\n255\n'; dd if=data$input bs=4k count=3 2>/dev/null; } > in$input.ppm
done
numbers='with recursive t(x) as (select 1 union all select'
echo "$numbers (x*48271)%2147483647 from t limit 3000) select sum(x) from (select x from t order by x limit 2500);" > in1.sql
echo "$numbers x+1 from t limit 3000) select sum(x) from (select x from t order by x limit 2500);" > in2.sql

# Sets the function, and the program with its arguments for an input.
choose() {
    case $name in
    bzip2) function="BZ2_bzWriteClose64 --library libbz2"; program="bzip2 -k -f in$1" ;;
    cjpeg) function="jpeg_write_scanlines --library libjpeg"; program="cjpeg -outfile out.jpg in$1.ppm" ;;
    cwebp) function="WebPEncode --library libwebp.so"; program="cwebp -m 0 in$1.ppm -o out.webp" ;;
    opj_compress) function="opj_encode --library libopenjp2"; program="opj_compress -i in$1.ppm -o out.jp2" ;;
    sqlite3) function="sqlite3_step --library libsqlite3"; program="sqlite3 -batch -init in$1.sql :memory: .exit" ;;
    xz) function="lzma_code --library liblzma"; program="xz -T1 -0 -k -f in$1" ;;
    *) echo "there is no program $name" >&2; exit 1 ;;
    esac
}

# Profiles it with an input.
profile() {
    choose "$1"
    # shellcheck disable=SC2086 # several words each
    bbprof group --quiet --block 8 --mode nc -f hs -o "$1.toml" -s $function $program > said 2>&1 || { cat said >&2; exit 1; }
}

# Prints a column's value in the row of a number of pages, of what `bbprof migrate` or `rank` has said.
row() { sed -n "s/^$1,[0-9]*,\([0-9.]*\),.*/\1/p" said; }

for vm in 1 2 3; do cloisonctl vm stop interf-$vm; done
profile 1
echo "printed pages $(sed -n 's/^bbprof: \([0-9]*\) pages to profile.*/\1/p' said)"
echo "printed runs $(sed -n 's/.* \([0-9]*\) runs instead of .*/\1/p' said)"
bbprof rank --coarse -n 2 -i 1.toml > said 2> ended || { cat ended >&2; exit 1; }
k=$(sed -n 's/.*k\* = \([0-9]*\) .*/\1/p' ended)
half=$(((k + 1) / 2))
echo "printed k $k"
sed -n 's/^\([0-9]*\),[0-9]*,\([0-9.]*\),.*/printed rank_\1 \2/p' said
echo "printed none $(row 0)"
echo "printed all $(tail -n 1 said | cut -d , -f 3)"
profile 2
choose 2
other=${program#* }
bbprof migrate -n 5 -g "$k" -i 1.toml > said
echo "printed alone $(row 0)"
echo "printed alone_top $(row "$k")"

for vm in 1 2 3; do cloisonctl vm start interf-$vm; done
# They begin some time after their start, as at boot.
sleep 11
for seed in 1 2 3 4 5; do
    bbprof migrate -g "$k" -i 1.toml > said
    echo "printed interf $(row 0)"
    echo "printed top $(row "$k")"
    bbprof migrate -g "$k" --random $seed -i 1.toml > said
    echo "printed random $(row "$k")"
    bbprof migrate -g "$half" --random $seed -i 1.toml > said
    echo "printed half_random $(row "$half")"
done
bbprof migrate -n 5 -g "$half" -i 1.toml > said
echo "printed half_top $(row "$half")"
# The other input may touch fewer pages of the profile.
for top in "$k" $((k * 3 / 4)) $((k / 2)) $((k / 4)); do
    # shellcheck disable=SC2086
    if bbprof migrate -n 3 -g $top -i 1.toml -- $other > theirs && bbprof migrate -n 3 -g $top -i 2.toml > said; then
        echo "printed other_pages $top"
        echo "printed other_interf $(row 0)"
        echo "printed other_own $(row $top)"
        mv theirs said
        echo "printed other_theirs $(row $top)"
        break
    fi
done
for vm in 1 2 3; do cloisonctl vm stop interf-$vm; done
