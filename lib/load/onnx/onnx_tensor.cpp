// SPDX-License-Identifier: Apache-2.0
//
// Reads ONNX tensors; see onnx_tensor.h.
#include "load/onnx/onnx_tensor.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

#include "load/module_support.h"

namespace volup::onnx_file {
namespace {

using module::quoted;
using module::refuse_unreadable;
using module::refuse_unsupported;
using module::to_text;
using onnx::TensorProto;

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

// Bytes of an element; 0 for types that are not read here.
size_t element_size(const TensorProto& tensor) {
  switch (tensor.data_type()) {
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
      return 2;
    case TensorProto::FLOAT:
    case TensorProto::INT32:
      return 4;
    case TensorProto::DOUBLE:
    case TensorProto::INT64:
      return 8;
    default:
      return 0;
  }
}

std::string where(const TensorProto& tensor) { return " (tensor " + quoted(tensor.name()) + ")"; }

void need_stored(const TensorProto& tensor, int64_t stored, int64_t needed, const char* unit) {
  if (stored != needed) {
    refuse_unreadable("data: got " + to_text(stored) + " " + unit + ", need " + to_text(needed) +
                      " for the shape " + module::list_text(shape_of(tensor)) + where(tensor));
  }
}

// Checks where the elements lie and that they are as many as the shape says.
void check_stored(const TensorProto& tensor) {
  if (tensor.data_location() == TensorProto::EXTERNAL || tensor.external_data_size() > 0) {
    refuse_unsupported(
        "weights: got external data, in a file beside this one, need them in this file: save with "
        "external_data=False in torch.onnx.export, or by onnx.save_model(onnx.load(PATH), "
        "ONE_FILE)" +
        where(tensor));
  }
  if (tensor.has_segment()) refuse_unsupported("data: got a segment, need a whole" + where(tensor));
  const int64_t count = count_of(tensor);
  if (tensor.has_raw_data()) {
    int64_t bytes = static_cast<int64_t>(element_size(tensor));
    if (!module::multiply_into(&bytes, count)) bytes = INT64_MAX;
    need_stored(tensor, static_cast<int64_t>(tensor.raw_data().size()), bytes, "bytes");
    return;
  }
  int64_t stored = 0;
  switch (tensor.data_type()) {
    case TensorProto::FLOAT:
      stored = tensor.float_data_size();
      break;
    case TensorProto::DOUBLE:
      stored = tensor.double_data_size();
      break;
    case TensorProto::INT64:
      stored = tensor.int64_data_size();
      break;
    default:
      stored = tensor.int32_data_size();
  }
  need_stored(tensor, stored, count, "elements");
}

// Element i as it is stored raw.
template <typename Stored>
Stored raw(const TensorProto& tensor, int64_t i) {
  Stored value;
  std::memcpy(&value, tensor.raw_data().data() + static_cast<size_t>(i) * sizeof(Stored),
              sizeof(Stored));
  return value;
}

float from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  float value = 0;
  if (exponent == 31) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    value = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

float from_bfloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Element i of a tensor of floats.
double element(const TensorProto& tensor, int64_t i) {
  const bool is_raw = tensor.has_raw_data();
  const int at = static_cast<int>(i);
  switch (tensor.data_type()) {
    case TensorProto::FLOAT:
      return is_raw ? raw<float>(tensor, i) : tensor.float_data(at);
    case TensorProto::DOUBLE:
      return is_raw ? raw<double>(tensor, i) : tensor.double_data(at);
    default: {
      const uint16_t bits =
          is_raw ? raw<uint16_t>(tensor, i) : static_cast<uint16_t>(tensor.int32_data(at));
      return tensor.data_type() == TensorProto::FLOAT16 ? from_half(bits) : from_bfloat(bits);
    }
  }
}

int64_t integer(const TensorProto& tensor, int64_t i) {
  const bool is_raw = tensor.has_raw_data();
  const int at = static_cast<int>(i);
  if (tensor.data_type() == TensorProto::INT64) {
    return is_raw ? raw<int64_t>(tensor, i) : tensor.int64_data(at);
  }
  return is_raw ? raw<int32_t>(tensor, i) : tensor.int32_data(at);
}

bool is_integer(const TensorProto& tensor) {
  return tensor.data_type() == TensorProto::INT64 || tensor.data_type() == TensorProto::INT32;
}

}  // namespace

std::vector<int64_t> shape_of(const TensorProto& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

int64_t count_of(const TensorProto& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.dims()) {
    if (size < 0 || !module::multiply_into(&count, size)) {
      refuse_unreadable("shape: got " + module::list_text(shape_of(tensor)) +
                        ", need sizes of 0 or more whose product is below 2^63" + where(tensor));
    }
  }
  return count;
}

std::string float_name(const TensorProto& tensor) {
  switch (tensor.data_type()) {
    case TensorProto::FLOAT:
      return "float32";
    case TensorProto::FLOAT16:
      return "float16";
    case TensorProto::BFLOAT16:
      return "bfloat16";
    case TensorProto::DOUBLE:
      return "float64";
    default:
      return "";
  }
}

std::string type_name(int32_t type) {
  return TensorProto::DataType_IsValid(type)
             ? TensorProto::DataType_Name(static_cast<TensorProto::DataType>(type))
             : "type " + to_text(type);
}

module::Floats take_floats(TensorProto* taken) {
  const TensorProto& tensor = *taken;
  if (float_name(tensor).empty()) {
    refuse_unsupported("type: got " + type_name(tensor.data_type()) +
                       ", need float16, bfloat16, float32 or float64" + where(tensor));
  }
  check_stored(tensor);
  const int64_t count = count_of(tensor);
  if (tensor.data_type() == TensorProto::FLOAT && tensor.has_raw_data() && count > 0) {
    const std::shared_ptr<std::string> kept(taken->release_raw_data());
    auto* const first = reinterpret_cast<float*>(kept->data());
    // A text keeps its bytes where new floats might be, but for a short one.
    if (reinterpret_cast<uintptr_t>(first) % alignof(float) == 0) {
      return {kept, first, static_cast<size_t>(count)};
    }
    module::Floats values(static_cast<size_t>(count));
    std::memcpy(values.data(), kept->data(), kept->size());
    return values;
  }
  module::Floats values(static_cast<size_t>(count));
  int64_t overflows = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double wide = element(tensor, i);
    const auto narrow = static_cast<float>(wide);
    values[static_cast<size_t>(i)] = narrow;
    overflows += std::isinf(narrow) && std::isfinite(wide);
  }
  if (overflows > 0) {
    refuse_unsupported("values: got " + to_text(overflows) +
                       " beyond float32, need values that float32 can hold" + where(tensor));
  }
  return values;
}

std::optional<double> read_number(const TensorProto& tensor) {
  if (count_of(tensor) != 1 || (float_name(tensor).empty() && !is_integer(tensor))) {
    return std::nullopt;
  }
  check_stored(tensor);
  return is_integer(tensor) ? static_cast<double>(integer(tensor, 0)) : element(tensor, 0);
}

std::optional<std::vector<int64_t>> read_integers(const TensorProto& tensor) {
  if (!is_integer(tensor)) return std::nullopt;
  check_stored(tensor);
  std::vector<int64_t> values(static_cast<size_t>(count_of(tensor)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = integer(tensor, static_cast<int64_t>(i));
  return values;
}

}  // namespace volup::onnx_file
