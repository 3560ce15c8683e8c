// SPDX-License-Identifier: Apache-2.0
//
// Every function of volup.h. Each body is one guarded lambda: guard is the only place where
// exceptions are caught, and where the thread's error text is set.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <string>

#include "abi_convert.h"
#include "c_api_options.h"
#include "c_api_structs.h"
#include "device.h"
#include "load/load.h"
#include "log.h"
#include "model.h"
#include "problem.h"
#include "session.h"
#include "volup/volup.h"

struct volup_model {
  std::shared_ptr<const volup::Model> model;
};

struct volup_session {
  std::unique_ptr<volup::Session> session;
};

struct volup_buffer {
  std::unique_ptr<volup::Device> device;
  void* memory;
  size_t bytes;
};

namespace volup {
namespace {

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

volup_status report(const Status& status) noexcept {
  if (status.ok()) return VOLUP_STATUS_OK;
  try {
    last_error() = status.text();
    log(VOLUP_LOG_ERROR, status.text());
  } catch (...) {
    last_error().clear();
  }
  return status.code();
}

template <typename Body>
volup_status guard(const Body& body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report({VOLUP_STATUS_OUT_OF_MEMORY, "host memory: the allocation failed"});
  } catch (const std::exception& error) {
    return report({VOLUP_STATUS_INTERNAL, error.what()});
  } catch (...) {
    return report({VOLUP_STATUS_INTERNAL, "an unknown exception"});
  }
}

// The body runs with the session to itself, or not at all.
template <typename Body>
volup_status guard_session(volup_session* session, const Body& body) noexcept {
  return guard([&]() -> Status {
    if (session == nullptr) return invalid_argument("session: got NULL");
    if (!session->session->try_enter()) {
      return {VOLUP_STATUS_BUSY,
              "session: another thread is inside it; give each thread a session of its own"};
    }
    const struct Leaver {
      Session& session;
      ~Leaver() { session.leave(); }
    } leaver{*session->session};
    return body(*session->session);
  });
}

Shape5 shape_of(const int64_t values[5]) {
  return {values[0], values[1], values[2], values[3], values[4]};
}

// Reads the three tensors of a call into storage.
Status read_tensors(const volup_tensor* x, const volup_tensor* add, const volup_tensor* out,
                    volup_tensor (&storage)[3], Tensors* tensors) {
  VOLUP_RETURN_IF_ERROR(read_struct("x", x, &storage[0]));
  if (add != nullptr) VOLUP_RETURN_IF_ERROR(read_struct("add", add, &storage[1]));
  VOLUP_RETURN_IF_ERROR(read_struct("out", out, &storage[2]));
  *tensors = {&storage[0], add == nullptr ? nullptr : &storage[1], &storage[2]};
  return {};
}

template <typename Load>
volup_status load_model(const volup_load_options* options, volup_model** out, const Load& load) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("model", out));
    VOLUP_ASSIGN_OR_RETURN(const LoadOptions read, read_load_options(options));
    VOLUP_ASSIGN_OR_RETURN(auto model, load(read));
    *out = new volup_model{std::move(model)};
    return {};
  });
}

Status check_range(const volup_buffer* buffer, size_t offset, const void* host, size_t bytes) {
  VOLUP_RETURN_IF_ERROR(need("buffer", buffer));
  if (bytes != 0) VOLUP_RETURN_IF_ERROR(need("host memory", host));
  if (offset > buffer->bytes || bytes > buffer->bytes - offset) {
    return invalid_argument("buffer: got ", bytes, " bytes at offset ", offset,
                            ", need the end within ", buffer->bytes);
  }
  return {};
}

}  // namespace
}  // namespace volup

using namespace volup;  // NOLINT(google-build-using-namespace): every body below is volup's own

int32_t volup_version(void) {
  return VOLUP_VERSION_MAJOR * 10000 + VOLUP_VERSION_MINOR * 100 + VOLUP_VERSION_PATCH;
}

const char* volup_status_name(volup_status status) {
  switch (status) {
    case VOLUP_STATUS_OK:
      return "ok";
    case VOLUP_STATUS_INVALID_ARGUMENT:
      return "invalid argument";
    case VOLUP_STATUS_NOT_PREPARED:
      return "not prepared";
    case VOLUP_STATUS_BUSY:
      return "busy";
    case VOLUP_STATUS_UNREADABLE:
      return "unreadable";
    case VOLUP_STATUS_UNSUPPORTED:
      return "unsupported";
    case VOLUP_STATUS_UNAVAILABLE:
      return "unavailable";
    case VOLUP_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VOLUP_STATUS_DEVICE_ERROR:
      return "device error";
    case VOLUP_STATUS_INTERNAL:
      return "internal";
  }
  return "unknown";
}

const char* volup_last_error(void) { return last_error().c_str(); }

volup_status volup_epilogue_init(volup_epilogue_kind kind, volup_epilogue* epilogue) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("epilogue", epilogue));
    VOLUP_RETURN_IF_ERROR(check_kind(kind));
    *epilogue = epilogue_to_abi(default_epilogue(static_cast<EpilogueKind>(kind)));
    return {};
  });
}

volup_status volup_model_load(const char* path, const volup_load_options* options,
                              volup_model** model) {
  return load_model(options, model,
                    [&](const LoadOptions& read) -> Result<std::shared_ptr<const Model>> {
                      VOLUP_RETURN_IF_ERROR(need("path", path));
                      return load_model_file(path, read);
                    });
}

volup_status volup_model_load_memory(const void* data, size_t size,
                                     const volup_load_options* options, volup_model** model) {
  return load_model(options, model,
                    [&](const LoadOptions& read) -> Result<std::shared_ptr<const Model>> {
                      if (size != 0) VOLUP_RETURN_IF_ERROR(need("data", data));
                      return load_model_memory(data, size, read);
                    });
}

volup_status volup_model_create(const volup_model_desc* desc, volup_model** model) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("model", model));
    volup_model_desc read;
    VOLUP_RETURN_IF_ERROR(read_struct("desc", desc, &read));
    VOLUP_ASSIGN_OR_RETURN(const ConvTranspose3d geometry, read_geometry(read.geometry));
    volup_epilogue abi_epilogue;
    VOLUP_RETURN_IF_ERROR(read_struct("epilogue", read.epilogue, &abi_epilogue));
    VOLUP_RETURN_IF_ERROR(check_kind(abi_epilogue.kind));
    VOLUP_RETURN_IF_ERROR(validate(geometry));
    VOLUP_RETURN_IF_ERROR(need("weight", read.weight));
    if (read.weight_count != geometry.weight_count()) {
      return invalid_argument("weight_count: got ", read.weight_count, ", need ",
                              geometry.weight_count(), " for the geometry");
    }
    if (read.bias_count != (read.bias == nullptr ? 0 : geometry.out_channels)) {
      return invalid_argument("bias_count: got ", read.bias_count, ", need ",
                              read.bias == nullptr ? 0 : geometry.out_channels);
    }
    const auto copy = [](const float* values, int64_t count) -> FloatArray {
      if (values == nullptr) return nullptr;
      std::shared_ptr<float[]> copied(new float[count]);
      std::copy(values, values + count, copied.get());
      return copied;
    };
    VOLUP_ASSIGN_OR_RETURN(
        auto created,
        Model::create(geometry, epilogue_from_abi(abi_epilogue),
                      copy(read.weight, read.weight_count), read.weight_count,
                      copy(read.bias, read.bias_count), read.bias_count, ModelSource{}));
    *model = new volup_model{std::move(created)};
    return {};
  });
}

volup_status volup_model_save(const volup_model* model, const char* path,
                              const volup_load_options* options) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("model", model));
    VOLUP_RETURN_IF_ERROR(need("path", path));
    VOLUP_ASSIGN_OR_RETURN(const LoadOptions read, read_load_options(options));
    return save_model_file(*model->model, path, read);
  });
}

volup_status volup_model_geometry(const volup_model* model, volup_geometry* out) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("model", model));
    VOLUP_RETURN_IF_ERROR(check_out_struct("geometry", out));
    write_struct(geometry_to_abi(model->model->geometry()), out);
    return {};
  });
}

volup_status volup_model_epilogue(const volup_model* model, volup_epilogue* out) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("model", model));
    VOLUP_RETURN_IF_ERROR(check_out_struct("epilogue", out));
    write_struct(epilogue_to_abi(model->model->epilogue()), out);
    return {};
  });
}

volup_status volup_model_weights(const volup_model* model, const float** weight,
                                 const float** bias) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("model", model));
    VOLUP_RETURN_IF_ERROR(need("weight", weight));
    VOLUP_RETURN_IF_ERROR(need("bias", bias));
    *weight = model->model->weight();
    *bias = model->model->bias();
    return {};
  });
}

volup_status volup_model_describe(const volup_model* model, const char** json) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("model", model));
    VOLUP_RETURN_IF_ERROR(need("json", json));
    *json = model->model->description().c_str();
    return {};
  });
}

volup_status volup_model_output_shape(const volup_model* model, const int64_t input[5],
                                      int64_t output[5]) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("model", model));
    VOLUP_RETURN_IF_ERROR(need("input", input));
    VOLUP_RETURN_IF_ERROR(need("output", output));
    VOLUP_ASSIGN_OR_RETURN(
        const Problem problem,
        make_problem(model->model->geometry(), model->model->epilogue(), shape_of(input)));
    std::copy(problem.output.begin(), problem.output.end(), output);
    return {};
  });
}

void volup_model_destroy(volup_model* model) { delete model; }

volup_status volup_problem_parse(const char* text, volup_problem* problem) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("text", text));
    VOLUP_RETURN_IF_ERROR(check_out_struct("problem", problem));
    VOLUP_RETURN_IF_ERROR(check_out_struct("problem.geometry", problem->geometry));
    VOLUP_ASSIGN_OR_RETURN(const Problem parsed, parse_problem(text));
    write_struct(geometry_to_abi(parsed.geometry), problem->geometry);
    problem->epilogue = static_cast<int32_t>(parsed.epilogue.kind);
    problem->precision = static_cast<int32_t>(parsed.precision);
    problem->io_dtype = static_cast<int32_t>(parsed.io);
    std::copy(parsed.input.begin(), parsed.input.end(), problem->input);
    return {};
  });
}

volup_status volup_problem_print(const volup_problem* problem, char* buffer, size_t size) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("buffer", buffer));
    volup_problem read;
    VOLUP_RETURN_IF_ERROR(read_struct("problem", problem, &read));
    VOLUP_ASSIGN_OR_RETURN(const ConvTranspose3d geometry, read_geometry(read.geometry));
    VOLUP_RETURN_IF_ERROR(check_kind(read.epilogue));
    VOLUP_ASSIGN_OR_RETURN(const Precision precision,
                           read_enum("precision", read.precision, Precision::kFp16));
    VOLUP_ASSIGN_OR_RETURN(const DType io, read_enum("io_dtype", read.io_dtype, DType::kBf16));
    VOLUP_ASSIGN_OR_RETURN(
        const Problem made,
        make_problem(geometry, default_epilogue(static_cast<EpilogueKind>(read.epilogue)),
                     shape_of(read.input), precision, io));
    const std::string text = print(made);
    if (text.size() + 1 > size) {
      return invalid_argument("buffer: got ", size, " bytes, need ", text.size() + 1);
    }
    std::memcpy(buffer, text.c_str(), text.size() + 1);
    return {};
  });
}

volup_status volup_session_create(const volup_model* model, const volup_session_options* options,
                                  volup_session** session) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("model", model));
    VOLUP_RETURN_IF_ERROR(need("session", session));
    VOLUP_ASSIGN_OR_RETURN(const SessionOptions read, read_session_options(options));
    VOLUP_ASSIGN_OR_RETURN(auto created, Session::create(model->model, read));
    *session = new volup_session{std::move(created)};
    return {};
  });
}

volup_status volup_session_device(const volup_session* session, int32_t* device_type,
                                  int32_t* device_index) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("session", session));
    const DeviceProperties& device = session->session->device();
    if (device_type != nullptr) *device_type = static_cast<int32_t>(device.type);
    if (device_index != nullptr) *device_index = device.index;
    return {};
  });
}

volup_status volup_session_workspace_size(volup_session* session, const int64_t input[5],
                                          size_t* bytes) {
  return guard_session(session, [&](Session& s) -> Status {
    VOLUP_RETURN_IF_ERROR(need("input", input));
    VOLUP_RETURN_IF_ERROR(need("bytes", bytes));
    VOLUP_ASSIGN_OR_RETURN(*bytes, s.workspace_size(shape_of(input)));
    return {};
  });
}

volup_status volup_session_set_workspace(volup_session* session, void* memory, size_t bytes) {
  return guard_session(session, [&](Session& s) { return s.set_workspace(memory, bytes); });
}

volup_status volup_session_prepare(volup_session* session, const int64_t input[5]) {
  return guard_session(session, [&](Session& s) -> Status {
    VOLUP_RETURN_IF_ERROR(need("input", input));
    return s.prepare(shape_of(input));
  });
}

volup_status volup_session_describe(volup_session* session, const int64_t input[5],
                                    const char** json) {
  return guard_session(session, [&](Session& s) -> Status {
    VOLUP_RETURN_IF_ERROR(need("input", input));
    VOLUP_RETURN_IF_ERROR(need("json", json));
    VOLUP_ASSIGN_OR_RETURN(*json, s.describe(shape_of(input)));
    return {};
  });
}

volup_status volup_session_run(volup_session* session, const volup_tensor* x,
                               const volup_tensor* add, const volup_tensor* out) {
  return guard_session(session, [&](Session& s) -> Status {
    volup_tensor storage[3];
    Tensors tensors;
    VOLUP_RETURN_IF_ERROR(read_tensors(x, add, out, storage, &tensors));
    return s.run(tensors);
  });
}

volup_status volup_session_enqueue(volup_session* session, const volup_tensor* x,
                                   const volup_tensor* add, const volup_tensor* out, void* stream) {
  return guard_session(session, [&](Session& s) -> Status {
    volup_tensor storage[3];
    Tensors tensors;
    VOLUP_RETURN_IF_ERROR(read_tensors(x, add, out, storage, &tensors));
    return s.enqueue(tensors, stream);
  });
}

void volup_session_destroy(volup_session* session) { delete session; }

volup_status volup_device_count(int32_t device_type, int32_t* count) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("count", count));
    if (device_type == VOLUP_DEVICE_CPU) {
      *count = 1;
    } else if (device_type == VOLUP_DEVICE_CUDA) {
      *count = cuda_device_count();
    } else {
      return invalid_argument("device_type: got ", device_type, ", need ", int{VOLUP_DEVICE_CPU},
                              " (cpu) or ", int{VOLUP_DEVICE_CUDA}, " (cuda)");
    }
    return {};
  });
}

volup_status volup_buffer_create(int32_t device_type, int32_t device_index, size_t bytes,
                                 volup_buffer** buffer) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(need("buffer", buffer));
    if (device_type != VOLUP_DEVICE_CPU && device_type != VOLUP_DEVICE_CUDA) {
      return invalid_argument("device_type: got ", device_type, ", need ", int{VOLUP_DEVICE_CPU},
                              " (cpu) or ", int{VOLUP_DEVICE_CUDA}, " (cuda)");
    }
    VOLUP_ASSIGN_OR_RETURN(auto device, device_type == VOLUP_DEVICE_CPU
                                            ? open_cpu_device(1)
                                            : open_cuda_device(device_index));
    const DeviceScope scope(*device);
    // A buffer without bytes still has an address of its own.
    VOLUP_ASSIGN_OR_RETURN(void* const memory, device->allocate(std::max(bytes, size_t{1})));
    *buffer = new volup_buffer{std::move(device), memory, bytes};
    return {};
  });
}

void* volup_buffer_data(const volup_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->memory;
}

volup_status volup_buffer_copy_in(volup_buffer* buffer, size_t offset, const void* source,
                                  size_t bytes) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(check_range(buffer, offset, source, bytes));
    const DeviceScope scope(*buffer->device);
    return buffer->device->copy_in(static_cast<char*>(buffer->memory) + offset, source, bytes);
  });
}

volup_status volup_buffer_copy_out(const volup_buffer* buffer, size_t offset, void* destination,
                                   size_t bytes) {
  return guard([&]() -> Status {
    VOLUP_RETURN_IF_ERROR(check_range(buffer, offset, destination, bytes));
    const DeviceScope scope(*buffer->device);
    VOLUP_RETURN_IF_ERROR(buffer->device->synchronize());
    return buffer->device->copy_out(destination, static_cast<char*>(buffer->memory) + offset,
                                    bytes);
  });
}

void volup_buffer_destroy(volup_buffer* buffer) {
  if (buffer == nullptr) return;
  {
    const DeviceScope scope(*buffer->device);
    buffer->device->free(buffer->memory);
  }
  delete buffer;
}

volup_status volup_session_time(volup_session* session, const int64_t input[5], int32_t iterations,
                                volup_timing* timing) {
  return guard_session(session, [&](Session& s) -> Status {
    VOLUP_RETURN_IF_ERROR(need("input", input));
    VOLUP_RETURN_IF_ERROR(check_out_struct("timing", timing));
    VOLUP_ASSIGN_OR_RETURN(const volup_timing measured, s.time(shape_of(input), iterations));
    write_struct(measured, timing);
    return {};
  });
}

volup_status volup_set_log(volup_log_sink sink, void* context, volup_log_level level) {
  return guard([&]() -> Status {
    if (level < VOLUP_LOG_ERROR || level > VOLUP_LOG_DEBUG) {
      return invalid_argument("level: got ", static_cast<int>(level), ", need ",
                              int{VOLUP_LOG_ERROR}, " to ", int{VOLUP_LOG_DEBUG});
    }
    set_log(sink, context, level);
    return {};
  });
}
