#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# See CMakeLists.txt, which sets every variable used here.
set -eu
unset VOLUP_MODULE_DIR LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH

stage="start"
trap '[ $? -eq 0 ] || echo "FAILED at: $stage" >&2' EXIT

if [ ! -x "$PKG_CONFIG" ]; then
  stage="looking for pkg-config"
  echo "SKIPPED (pkg-config is not installed)"
  exit 77
fi

rm -rf "$WORK"
mkdir -p "$WORK"

# check_prefix PREFIX: both consumers and the tool against the tree installed there.
check_prefix() {
  prefix=$1
  name=$(basename "$prefix")
  if [ "$HDF5" = 1 ]; then file=$WORK/$name.h5; else file=--without-hdf5; fi

  stage="find_package in $prefix"
  "$CMAKE" -S "$SOURCE/cmake_consumer" -B "$WORK/cmake-$name" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_CXX_FLAGS="$COMPILE_FLAGS" > "$WORK/cmake-$name.log"
  "$CMAKE" --build "$WORK/cmake-$name" >> "$WORK/cmake-$name.log"
  stage="running the find_package consumer of $prefix"
  "$WORK/cmake-$name/consumer" "$file"

  stage="pkg-config in $prefix"
  flags=$(PKG_CONFIG_PATH=$prefix/$LIBDIR/pkgconfig "$PKG_CONFIG" --cflags --libs volup)
  # shellcheck disable=SC2086 # flags are words
  "$CC" -std=c99 $COMPILE_FLAGS -o "$WORK/pkg-config-$name" "$SOURCE/pkg_config_consumer/consumer.c" $flags
  stage="running the pkg-config consumer of $prefix"
  LD_LIBRARY_PATH=$prefix/$LIBDIR "$WORK/pkg-config-$name"

  if [ "$TOOL" = 1 ] && [ "$HDF5" = 1 ]; then
    stage="running the installed tool of $prefix"
    "$prefix/$BINDIR/volup" inspect "$file"
  fi
}

stage="cmake --install"
"$CMAKE" --install "$BUILD" --prefix "$WORK/prefix" > "$WORK/install.log"

stage="looking for paths of the build tree in what was installed"
for binary in "$WORK/prefix/$LIBDIR"/libvolup.so "$WORK/prefix/$LIBDIR"/volup/*.so \
  "$WORK/prefix/$BINDIR"/volup; do
  [ -e "$binary" ] || continue
  if "$READELF" -d "$binary" | grep -E 'R(UN)?PATH' | grep -F "$BUILD"; then
    echo "$binary looks for libraries in the build tree" >&2
    exit 1
  fi
done

check_prefix "$WORK/prefix"
mv "$WORK/prefix" "$WORK/moved"
check_prefix "$WORK/moved"
