#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Who may include whom. Each folder has a list of headers of this project that its files may include
# besides those beside them, and each dependency a list of folders that may see it. Prints every
# include that is on no list; exits 1 if there is one. docs/design.md says why the lines are drawn
# where they are.
#
#   tools/check_includes.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"

# Reads "file:#include ..." lines, prints those that break a rule.
violations() {
  awk '
    # also: one more folder whose headers are seen as those beside the file.
    function rule(prefix, headers, also) {
      ++rules; prefix_of[rules] = prefix; headers_of[rules] = headers; also_of[rules] = also
    }
    function lies_in(folder, header) {
      return header !~ "/" && system("test -f \"" folder header "\"") == 0
    }
    function dependency(headers, files) {
      ++dependencies; names_of[dependencies] = headers; users_of[dependencies] = files
    }
    BEGIN {
      kernel = "(kernel|problem|geometry|epilogue|tensor|status|model|device|half)[.]h"
      # The first prefix that fits decides.
      rule("include/", "volup/volup[.](h|hpp)")
      rule("examples/", "nothing")
      rule("tools/", "volup/volup[.](h|hpp)")
      rule("tests/abi/", "volup/volup[.](h|hpp)")
      rule("tests/consumers/", "nothing")
      rule("tests/tool/", "volup/volup[.](h|hpp)", "tools/volup/")
      rule("tests/", "[a-z0-9_/]*[.](h|hpp|cuh)")
      seam = "load/module_(abi|support|floats|memory)[.]h|volup/volup[.]h"
      rule("lib/load/hdf5/", "load/hdf5/.*|" seam)
      rule("lib/load/archive/", "load/archive/.*|" seam)
      rule("lib/load/formula/", "load/formula/.*|" seam)
      rule("lib/load/checkpoint/", "load/(checkpoint|archive)/.*|" seam)
      rule("lib/load/onnx/", "load/(onnx|formula)/.*|" seam)
      rule("lib/load/torchscript/", "load/(torchscript|formula|archive)/.*|" seam)
      rule("lib/load/module_", "load/file_kind[.]h|status[.]h|" seam)
      rule("lib/load/", "load/[a-z0-9_]*[.]h|(abi_convert|log|model|status)[.]h|volup/volup[.]h")
      rule("lib/cpu/", "cpu/.*|hwy/.*|volup/volup[.]h|" kernel)
      rule("lib/cuda/", "cuda/.*|volup/volup[.]h|" kernel)
      rule("lib/kernel_list.cpp", "(cpu|cuda)/[a-z0-9_]*_kernels[.]h|kernel[.]h")
      rule("lib/c_api", "load/load[.]h|[a-z0-9_]*[.]h|volup/volup[.]h")
      rule("lib/", "[a-z0-9_]*[.]h|volup/volup[.]h")

      dependency("cu(da|dnn|blas)[a-z0-9_]*[.]h|cooperative_groups.*|mma[.]h|nv[a-z]*[.]h",
                 "lib/cuda/|tests/gpu/|examples/cuda/")
      dependency("(torch|ATen|c10|caffe2)/.*", "lib/load/torchscript/")
      dependency("(onnx|google/protobuf)/.*", "lib/load/onnx/")
      dependency("hdf5(_hl)?[.]h", "lib/load/hdf5/|tools/volup/hdf5_file|tests/")
      dependency("(nlohmann)/.*", "lib/describe[.]cpp|lib/load/(checkpoint|hdf5)/|tools/|tests/")
      dependency("CLI/.*", "tools/")
      dependency("(zlib|minizip/.*)[.]h", "lib/load/archive/|lib/load/checkpoint/|tests/load/")
      dependency("gtest/.*|gmock/.*", "tests/")
      dependency("hwy/.*", "lib/cpu/")
    }
    {
      at = index($0, ":"); file = substr($0, 1, at - 1); line = substr($0, at + 1)
      if (!match(line, /["<][^">]*[">]/)) next
      quoted = substr(line, RSTART, 1) == "\""
      header = substr(line, RSTART + 1, RLENGTH - 2)
      for (i = 1; i <= dependencies; ++i) {
        if (header ~ "^(" names_of[i] ")$" && file !~ "^(" users_of[i] ")") {
          print file ": " header ": only " users_of[i] " may see it"; next
        }
      }
      if (!quoted || header ~ "^hwy/") next
      folder = file; sub(/[^\/]*$/, "", folder)
      if (lies_in(folder, header)) next
      for (i = 1; i <= rules; ++i) {
        if (index(file, prefix_of[i]) != 1) continue
        if (also_of[i] != "" && lies_in(also_of[i], header)) next
        if (header !~ "^(" headers_of[i] ")$") {
          print file ": " header ": " prefix_of[i] " may include " headers_of[i]
        }
        next
      }
      print file ": " header ": no rule covers this folder"
    }'
}

# Each of these breaks a rule: a check that lets one through checks nothing.
broken='tools/volup/x.cpp:#include "session.h"
tests/tool/x.cpp:#include "session.h"
examples/cpp/x.cpp:#include "geometry.h"
examples/cpp/x.cpp:#include <cuda_runtime.h>
lib/session.cpp:#include "cuda/cuda_device.h"
lib/cuda/x.cu:#include "session.h"
lib/cpu/x.cpp:#include "log.h"
lib/load/hdf5/x.cpp:#include "model.h"
lib/load/hdf5/x.cpp:#include <torch/torch.h>
lib/model.cpp:#include <hdf5.h>
include/volup/x.h:#include <cuda_runtime.h>
include/volup/x.h:#include "status.h"'
caught=$(printf '%s\n' "$broken" | violations | wc -l)
if [ "$caught" -ne "$(printf '%s\n' "$broken" | wc -l)" ]; then
  echo "check_includes.sh catches $caught of the includes that it should:" >&2
  printf '%s\n' "$broken" | violations >&2
  exit 1
fi

files=$(find include lib tools examples tests -type f \( -name '*.h' -o -name '*.hpp' -o -name '*.c' \
  -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \))
# shellcheck disable=SC2086 # file names of this project hold no spaces
found=$(grep -H '^ *# *include *["<]' $files | violations)
if [ -n "$found" ]; then
  printf '%s\n' "$found" >&2
  exit 1
fi
echo "includes: $(printf '%s\n' "$files" | wc -l) files keep to the rules"
