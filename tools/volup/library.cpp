// SPDX-License-Identifier: Apache-2.0
//
// See library.h.
#include "library.h"

#include <algorithm>

#include "progress.h"

namespace volup::tool {
namespace {

using nlohmann::json;

ExitCode exit_code(volup_status status, About about) {
  switch (status) {
    case VOLUP_STATUS_INVALID_ARGUMENT:
      return about == About::kCommandLine ? ExitCode::kUsage : ExitCode::kUnsupported;
    case VOLUP_STATUS_UNREADABLE:
      return ExitCode::kUnreadable;
    case VOLUP_STATUS_UNSUPPORTED:
      return ExitCode::kUnsupported;
    case VOLUP_STATUS_UNAVAILABLE:
      return about == About::kModelFile ? ExitCode::kUnsupported : ExitCode::kDevice;
    case VOLUP_STATUS_OUT_OF_MEMORY:
    case VOLUP_STATUS_DEVICE_ERROR:
      return ExitCode::kDevice;
    default:
      return ExitCode::kInternal;
  }
}

json parse_description(const char* text) {
  json description = json::parse(text, nullptr, false);
  if (description.is_discarded() || !description.is_object()) {
    throw Failure(ExitCode::kInternal, "the library's description is not a JSON object");
  }
  return description;
}

volup_status create_session(const volup_model* model, const SessionChoice& choice,
                            const char* kernel, Session* session) {
  volup_session_options options{};
  options.struct_size = sizeof options;
  options.device_type = choice.device_type;
  options.device_index = choice.device_index;
  options.precision = choice.precision.value_or(VOLUP_PRECISION_FP32);
  options.io_dtype = choice.io.value_or(VOLUP_DTYPE_FP32);
  options.threads = choice.threads;
  options.kernel = kernel;
  volup_session* raw = nullptr;
  const volup_status status = volup_session_create(model, &options, &raw);
  session->reset(raw);
  return status;
}

// Throws a usage Failure if it is the kernel's name that was wrong.
void fail_on_unknown_kernel(const volup_model* model, const SessionChoice& choice,
                            const Shape& shape) {
  Session session;
  const char* text = nullptr;
  if (create_session(model, choice, nullptr, &session) != VOLUP_STATUS_OK) return;
  if (volup_session_describe(session.get(), shape.data(), &text) != VOLUP_STATUS_OK) return;
  const json description = parse_description(text);
  std::vector<std::string> names = {description.value("kernel", "")};
  for (const json& refused : description.value("refused", json::array())) {
    names.push_back(refused.value("kernel", ""));
  }
  if (std::find(names.begin(), names.end(), choice.kernel) != names.end()) return;
  throw Failure(ExitCode::kUsage, "--kernel: unknown kernel '" + choice.kernel + "'" +
                                      suggestion(choice.kernel, names));
}

void say_log_line(void* /*context*/, volup_log_level /*level*/, const char* line) { say(line); }

}  // namespace

void require(volup_status status, About about) {
  if (status == VOLUP_STATUS_OK) return;
  std::string sentence = volup_last_error();
  if (sentence.empty()) sentence = volup_status_name(status);
  throw Failure(exit_code(status, about), sentence);
}

Model load_model(const std::string& path, const LoadChoice& choice) {
  volup_load_options options{};
  options.struct_size = sizeof options;
  if (!choice.submodule.empty()) options.submodule = choice.submodule.c_str();
  options.flags = choice.flags;
  if (choice.epilogue) options.epilogue = &*choice.epilogue;
  if (choice.geometry) options.geometry = &*choice.geometry;
  volup_model* raw = nullptr;
  const volup_status status = volup_model_load(path.c_str(), &options, &raw);
  Model model(raw);
  // What the file cannot be blamed for stood on the command line.
  require(status,
          status == VOLUP_STATUS_INVALID_ARGUMENT ? About::kCommandLine : About::kModelFile);
  return model;
}

Model create_model(const volup_geometry& geometry, const volup_epilogue& epilogue,
                   const std::vector<float>& weight, const std::vector<float>& bias) {
  volup_model_desc desc{};
  desc.struct_size = sizeof desc;
  desc.geometry = &geometry;
  desc.epilogue = &epilogue;
  desc.weight = weight.data();
  desc.weight_count = static_cast<std::int64_t>(weight.size());
  desc.bias = bias.empty() ? nullptr : bias.data();
  desc.bias_count = static_cast<std::int64_t>(bias.size());
  volup_model* raw = nullptr;
  const volup_status status = volup_model_create(&desc, &raw);
  Model model(raw);
  require(status, About::kCommandLine);
  return model;
}

json describe(const volup_model* model) {
  const char* text = nullptr;
  require(volup_model_describe(model, &text), About::kModelFile);
  return parse_description(text);
}

volup_geometry geometry_of(const volup_model* model) {
  volup_geometry geometry{};
  geometry.struct_size = sizeof geometry;
  require(volup_model_geometry(model, &geometry), About::kModelFile);
  return geometry;
}

volup_epilogue epilogue_of(const volup_model* model) {
  volup_epilogue epilogue{};
  epilogue.struct_size = sizeof epilogue;
  require(volup_model_epilogue(model, &epilogue), About::kModelFile);
  return epilogue;
}

Shape output_shape(const volup_model* model, const Shape& input, About about) {
  Shape output{};
  require(volup_model_output_shape(model, input.data(), output.data()), about);
  return output;
}

Session make_session(const volup_model* model, const SessionChoice& choice, const Shape& shape) {
  Session session;
  const bool forced = !choice.kernel.empty();
  const volup_status status =
      create_session(model, choice, forced ? choice.kernel.c_str() : nullptr, &session);
  if (status == VOLUP_STATUS_OK) return session;
  const std::string sentence = volup_last_error();
  if (status == VOLUP_STATUS_INVALID_ARGUMENT && forced) {
    fail_on_unknown_kernel(model, choice, shape);
  }
  throw Failure(exit_code(status, About::kCommandLine),
                sentence.empty() ? volup_status_name(status) : sentence);
}

json describe(volup_session* session, const Shape& input) {
  const char* text = nullptr;
  require(volup_session_describe(session, input.data(), &text), About::kTensorFile);
  return parse_description(text);
}

volup_tensor host_view(const void* data, const Shape& shape, volup_dtype dtype) {
  volup_tensor view{};
  view.struct_size = sizeof view;
  view.data = const_cast<void*>(data);
  view.dtype = dtype;
  view.device_type = VOLUP_DEVICE_CPU;
  view.rank = 5;
  std::copy(shape.begin(), shape.end(), view.shape);
  return view;
}

void set_log(int verbosity) {
  if (verbosity == 0) return;  // VOLUP_LOG of the environment stays in force
  require(volup_set_log(say_log_line, nullptr, verbosity == 1 ? VOLUP_LOG_INFO : VOLUP_LOG_DEBUG),
          About::kCommandLine);
}

json session_report(const json& session, const SessionChoice& choice) {
  return {{"device", session.value("device", json::object())},
          {"device_note", session.value("device_note", "")},
          {"kernel", session.value("kernel", "")},
          {"tile", session.value("tile", "")},
          {"problem", session.value("problem", "")},
          {"precision", precision_name(choice.precision.value_or(VOLUP_PRECISION_FP32))},
          {"io", dtype_name(choice.io.value_or(VOLUP_DTYPE_FP32))},
          {"workspace_bytes", session.value("workspace_bytes", json())}};
}

std::string device_text(const json& session) {
  const json device = session.value("device", json::object());
  std::string text = device.value("type", "?");
  if (text == "cuda") text += ":" + std::to_string(device.value("index", 0));
  const std::string name = device.value("name", "");
  return name.empty() ? text : text + " (" + name + ")";
}

void say_choice(const json& session, const Options& options) {
  if (options.quiet) return;
  const std::string note = session.value("device_note", "");
  if (!note.empty()) say("note: running on the CPU: " + note);
  if (options.verbosity == 0) return;
  for (const json& refused : session.value("refused", json::array())) {
    say("not " + refused.value("kernel", "?") + ": " + refused.value("why", "?"));
  }
}

}  // namespace volup::tool
