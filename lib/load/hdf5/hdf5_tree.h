// SPDX-License-Identifier: Apache-2.0
//
// Everything that lies in an HDF5 file, as a flat list of datasets. Knows nothing of any schema.
// Needs the module's mutex held.
#ifndef VOLUP_LOAD_HDF5_HDF5_TREE_H_
#define VOLUP_LOAD_HDF5_HDF5_TREE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "load/hdf5/hdf5_access.h"

namespace volup::hdf5 {

struct TreeDataset {
  std::string path;  // from the root, without a slash before it: "decoder/up.weight"
  std::vector<int64_t> shape;
  bool is_float = false;
};

struct Tree {
  std::vector<TreeDataset> datasets;
  std::vector<std::string> others;  // links to elsewhere and named types, by path
};

// Refuses a file whose groups are no tree, nest too deep or are too many.
Tree read_tree(const Place& root);

// 1, 2, 3 elements and so on: the product of sizes that were checked when the file was opened.
int64_t count_of(const std::vector<int64_t>& shape);

// "up.weight [32, 64, 3, 3, 3]"
std::string describe(const std::string& name, const std::vector<int64_t>& shape);

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_HDF5_TREE_H_
