// SPDX-License-Identifier: Apache-2.0
//
// What the command line asked for, parsed and checked. Holds no CLI11, so that only
// command_line.cpp pays for it.
#ifndef VOLUP_TOOLS_VOLUP_OPTIONS_H_
#define VOLUP_TOOLS_VOLUP_OPTIONS_H_

#include <volup/volup.h>

#include <cstdint>
#include <optional>
#include <string>

#include "words.h"

namespace volup::tool {

enum class Command { kNone, kInspect, kConvert, kRun, kCheck, kBench };

// Where and how a session computes. Names are the words of the command line.
struct SessionChoice {
  volup_device_type device_type = VOLUP_DEVICE_AUTO;
  std::int32_t device_index = 0;
  std::optional<volup_precision> precision;  // left out: fp32, or what the problem string says
  std::optional<volup_dtype> io;             // left out: fp32, or what the problem string says
  std::string kernel;                        // "": the library chooses
  std::int32_t threads = 0;                  // 0: every CPU this process may use
};

// What the file leaves open, and which part of it is meant: volup_load_options.
struct LoadChoice {
  std::string submodule;  // "": the file's own
  std::uint32_t flags = 0;
  std::optional<volup_epilogue> epilogue;
  std::optional<volup_geometry> geometry;

  bool is_default() const { return submodule.empty() && flags == 0 && !epilogue && !geometry; }
};

struct Options {
  Command command = Command::kNone;
  bool json = false;
  bool quiet = false;
  int verbosity = 0;  // -v: the library's info lines; -vv: its debug lines too

  std::string model;   // MODEL, FILE or IN; the problem string for bench without --shape
  std::string second;  // convert: OUT.h5; check: FILE.h5
  std::string input;   // FILE[:DATASET], as given
  std::string add;
  std::string output;

  std::optional<Shape> shape;   // bench
  std::int32_t iterations = 0;  // bench; 0: the library's default
  std::uint64_t seed = 1;       // bench with a problem string

  LoadChoice load;
  SessionChoice session;
};

const char* command_name(Command command);
const char* precision_name(volup_precision precision);
const char* dtype_name(volup_dtype dtype);

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_OPTIONS_H_
