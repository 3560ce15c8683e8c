// SPDX-License-Identifier: Apache-2.0
//
// One run of a model on tensors from files, shared by `run` and `check`: checks that the tensors
// fit the model, converts them to the session's element type and back, and times the run.
#ifndef VOLUP_TOOLS_VOLUP_COMPUTE_H_
#define VOLUP_TOOLS_VOLUP_COMPUTE_H_

#include <optional>

#include "hdf5_file.h"
#include "library.h"
#include "progress.h"

namespace volup::tool {

struct Computed {
  Tensor x;
  Tensor add;  // empty unless the model takes one
  Tensor out;
  nlohmann::json session;  // as volup_session_describe has it
  double seconds = 0;      // of the run alone: copies to and from the device included
};

// add is read for a model that takes it and left alone otherwise.
Computed compute(const volup_model* model, const Options& options, const DatasetName& x,
                 const std::optional<DatasetName>& add, Progress* progress);

bool takes_add(const volup_model* model);

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_COMPUTE_H_
