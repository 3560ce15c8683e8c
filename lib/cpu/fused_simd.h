// SPDX-License-Identifier: Apache-2.0
//
// The door between cpu/fused and its vector code, which is compiled once an instruction set.
#ifndef VOLUP_CPU_FUSED_SIMD_H_
#define VOLUP_CPU_FUSED_SIMD_H_

#include <cstdint>

#include "kernel.h"

namespace volup {

struct FusedPlan;

struct FusedTask {
  const FusedPlan* plan;
  const float* packed;  // pack_fused
  const void* x;
  const void* add;
  void* out;
  float* scratch;  // worker_floats of it
  int64_t task;
};

struct FusedTarget {
  const char* name;
  int lanes;  // floats of a vector
  int sums;   // vectors of sums that fit in registers
  void (*run)(const FusedTask& task);
  // out[i] = exp(in[i]), log(in[i]) as the epilogues take them; for measuring their error.
  void (*exp)(const float* in, float* out, int64_t count);
  void (*log)(const float* in, float* out, int64_t count);
};

// The code for an instruction set; the portable code where that set was not compiled.
const FusedTarget& fused_target(CpuIsa isa);

}  // namespace volup

#endif  // VOLUP_CPU_FUSED_SIMD_H_
