#!/bin/sh
# Boots the program that cargo has built. cargo passes its path, then the user's options.
set -e
here=$(dirname "$0")
cp "$1" "$here/guest.elf"
shift
[ $# -gt 0 ] || set -- --model
exec '@PROGRAM@' run "$here/system.toml" "$@"
