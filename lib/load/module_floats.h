// SPDX-License-Identifier: Apache-2.0
//
// The numbers that a loader module hands over, where they lie. A library's memory that already
// holds them is kept, not copied: a second copy of the weights would be most of what a load needs.
#ifndef VOLUP_LOAD_MODULE_FLOATS_H_
#define VOLUP_LOAD_MODULE_FLOATS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "load/module_memory.h"

namespace volup::module {

class Floats {
 public:
  Floats() = default;
  // Room for size numbers, which are not set: they are about to be.
  explicit Floats(size_t size) : size_(size) {
    if (size > SIZE_MAX / sizeof(float)) throw std::bad_alloc();
    owner_ = allocate_block(size * sizeof(float));
    data_ = static_cast<float*>(owner_.get());
  }
  // size numbers at data, which live as long as owner.
  Floats(std::shared_ptr<void> owner, float* data, size_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}
  // Implicit: a vector is one way to have them.
  Floats(std::vector<float> values) {  // NOLINT(google-explicit-constructor)
    auto kept = std::make_shared<std::vector<float>>(std::move(values));
    data_ = kept->data();
    size_ = kept->size();
    owner_ = std::move(kept);
  }

  float* data() { return data_; }
  const float* data() const { return data_; }
  size_t size() const { return size_; }
  const float* begin() const { return data_; }
  const float* end() const { return data_ + size_; }
  float& operator[](size_t i) { return data_[i]; }
  float operator[](size_t i) const { return data_[i]; }

 private:
  std::shared_ptr<void> owner_;
  float* data_ = nullptr;
  size_t size_ = 0;
};

// Whether no value is NaN or infinite; faster than looking for which.
inline bool all_finite(const float* values, size_t size) {
  constexpr uint32_t kExponent = 0x7f800000;
  constexpr size_t kPiece = 4096;  // no jump inside: the compiler makes vectors of it
  for (size_t from = 0; from < size; from += kPiece) {
    const size_t end = size - from < kPiece ? size : from + kPiece;
    uint32_t found = 0;
    for (size_t i = from; i < end; ++i) {
      found |= static_cast<uint32_t>((std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent);
    }
    if (found != 0) return false;
  }
  return true;
}

}  // namespace volup::module

#endif  // VOLUP_LOAD_MODULE_FLOATS_H_
