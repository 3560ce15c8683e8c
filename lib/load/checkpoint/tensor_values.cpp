// SPDX-License-Identifier: Apache-2.0
//
// See tensor_values.h. Files are little-endian, and so are the machines that volup builds for.
#include "load/checkpoint/tensor_values.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "load/module_support.h"

namespace volup::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little);

using module::quoted;
using module::refuse_unsupported;
using module::to_text;

float from_fp16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112u) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

template <typename Stored>
Stored element(const char* storage, int64_t index) {
  Stored value;
  std::memcpy(&value, storage + index * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
  return value;
}

// Calls visit with the storage index of each element, in order.
template <typename Visit>
void each_element(const StoredTensor& tensor, const Visit& visit) {
  const size_t rank = tensor.shape.size();
  std::vector<int64_t> position(rank, 0);
  const int64_t count = product(tensor.shape);
  int64_t index = tensor.offset;
  for (int64_t i = 0; i < count; ++i) {
    visit(index);
    for (size_t axis = rank; axis-- > 0;) {
      index += tensor.strides[axis];
      if (++position[axis] < tensor.shape[axis]) break;
      index -= position[axis] * tensor.strides[axis];
      position[axis] = 0;
    }
  }
}

bool is_dense(const StoredTensor& tensor) {
  int64_t expected = 1;
  for (size_t axis = tensor.shape.size(); axis-- > 0;) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

template <typename Stored, typename Convert>
module::Floats converted(const StoredTensor& tensor, const char* storage, const Convert& convert) {
  module::Floats values(static_cast<size_t>(product(tensor.shape)));
  float* next = values.data();
  each_element(tensor, [&](int64_t index) { *next++ = convert(element<Stored>(storage, index)); });
  return values;
}

module::Floats from_float64(const StoredTensor& tensor, const char* storage) {
  int64_t overflows = 0;
  module::Floats values = converted<double>(tensor, storage, [&overflows](double wide) {
    const float narrow = static_cast<float>(wide);
    overflows += std::isinf(narrow) && std::isfinite(wide);
    return narrow;
  });
  if (overflows > 0) {
    refuse_unsupported("values of " + quoted(tensor.name) + ": got " + to_text(overflows) +
                       " beyond float32, need values that it can hold");
  }
  return values;
}

}  // namespace

bool is_float(const StoredTensor& tensor) {
  return tensor.special.empty() && (tensor.dtype == "float32" || tensor.dtype == "float16" ||
                                    tensor.dtype == "bfloat16" || tensor.dtype == "float64");
}

module::Floats floats_of(const StoredTensor& tensor) {
  if (!is_float(tensor)) {
    refuse_unsupported("type of " + quoted(tensor.name) + ": got " +
                       (tensor.special.empty() ? tensor.dtype : tensor.special) +
                       ", need float32, float16, bfloat16 or float64");
  }
  std::string unpacked;
  std::string_view storage = tensor.storage;
  if (tensor.unpack) {
    unpacked = tensor.unpack();
    storage = unpacked;
  }
  // Strides of 0 make a large tensor of few bytes.
  int64_t bytes = product(tensor.shape);
  if (bytes < 0 || !module::multiply_into(&bytes, tensor.element_size) ||
      static_cast<uint64_t>(bytes) > storage.size()) {
    refuse_unsupported("storage of " + quoted(tensor.name) + ": got " +
                       to_text(static_cast<uint64_t>(storage.size())) +
                       " bytes, need one for each of its elements");
  }
  const char* const first = storage.data();
  if (tensor.dtype == "float16") return converted<uint16_t>(tensor, first, from_fp16);
  if (tensor.dtype == "bfloat16") {
    return converted<uint16_t>(tensor, first, [](uint16_t bits) {
      return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    });
  }
  if (tensor.dtype == "float64") return from_float64(tensor, first);
  if (is_dense(tensor)) {
    module::Floats values(static_cast<size_t>(product(tensor.shape)));
    if (values.size() != 0) {
      std::memcpy(values.data(), first + tensor.offset * tensor.element_size,
                  static_cast<size_t>(bytes));
    }
    return values;
  }
  return converted<float>(tensor, first, [](float value) { return value; });
}

}  // namespace volup::checkpoint
