// SPDX-License-Identifier: Apache-2.0
//
// The JSON texts of the ABI: what a model is, and what a session would run and why. Keys are
// stable.
#ifndef VOLUP_DESCRIBE_H_
#define VOLUP_DESCRIBE_H_

#include <string>

#include "kernel.h"
#include "model.h"

namespace volup {

std::string describe(const Model& model);

struct SessionDescription {
  const Problem& problem;
  const DeviceProperties& device;
  std::string_view device_note;  // why AUTO took the CPU
  const Choice& choice;
  size_t workspace_bytes;
  size_t packed_bytes;  // of the chosen kernel's weights, 0 before prepare
};

std::string describe(const SessionDescription& session);

}  // namespace volup

#endif  // VOLUP_DESCRIBE_H_
