#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds, shows and tests volup on Debian 12 and Ubuntu 24.04, from nothing but git and a shell:
# what is missing is installed. Not here: what the tests do (tests/) and what is timed
# (tools/bench_vs_torch.py).
set -euo pipefail
export LC_ALL=C

usage() {
  cat << 'END'
usage: tools/dev.sh COMMAND

  demo                convert and run the three models of models/, check them against their float64
                      outputs, and print a table
  test                build everything and run every test; those that need a GPU skip without one
  gpu [test]          the tests that need a GPU, on a machine with one
  gpu memcheck        compute-sanitizer (memcheck, racecheck) over their smoke set
  gpu bench A|B|C ... measure volup and PyTorch side by side; the lines go to docs/benchmarks/,
                      more words to tools/bench_vs_torch.py
  -h                  this text

demo and test install the packages that are missing (apt-get; as root or with sudo). The gpu commands
install what they can and go on with what is there: CUDA, HDF5, GoogleTest, header-only libraries and,
for bench and TorchScript files, an installed PyTorch.

environment:
  VOLUP_BUILD_DIR     build directory, may exist (default: build/release)
  VOLUP_JOBS          parallel jobs (default: every CPU)
  VOLUP_CMAKE_ARGS    more words for the configuring cmake
  CMAKE_PREFIX_PATH, CPATH
                      where header-only libraries lie that are not installed

example: tools/dev.sh demo
END
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_dir=${VOLUP_BUILD_DIR:-$root/build/release}
jobs=${VOLUP_JOBS:-$(nproc)}

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "tools/dev.sh: $*"
  exit 1
}
have() { command -v "$1" > /dev/null 2>&1; }

# ---- Packages ------------------------------------------------------------------------------------

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif have sudo; then
    sudo "$@"
  else
    say "need root or sudo for: $*"
    return 1
  fi
}

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2> /dev/null)" = installed ]
}

# The packages of "$@" that are not installed, one a line.
missing_of() {
  local package
  for package in "$@"; do
    is_installed "$package" || printf '%s\n' "$package"
  done
}

apt_install() {
  say "installing: $*"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" \
    < /dev/null >&2
}

lists_are_fresh=
refresh_lists() {
  if [ -z "$lists_are_fresh" ]; then
    as_root apt-get update -q -o Acquire::http::Timeout=20 < /dev/null >&2 || return 1
    lists_are_fresh=yes
  fi
}

# What volup is built with. Says so and goes on where it cannot: the configuring says what is needed.
install_packages() {
  have apt-get && have dpkg-query || return 0
  local missing
  mapfile -t missing < <(missing_of g++ cmake ninja-build pkg-config libgtest-dev nlohmann-json3-dev \
    libcli11-dev libhdf5-dev libhwy-dev zlib1g-dev)
  if [ ${#missing[@]} -ne 0 ]; then
    if ! refresh_lists || ! apt_install "${missing[@]}"; then
      say "could not install ${missing[*]}: going on with what is there"
    fi
  fi
}

can_be_installed() { apt-cache policy "$1" 2> /dev/null | grep -q 'Candidate: [^(]'; }

# libtorch, where the distribution has a package of it.
install_libtorch() {
  have apt-get && have dpkg-query || return 0
  is_installed libtorch-dev && return 0
  if ! can_be_installed libtorch-dev; then
    # Perhaps the lists were never fetched; an installed PyTorch makes that no matter.
    have_python_torch && return 0
    refresh_lists && can_be_installed libtorch-dev || return 0
  fi
  if ! refresh_lists || ! apt_install libtorch-dev; then
    say "could not install libtorch-dev: going on with what is there"
  fi
}

# ONNX's library, where the distribution has a package of it; CMake leaves the module out without it.
install_onnx() {
  have apt-get && have dpkg-query || return 0
  local missing
  mapfile -t missing < <(missing_of libonnx-dev libprotobuf-dev)
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! can_be_installed libonnx-dev; then
    refresh_lists && can_be_installed libonnx-dev || return 0
  fi
  if ! refresh_lists || ! apt_install "${missing[@]}"; then
    say "could not install ${missing[*]}: going on with what is there"
  fi
}

# ---- Building ------------------------------------------------------------------------------------

python_torch_prefix() {
  python3 -c 'import torch; print(torch.utils.cmake_prefix_path)' 2> /dev/null
}
have_python_torch() { [ -n "$(python_torch_prefix)" ]; }

# Sets torch_arguments: how the TorchScript module finds libtorch, or that it is left out.
find_torch() {
  local prefix
  if is_installed libtorch-dev 2> /dev/null; then
    torch_arguments=(-DVOLUP_TORCHSCRIPT=ON)
  elif prefix=$(python_torch_prefix) && [ -n "$prefix" ]; then
    torch_arguments=(-DVOLUP_TORCHSCRIPT=ON "-DCMAKE_PREFIX_PATH=$prefix")
  else
    say "no libtorch-dev package and no installed PyTorch: building without the TorchScript module"
    torch_arguments=(-DVOLUP_TORCHSCRIPT=OFF)
  fi
}

# configure BUILD_DIR ARGUMENTS...: quiet but for volup's own lines, unless it fails.
configure() {
  local build=$1 log
  shift
  # nvcc is often installed but not on the path.
  if [ -z "${CUDACXX:-}" ] && ! have nvcc && [ -x /usr/local/cuda/bin/nvcc ]; then
    export CUDACXX=/usr/local/cuda/bin/nvcc
  fi
  have cmake || fail "cmake: got none, need 3.25 or newer"
  mkdir -p "$build"
  log=$build/configure.log
  local generator=()
  # An existing directory keeps its generator.
  if [ ! -f "$build/CMakeCache.txt" ] && have ninja; then generator=(-G Ninja); fi
  # shellcheck disable=SC2086 # VOLUP_CMAKE_ARGS holds words
  if ! cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "$@" ${VOLUP_CMAKE_ARGS:-} > "$log" 2>&1; then
    cat "$log" >&2
    fail "configuring failed ($log)"
  fi
  sed -n 's/^-- \(volup: .*\)/\1/p' "$log" >&2
}

build() {
  cmake --build "$1" --parallel "$jobs" >&2 || fail "building failed"
}

# ---- demo ----------------------------------------------------------------------------------------

# value_of KEY JSON: the first value of a key in one of the tool's JSON objects.
value_of() {
  printf '%s' "$2" | tr -d '\n' | sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p"
}

# demo_row LETTER NAME MODEL DEVICE: checks the model on the device and prints its row of the table.
demo_row() {
  local volup=$build_dir/bin/volup check bench shape seconds
  check=$("$volup" check "$3" "$root/models/$2.io.h5" --device "$4" --json -q) || {
    say "$1 on $4: volup check failed: $check"
    return 1
  }
  shape=$(demo_shape "$1")
  bench=$("$volup" bench "$3" --shape "$shape" --device "$4" --json -q --iterations 10) || return 1
  seconds=$(printf '%s' "$bench" | tr -d '\n' | sed -n 's/.*"cold": *{[^}]*"median_ms": *\([^,}]*\).*/\1/p')
  printf '%s %-23s  %-6s  %-16s  %-20s  %9.3f ms  %.1e\n' "$1" "$2" "$4" \
    "$(value_of kernel "$bench")" "$shape" "$seconds" "$(value_of max_abs_err "$check")"
}

# The batch that is timed: the spatial size of the reference shapes, one sample.
demo_shape() {
  case $1 in
    A) echo 1,3,16,32,32 ;;
    B) echo 1,32,16,32,32 ;;
    C) echo 1,32,16,16,16 ;;
  esac
}

demo() {
  install_packages
  install_libtorch
  install_onnx
  find_torch
  configure "$build_dir" "${torch_arguments[@]}" -DVOLUP_HDF5=ON -DVOLUP_TOOLS=ON \
    -DVOLUP_TESTS=OFF
  build "$build_dir"

  local volup=$build_dir/bin/volup devices=(cpu) failed=0 entry letter name model device probe
  probe=0
  "$volup" bench 'I n1 ci1 co1 i1x1x1 k1' --device cuda --iterations 1 --json -q > /dev/null \
    2>&1 || probe=$?
  if [ "$probe" -eq 0 ]; then devices+=(cuda); else say "no usable GPU: the CPU alone"; fi

  mkdir -p "$build_dir/demo"
  printf '%-25s  %-6s  %-16s  %-20s  %12s  %s\n' model device kernel 'timed shape' 'median time' \
    'largest error against float64'
  for entry in A:logsumexp_swish_clamp B:softmax_sigmoid C:add_hardswish; do
    letter=${entry%%:*}
    name=${entry#*:}
    model=$root/models/$name.h5
    if [ "${torch_arguments[0]}" = -DVOLUP_TORCHSCRIPT=ON ]; then
      model=$build_dir/demo/$name.h5
      "$volup" convert "$root/models/$name.pt" "$model" -q > /dev/null || failed=1
    fi
    for device in "${devices[@]}"; do
      demo_row "$letter" "$name" "$model" "$device" || failed=1
    done
  done
  if [ "$failed" -ne 0 ]; then fail "a model could not be converted, run or checked"; fi
  if [ "${torch_arguments[0]}" = -DVOLUP_TORCHSCRIPT=ON ]; then
    say "converted from models/*.pt, checked within each file's absolute and relative tolerance"
  else
    say "read from models/*.h5, checked within each file's absolute and relative tolerance"
  fi
}

# ---- test ----------------------------------------------------------------------------------------

run_tests() {
  install_packages
  install_libtorch
  install_onnx
  find_torch
  configure "$build_dir" "${torch_arguments[@]}" -DVOLUP_HDF5=ON -DVOLUP_TOOLS=ON \
    -DVOLUP_TESTS=ON
  build "$build_dir"
  ctest --test-dir "$build_dir" --output-on-failure --parallel "$jobs"
}

# ---- gpu -----------------------------------------------------------------------------------------

# Configures for the GPU and builds the targets named, or all.
gpu_build() {
  if ! nvidia-smi -L > /dev/null 2>&1; then fail "no NVIDIA GPU with a driver was found"; fi
  install_packages
  find_torch
  configure "$build_dir" "${torch_arguments[@]}" -DVOLUP_CUDA=ON -DVOLUP_TESTS=ON
  cmake --build "$build_dir" --parallel "$jobs" ${1:+--target "$@"} >&2 || fail "building failed"
}

gpu_test() {
  gpu_build
  local log=$build_dir/gpu_test.log all skipped
  ctest --test-dir "$build_dir" --output-on-failure -L gpu | tee "$log"
  all=$(sed -n 's/.* tests failed out of \([0-9]*\).*/\1/p' "$log")
  skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
  if [ "$all" = "$skipped" ]; then fail "every gpu test skipped, though a GPU is here"; fi
}

gpu_memcheck() {
  gpu_build gpu_tests
  local sanitizer tool
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  [ -x "$sanitizer" ] || fail "compute-sanitizer: got none, need CUDA's"
  for tool in memcheck racecheck; do
    say "compute-sanitizer --tool $tool"
    # racecheck blames cuDNN's own kernels, and what it says of them is not ours to mend.
    VOLUP_CUDNN=$([ "$tool" = racecheck ] && echo /none || echo "${VOLUP_CUDNN:-}") \
      "$sanitizer" --tool "$tool" --error-exitcode 1 "$build_dir/bin/gpu_tests" \
      --gtest_filter='*Smoke*'
  done
}

gpu_bench() {
  case ${1:-} in
    A | B | C) ;;
    *) fail "gpu bench: got '${1:-}', need A, B or C" ;;
  esac
  local model=$1
  shift
  have_python_torch || fail "gpu bench: need an installed PyTorch"
  gpu_build volup volup_hdf5
  local gpu out
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 |
    tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9]\{1,\}/-/g')
  mkdir -p "$root/docs/benchmarks"
  out=$root/docs/benchmarks/$(date +%Y-%m-%d)-$gpu-$model.jsonl
  python3 "$root/tools/bench_vs_torch.py" "$model" "$@" --library "$build_dir/lib/libvolup.so" \
    --out "$out"
  say "wrote $out"
}

case ${1:-} in
  demo) demo ;;
  test) run_tests ;;
  gpu)
    case ${2:-test} in
      test) gpu_test ;;
      memcheck) gpu_memcheck ;;
      bench) gpu_bench "${@:3}" ;;
      *)
        say "gpu: got '$2', need test, memcheck or bench"
        exit 2
        ;;
    esac
    ;;
  -h | --help | help) usage ;;
  *)
    say "got '${1:-}', need demo, test or gpu"
    usage >&2
    exit 2
    ;;
esac
