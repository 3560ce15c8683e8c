// SPDX-License-Identifier: Apache-2.0
//
// The tool's seam to the C API: owners for its handles, and statuses turned into Failures with the
// exit code that fits what was being done.
#ifndef VOLUP_TOOLS_VOLUP_LIBRARY_H_
#define VOLUP_TOOLS_VOLUP_LIBRARY_H_

#include <volup/volup.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "failure.h"
#include "options.h"
#include "words.h"

namespace volup::tool {

struct DestroyModel {
  void operator()(volup_model* model) const { volup_model_destroy(model); }
};
struct DestroySession {
  void operator()(volup_session* session) const { volup_session_destroy(session); }
};
using Model = std::unique_ptr<volup_model, DestroyModel>;
using Session = std::unique_ptr<volup_session, DestroySession>;

// What a call was about, which decides whose fault an answer is: an unavailable loader module is
// not an unavailable device, and a shape from a file is not a shape from the command line.
enum class About { kModelFile, kTensorFile, kCommandLine };

// Throws Failure with volup_last_error() unless status is OK.
void require(volup_status status, About about);

Model load_model(const std::string& path, const LoadChoice& choice);
// bias may be empty.
Model create_model(const volup_geometry& geometry, const volup_epilogue& epilogue,
                   const std::vector<float>& weight, const std::vector<float>& bias);
nlohmann::json describe(const volup_model* model);
volup_geometry geometry_of(const volup_model* model);
volup_epilogue epilogue_of(const volup_model* model);
Shape output_shape(const volup_model* model, const Shape& input, About about);

// shape is the input that will be run; it serves to name the kernels when choice.kernel is unknown.
Session make_session(const volup_model* model, const SessionChoice& choice, const Shape& shape);
nlohmann::json describe(volup_session* session, const Shape& input);

// A dense host tensor. The session only reads what is handed to it as input.
volup_tensor host_view(const void* data, const Shape& shape, volup_dtype dtype);

// The library's log lines go to stderr: none, info (1), debug (2).
void set_log(int verbosity);

// How a session ran, as text and as JSON. Stable keys: device, kernel, tile, problem, precision,
// io.
nlohmann::json session_report(const nlohmann::json& session, const SessionChoice& choice);
std::string device_text(const nlohmann::json& session);
// Says on stderr why AUTO took the CPU, and with -v why each other kernel was not taken.
void say_choice(const nlohmann::json& session, const Options& options);

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_LIBRARY_H_
