// SPDX-License-Identifier: Apache-2.0
//
// FILE[:DATASET] of the command line, split. Opens no file.
#ifndef VOLUP_TOOLS_VOLUP_DATASET_NAME_H_
#define VOLUP_TOOLS_VOLUP_DATASET_NAME_H_

#include <string>
#include <string_view>

namespace volup::tool {

struct DatasetName {
  std::string file;
  std::string dataset;
};

// A text that exists as a file is the file. Else the last colon splits it, unless what follows ends
// like a file (.h5, .hdf5) and what precedes is no file: a path with a colon that is yet to be
// made. "FILE:" takes the default dataset.
DatasetName split_dataset_name(const std::string& text, std::string_view default_dataset);

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_DATASET_NAME_H_
