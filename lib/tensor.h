// SPDX-License-Identifier: Apache-2.0
//
// Names for what a tensor is made of: element type, device, shape. No memory is owned here.
#ifndef VOLUP_TENSOR_H_
#define VOLUP_TENSOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "status.h"
#include "volup/volup.h"

namespace volup {

enum class DType : int32_t {
  kFp32 = VOLUP_DTYPE_FP32,
  kFp16 = VOLUP_DTYPE_FP16,
  kBf16 = VOLUP_DTYPE_BF16
};

enum class DeviceType : int32_t {
  kAuto = VOLUP_DEVICE_AUTO,
  kCpu = VOLUP_DEVICE_CPU,
  kCuda = VOLUP_DEVICE_CUDA
};

enum class Precision : int32_t {
  kFp32 = VOLUP_PRECISION_FP32,
  kTf32 = VOLUP_PRECISION_TF32,
  kBf16 = VOLUP_PRECISION_BF16,
  kFp16 = VOLUP_PRECISION_FP16
};

constexpr size_t element_size(DType dtype) { return dtype == DType::kFp32 ? 4 : 2; }

constexpr const char* name_of(DType dtype) {
  return dtype == DType::kFp32 ? "fp32" : dtype == DType::kFp16 ? "fp16" : "bf16";
}
constexpr const char* name_of(DeviceType device) {
  return device == DeviceType::kCpu ? "cpu" : device == DeviceType::kCuda ? "cuda" : "auto";
}
constexpr const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::kTf32:
      return "tf32";
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp16:
      return "fp16";
    case Precision::kFp32:
      break;
  }
  return "fp32";
}

// D, H, W of anything that has one value an axis.
using Axes = std::array<int64_t, 3>;
// N, C, D, H, W.
using Shape5 = std::array<int64_t, 5>;

// a * b and a + b, or nothing where int64 cannot hold them.
inline bool checked_multiply(int64_t a, int64_t b, int64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}
inline bool checked_add(int64_t a, int64_t b, int64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}

// Elements of a shape; fails where a dimension is negative or the bytes pass int64.
inline Result<int64_t> element_count(const Shape5& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) return invalid_argument("shape ", shape, ": got a negative size, need >= 0");
  }
  for (const int64_t size : shape) {
    if (size == 0) return int64_t{0};
  }
  for (const int64_t size : shape) {
    if (!checked_multiply(count, size, &count)) {
      return invalid_argument("shape ", shape, ": the element count passes 2^63");
    }
  }
  if (count > std::numeric_limits<int64_t>::max() / 8) {
    return invalid_argument("shape ", shape, ": the bytes pass 2^63");
  }
  return count;
}

}  // namespace volup

#endif  // VOLUP_TENSOR_H_
