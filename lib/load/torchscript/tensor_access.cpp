// SPDX-License-Identifier: Apache-2.0
//
// Reading tensors of a file; see tensor_access.h.
#include "load/torchscript/tensor_access.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "load/module_support.h"

namespace volup::torchscript {
namespace {

using module::refuse_unreadable;
using module::refuse_unsupported;
using module::to_text;

}  // namespace

std::string tensor_fault(const at::Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  if (tensor.layout() != c10::kStrided || tensor.is_quantized() || !tensor.has_storage() ||
      !tensor.device().is_cpu() || tensor.is_conj() || tensor.is_neg()) {
    return "a sparse, quantized or otherwise special tensor";
  }
  // One past the last element, in elements.
  int64_t end = tensor.storage_offset();
  bool fits = end >= 0;
  bool empty = false;
  for (int64_t axis = 0; axis < tensor.dim(); ++axis) {
    const int64_t size = tensor.size(axis), stride = tensor.stride(axis);
    int64_t reach = 0;
    fits = fits && size >= 0 && stride >= 0 &&
           !__builtin_mul_overflow(std::max<int64_t>(size - 1, 0), stride, &reach) &&
           !__builtin_add_overflow(end, reach, &end);
    empty |= size == 0;
  }
  int64_t bytes = 0;
  fits = fits && !__builtin_mul_overflow(end + (empty ? 0 : 1),
                                         static_cast<int64_t>(tensor.element_size()), &bytes);
  if (!fits || (!empty && static_cast<uint64_t>(bytes) > tensor.storage().nbytes())) {
    return "a shape of " + module::list_text(tensor.sizes()) + " and strides of " +
           module::list_text(tensor.strides()) + " that reach outside the stored bytes";
  }
  return "";
}

std::optional<double> one_element(const at::Tensor& tensor) {
  for (const int64_t size : tensor.sizes()) {
    if (size != 1) return std::nullopt;
  }
  if (tensor.is_complex() || !tensor_fault(tensor).empty()) return std::nullopt;
  return tensor.item().toDouble();
}

std::string type_name(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return "float32";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kDouble:
      return "float64";
    default:
      return "";
  }
}

module::Floats floats_of(const at::Tensor& tensor, const char* what) {
  if (const std::string fault = tensor_fault(tensor); !fault.empty()) {
    refuse_unreadable(std::string("damaged TorchScript archive: got ") + fault +
                      ", need a dense tensor (" + what + ")");
  }
  if (type_name(tensor).empty()) {
    refuse_unsupported(std::string("type of ") + what + ": got " +
                       c10::toString(tensor.scalar_type()) +
                       ", need float32, float16, bfloat16 or float64");
  }
  // Strides of 0 make a large tensor of few bytes.
  int64_t bytes = static_cast<int64_t>(tensor.element_size());
  bool fits = true;
  for (const int64_t size : tensor.sizes()) fits = fits && module::multiply_into(&bytes, size);
  if (!fits || static_cast<uint64_t>(bytes) > tensor.storage().nbytes()) {
    refuse_unsupported(std::string("storage of ") + what + ": got " +
                       to_text(static_cast<uint64_t>(tensor.storage().nbytes())) +
                       " bytes, need one for each of its elements");
  }
  const at::Tensor dense = tensor.detach().contiguous();
  const at::Tensor narrow = dense.to(at::kFloat).contiguous();
  const auto count = static_cast<size_t>(narrow.numel());
  module::Floats values;
  if (narrow.storage().nbytes() == count * sizeof(float)) {
    const auto kept = std::make_shared<at::Tensor>(narrow);
    values = module::Floats(kept, kept->data_ptr<float>(), count);
  } else {
    // A part of a storage would keep all of it.
    values = module::Floats(count);
    std::copy_n(narrow.data_ptr<float>(), count, values.data());
  }
  if (dense.scalar_type() == at::kDouble) {
    const double* const wide = dense.data_ptr<double>();
    int64_t overflows = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      overflows += std::isinf(values[i]) && std::isfinite(wide[i]);
    }
    if (overflows > 0) {
      refuse_unsupported(std::string("values of ") + what + ": got " + to_text(overflows) +
                         " beyond float32, need values that it can hold");
    }
  }
  return values;
}

bool is_wide_type(int64_t scalar_type) {
  return scalar_type == static_cast<int64_t>(at::kFloat) ||
         scalar_type == static_cast<int64_t>(at::kDouble);
}

bool is_float_type(int64_t scalar_type) {
  return is_wide_type(scalar_type) || scalar_type == static_cast<int64_t>(at::kHalf) ||
         scalar_type == static_cast<int64_t>(at::kBFloat16);
}

}  // namespace volup::torchscript
