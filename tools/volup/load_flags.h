// SPDX-License-Identifier: Apache-2.0
//
// The options of every command that loads a model: which block of the file, and what a file of
// weights alone leaves open. Texts of the command line in, a LoadChoice out. Holds no CLI11.
#ifndef VOLUP_TOOLS_VOLUP_LOAD_FLAGS_H_
#define VOLUP_TOOLS_VOLUP_LOAD_FLAGS_H_

#include <string>

#include "options.h"

namespace volup::tool {

// As they were given; empty: left out.
struct LoadTexts {
  std::string submodule;
  bool ignore_crc = false;
  bool allow_nonfinite = false;
  std::string type, kernel_size, stride, padding, output_padding, dilation, groups;
  std::string shift, divisor, subtract, clamp_min, clamp_max;
};

// Throws a usage Failure that names the option.
LoadChoice parse_load_texts(const LoadTexts& texts);

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_LOAD_FLAGS_H_
