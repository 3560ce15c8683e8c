#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check_readme.sh README.md LANGUAGE FILE: the first code block of the language in the README is the
# file's text after its head comment, word for word.
set -eu
block=$(awk -v fence='```'"$2" '$0 == fence { inside = 1; next } /^```/ && inside { exit } inside' "$1")
[ -n "$block" ] || { echo "FAILED: no block of $2 in $1" >&2; exit 1; }
code=$(sed -n '/^#include/,$p' "$3")
[ "$block" = "$code" ] || {
  echo "FAILED: the $2 block of $1 is not $3:" >&2
  printf '%s\n' "$block" | diff -u "$3" - >&2
  exit 1
}
