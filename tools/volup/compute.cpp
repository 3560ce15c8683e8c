// SPDX-License-Identifier: Apache-2.0
//
// See compute.h.
#include "compute.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "half.h"

namespace volup::tool {
namespace {

// A tensor's values as the session wants them: the tensor's own memory for fp32, else a copy.
class Encoded {
 public:
  Encoded(Tensor* tensor, volup_dtype dtype) : tensor_(tensor), dtype_(dtype) {
    if (dtype == VOLUP_DTYPE_FP32) return;
    halves_.resize(tensor->values.size());
    const auto encode = dtype == VOLUP_DTYPE_FP16 ? fp16_from_float : bf16_from_float;
    std::transform(tensor->values.begin(), tensor->values.end(), halves_.begin(), encode);
  }

  volup_tensor view() const {
    const void* data = dtype_ == VOLUP_DTYPE_FP32 ? static_cast<const void*>(tensor_->values.data())
                                                  : static_cast<const void*>(halves_.data());
    return host_view(data, tensor_->shape, dtype_);
  }

  // Puts what the session wrote back into the tensor.
  void decode() {
    if (dtype_ == VOLUP_DTYPE_FP32) return;
    const auto decode = dtype_ == VOLUP_DTYPE_FP16 ? float_from_fp16 : float_from_bf16;
    std::transform(halves_.begin(), halves_.end(), tensor_->values.begin(), decode);
  }

 private:
  Tensor* tensor_;
  volup_dtype dtype_;
  std::vector<std::uint16_t> halves_;
};

// NaN everywhere: an element that the session forgets cannot pass for a result.
Tensor poisoned(const Shape& shape) {
  const auto count = element_count(shape);
  if (!count) throw Failure(ExitCode::kUnsupported, "the output is too large to address");
  return {shape, std::vector<float>(static_cast<std::size_t>(*count),
                                    std::numeric_limits<float>::quiet_NaN())};
}

}  // namespace

bool takes_add(const volup_model* model) {
  return epilogue_of(model).kind == VOLUP_EPILOGUE_ADD_HARDSWISH;
}

Computed compute(const volup_model* model, const Options& options, const DatasetName& x_name,
                 const std::optional<DatasetName>& add_name, Progress* progress) {
  // Shapes are compared before gigabytes are read.
  const Shape input = read_shape(x_name);
  const Shape output = output_shape(model, input, About::kTensorFile);
  const bool with_add = add_name.has_value() && takes_add(model);
  if (with_add) {
    const Shape got = read_shape(*add_name);
    if (got != output) {
      throw Failure(ExitCode::kUnsupported,
                    "dataset '" + add_name->dataset + "' of '" + add_name->file + "': got shape " +
                        shape_text(got) + ", need " + shape_text(output) + " (that of the output)");
    }
  }
  const Session session = make_session(model, options.session, input);
  Computed computed;
  computed.x = read_tensor(x_name, progress);
  if (with_add) computed.add = read_tensor(*add_name, progress);
  computed.out = poisoned(output);

  const volup_dtype io = options.session.io.value_or(VOLUP_DTYPE_FP32);
  Encoded encoded_x(&computed.x, io);
  Encoded encoded_add(&computed.add, io);
  Encoded encoded_out(&computed.out, io);
  const volup_tensor x_view = encoded_x.view();
  const volup_tensor add_view = encoded_add.view();
  const volup_tensor out_view = encoded_out.view();

  progress->phase("computing");
  require(volup_session_prepare(session.get(), input.data()), About::kTensorFile);
  const auto start = std::chrono::steady_clock::now();
  require(volup_session_run(session.get(), &x_view, with_add ? &add_view : nullptr, &out_view),
          About::kTensorFile);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  encoded_out.decode();

  computed.seconds = elapsed.count();
  computed.session = describe(session.get(), input);
  return computed;
}

}  // namespace volup::tool
