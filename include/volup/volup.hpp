// SPDX-License-Identifier: Apache-2.0
//
// The C++ API of volup: move-only holders over volup.h, header-only, C++17. A failing call throws
// volup::Error, which carries the status and the words of volup_last_error(). What each call does,
// its threads and its errors are told in volup.h under the function that it names.
#ifndef VOLUP_VOLUP_HPP_
#define VOLUP_VOLUP_HPP_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "volup/volup.h"

namespace volup {
// Inline: distinct symbols from those of the library's own namespace volup, the same spelling for
// users.
inline namespace api {

// N, C, D, H, W.
using Shape = std::array<std::int64_t, 5>;

class Error : public std::runtime_error {
 public:
  Error(volup_status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  volup_status status() const noexcept { return status_; }

 private:
  volup_status status_;
};

// Throws unless status is OK.
inline void check(volup_status status) {
  if (status != VOLUP_STATUS_OK) throw Error(status, volup_last_error());
}

// A struct of volup.h with its size set and all else zero: every field at its default.
template <typename Struct>
Struct defaults() {
  Struct value{};
  value.struct_size = sizeof(Struct);
  return value;
}

inline volup_geometry geometry() {
  auto g = defaults<volup_geometry>();
  g.groups = 1;
  for (int axis = 0; axis < 3; ++axis) g.kernel[axis] = g.stride[axis] = g.dilation[axis] = 1;
  return g;
}

inline volup_epilogue epilogue(volup_epilogue_kind kind) {
  auto e = defaults<volup_epilogue>();
  check(volup_epilogue_init(kind, &e));
  return e;
}

inline std::size_t element_size(volup_dtype dtype) { return dtype == VOLUP_DTYPE_FP32 ? 4 : 2; }

inline std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

// Views of dense memory. The memory is only read where the tensor is an input.
inline volup_tensor host_tensor(const void* data, const Shape& shape,
                                volup_dtype dtype = VOLUP_DTYPE_FP32) {
  auto tensor = defaults<volup_tensor>();
  tensor.data = const_cast<void*>(data);
  tensor.dtype = dtype;
  tensor.device_type = VOLUP_DEVICE_CPU;
  tensor.rank = 5;
  for (std::size_t axis = 0; axis < 5; ++axis) tensor.shape[axis] = shape[axis];
  return tensor;
}

inline volup_tensor cuda_tensor(const void* data, const Shape& shape,
                                volup_dtype dtype = VOLUP_DTYPE_FP32, int device_index = 0) {
  auto tensor = host_tensor(data, shape, dtype);
  tensor.device_type = VOLUP_DEVICE_CUDA;
  tensor.device_index = device_index;
  return tensor;
}

// A model: geometry, epilogue and weights. volup_model_*.
class Model {
 public:
  // From a file, or from its bytes; module_directory empty: the default.
  static Model load(const std::string& path, const std::string& module_directory = {}) {
    return load(path, load_options(module_directory));
  }
  static Model load(const void* data, std::size_t size, const std::string& module_directory = {}) {
    return load(data, size, load_options(module_directory));
  }
  // With all options, for files of weights alone and for flags: defaults<volup_load_options>().
  static Model load(const std::string& path, const volup_load_options& options) {
    volup_model* model = nullptr;
    check(volup_model_load(path.c_str(), &options, &model));
    return Model(model);
  }
  static Model load(const void* data, std::size_t size, const volup_load_options& options) {
    volup_model* model = nullptr;
    check(volup_model_load_memory(data, size, &options, &model));
    return Model(model);
  }
  // weight: [in_channels, out_channels / groups, kD, kH, kW]; bias: [out_channels] or empty.
  Model(const volup_geometry& geometry, const volup_epilogue& epilogue,
        const std::vector<float>& weight, const std::vector<float>& bias = {}) {
    auto desc = defaults<volup_model_desc>();
    desc.geometry = &geometry;
    desc.epilogue = &epilogue;
    desc.weight = weight.data();
    desc.weight_count = static_cast<std::int64_t>(weight.size());
    desc.bias = bias.empty() ? nullptr : bias.data();
    desc.bias_count = static_cast<std::int64_t>(bias.size());
    volup_model* model = nullptr;
    check(volup_model_create(&desc, &model));
    handle_.reset(model);
  }

  void save(const std::string& path, const std::string& module_directory = {}) const {
    const auto options = load_options(module_directory);
    check(volup_model_save(get(), path.c_str(), &options));
  }
  volup_geometry geometry() const {
    auto out = defaults<volup_geometry>();
    check(volup_model_geometry(get(), &out));
    return out;
  }
  volup_epilogue epilogue() const {
    auto out = defaults<volup_epilogue>();
    check(volup_model_epilogue(get(), &out));
    return out;
  }
  // A JSON object.
  std::string describe() const {
    const char* json = nullptr;
    check(volup_model_describe(get(), &json));
    return json;
  }
  Shape output_shape(const Shape& input) const {
    Shape output{};
    check(volup_model_output_shape(get(), input.data(), output.data()));
    return output;
  }
  const volup_model* get() const noexcept { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(volup_model* model) const noexcept { volup_model_destroy(model); }
  };
  explicit Model(volup_model* model) : handle_(model) {}
  static volup_load_options load_options(const std::string& module_directory) {
    auto options = defaults<volup_load_options>();
    if (!module_directory.empty()) options.module_directory = module_directory.c_str();
    return options;
  }

  std::unique_ptr<volup_model, Destroy> handle_;
};

// A model on a device. volup_session_*. One thread at a time.
class Session {
 public:
  explicit Session(const Model& model,
                   const volup_session_options& options = defaults<volup_session_options>())
      : io_dtype_(static_cast<volup_dtype>(options.io_dtype)) {
    volup_session* session = nullptr;
    check(volup_session_create(model.get(), &options, &session));
    handle_.reset(session);
  }

  volup_device_type device() const {
    std::int32_t type = 0;
    check(volup_session_device(handle_.get(), &type, nullptr));
    return static_cast<volup_device_type>(type);
  }
  int device_index() const {
    std::int32_t index = 0;
    check(volup_session_device(handle_.get(), nullptr, &index));
    return index;
  }
  std::size_t workspace_size(const Shape& input) {
    std::size_t bytes = 0;
    check(volup_session_workspace_size(handle_.get(), input.data(), &bytes));
    return bytes;
  }
  void set_workspace(void* memory, std::size_t bytes) {
    check(volup_session_set_workspace(handle_.get(), memory, bytes));
  }
  void prepare(const Shape& input) { check(volup_session_prepare(handle_.get(), input.data())); }
  // A JSON object.
  std::string describe(const Shape& input) {
    const char* json = nullptr;
    check(volup_session_describe(handle_.get(), input.data(), &json));
    return json;
  }

  // Host memory in, host memory out; add is null unless the epilogue takes one.
  void run(const volup_tensor& x, const volup_tensor* add, const volup_tensor& out) {
    check(volup_session_run(handle_.get(), &x, add, &out));
  }
  // The same for fp32 arrays; the shapes follow from the input's.
  void run(const float* x, const Shape& input, const float* add, float* out, const Shape& output) {
    const volup_tensor x_view = host_tensor(x, input);
    const volup_tensor add_view = host_tensor(add, output);
    run(x_view, add == nullptr ? nullptr : &add_view, host_tensor(out, output));
  }
  // Memory on the session's device; stream is a cudaStream_t.
  void enqueue(const volup_tensor& x, const volup_tensor* add, const volup_tensor& out,
               void* stream = nullptr) {
    check(volup_session_enqueue(handle_.get(), &x, add, &out, stream));
  }
  volup_timing time(const Shape& input, int iterations = 0) {
    auto timing = defaults<volup_timing>();
    check(volup_session_time(handle_.get(), input.data(), iterations, &timing));
    return timing;
  }
  volup_dtype io_dtype() const noexcept { return io_dtype_; }
  volup_session* get() const noexcept { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(volup_session* session) const noexcept { volup_session_destroy(session); }
  };

  std::unique_ptr<volup_session, Destroy> handle_;
  volup_dtype io_dtype_;
};

// Memory on a device, for callers without CUDA headers. volup_buffer_*.
class Buffer {
 public:
  Buffer(volup_device_type type, int device_index, std::size_t bytes) : bytes_(bytes) {
    volup_buffer* buffer = nullptr;
    check(volup_buffer_create(type, device_index, bytes, &buffer));
    handle_.reset(buffer);
  }
  void* data() const noexcept { return volup_buffer_data(handle_.get()); }
  std::size_t size() const noexcept { return bytes_; }
  void copy_in(const void* source, std::size_t bytes, std::size_t offset = 0) {
    check(volup_buffer_copy_in(handle_.get(), offset, source, bytes));
  }
  void copy_out(void* destination, std::size_t bytes, std::size_t offset = 0) const {
    check(volup_buffer_copy_out(handle_.get(), offset, destination, bytes));
  }

 private:
  struct Destroy {
    void operator()(volup_buffer* buffer) const noexcept { volup_buffer_destroy(buffer); }
  };

  std::unique_ptr<volup_buffer, Destroy> handle_;
  std::size_t bytes_;
};

inline int device_count(volup_device_type type) {
  std::int32_t count = 0;
  check(volup_device_count(type, &count));
  return count;
}

// Version of the library that is loaded, as volup_version().
inline int version() { return volup_version(); }

}  // namespace api
}  // namespace volup

#endif  // VOLUP_VOLUP_HPP_
