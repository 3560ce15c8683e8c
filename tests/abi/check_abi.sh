#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compares the ABI of a build with the committed baseline, or writes the baseline.
#
#   check_abi.sh layout LAYOUT_PROGRAM layout.txt        sizes, offsets, enum values
#   check_abi.sh complete volup.h layout.txt             nothing of the header is missing there
#   check_abi.sh symbols NM LIBRARY symbols.txt          exported symbols with their versions
#   check_abi.sh needed READELF LIBRARY                  linked: glibc and libstdc++ alone
#   check_abi.sh write-layout ..., write-symbols ...     as above, but writes the file
set -eu

fail() {
  echo "FAILED: $1" >&2
  exit 1
}

# The version nodes themselves (type A) are in every name already.
symbols() { "$1" -D --defined-only "$2" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort; }

# compare BASELINE WHAT: standard input against the committed file.
compare() {
  diff -u "$1" - || fail "$2 differ from $1 (- baseline, + this build); if the change only adds, \
build the target abi_baseline and commit the file"
}

# Every "struct.field" of the header, one a line: the lines between "typedef struct NAME {" and
# "} NAME;", comments removed.
header_fields() {
  sed -e 's,/\*.*\*/,,' -e '\,/\*,,\,\*/,d' "$1" | awk '
    /^typedef struct [a-z_]+ \{/ { name = $3; next }
    /^\}/ { name = "" }
    name != "" && /;/ {
      line = $0
      if (match(line, /\(\*[a-z_]+\)/)) {
        field = substr(line, RSTART + 2, RLENGTH - 3)
      } else {
        sub(/;.*/, "", line); sub(/\[.*/, "", line); gsub(/\*/, " ", line)
        count = split(line, words, " "); field = words[count]
      }
      print name "." field
    }'
}

is_complete() {
  fields=$(header_fields "$1")
  [ "$(echo "$fields" | wc -l)" -gt 30 ] || fail "only these fields were found in $1: $fields"
  for field in $fields; do
    grep -q "^$field offset " "$2" || fail "$field of $1 is not in $2: add it to layout.c"
  done
  values=$(sed -n 's/^ *\(VOLUP_[A-Z0-9_]*\) = \([0-9]*\).*/\1 \2/p' "$1")
  [ "$(echo "$values" | wc -l)" -gt 20 ] || fail "only these values were found in $1: $values"
  echo "$values" | while read -r name value; do
    grep -q "^$name $value$" "$2" || fail "$name = $value of $1 is not in $2: add it to layout.c"
  done
}

needed() {
  libraries=$("$1" -d "$2" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  echo "$libraries"
  [ -n "$libraries" ] || fail "no NEEDED entries were read from $2"
  for library in $libraries; do
    case $library in
      libc.so.6 | libm.so.6 | ld-linux*.so.* | libstdc++.so.6) ;;
      *) fail "$2 links $library, need glibc and libstdc++ alone" ;;
    esac
  done
}

case ${1:-} in
  layout) "$2" | compare "$3" "sizes, offsets or values" ;;
  complete) is_complete "$2" "$3" ;;
  symbols) symbols "$2" "$3" | compare "$4" "exported symbols" ;;
  needed) needed "$2" "$3" ;;
  write-layout) "$2" > "$3" ;;
  write-symbols) symbols "$2" "$3" > "$4" ;;
  *) sed -n 's/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
