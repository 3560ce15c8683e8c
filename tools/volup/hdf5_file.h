// SPDX-License-Identifier: Apache-2.0
//
// Tensors in HDF5 files: reads x, add and y, writes results. Knows nothing of volup's model schema
// (the library does). Built from hdf5_file.cpp, or from hdf5_absent.cpp where HDF5 is left out.
#ifndef VOLUP_TOOLS_VOLUP_HDF5_FILE_H_
#define VOLUP_TOOLS_VOLUP_HDF5_FILE_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dataset_name.h"
#include "progress.h"
#include "words.h"

namespace volup::tool {

struct Tensor {
  Shape shape{};
  std::vector<float> values;
};

// Throws Failure: kUnreadable for a missing or damaged file or dataset, kUnsupported for one that
// is sound but is no tensor of rank 5 with real numbers.
Shape read_shape(const DatasetName& where);
Tensor read_tensor(const DatasetName& where, Progress* progress);

// Gives the dataset's values in order, a piece at a time, so that a float64 truth of several GiB
// never lies in memory whole.
void read_in_pieces(const DatasetName& where, Progress* progress,
                    const std::function<void(std::span<const double>)>& take);

bool has_dataset(const DatasetName& where);

// The numbers of an attribute of the file: one or several; empty if it is absent.
std::vector<double> read_attribute(const std::string& file, const std::string& name);

// Fails at once, before any work, if the file cannot be written: of another kind, or not permitted.
void require_writable(const DatasetName& where);

// Makes the file or opens it, and puts the values in the dataset as float32, replacing one of that
// name only when the new one is written. Other datasets stay.
void write_tensor(const DatasetName& where, const Tensor& tensor, Progress* progress);

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_HDF5_FILE_H_
