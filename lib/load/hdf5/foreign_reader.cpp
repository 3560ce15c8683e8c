// SPDX-License-Identifier: Apache-2.0
//
// Whose file it is, by what it declares; see foreign_reader.h.
#include "load/hdf5/foreign_reader.h"

#include <algorithm>

#include "load/hdf5/keras_reader.h"
#include "load/hdf5/state_dict_reader.h"

namespace volup::hdf5 {
namespace {

[[noreturn]] void refuse_kind(const Place& root) {
  std::vector<std::string> first = link_names(root);
  first.resize(std::min<size_t>(first.size(), 8));
  module::refuse_unreadable(
      "file kind: got an HDF5 file that is not volup's, Keras' or a state_dict's (it holds " +
      (first.empty() ? "nothing" : module::join(first, ", ")) +
      "), need the attribute format = 'volup-model', layers as Keras writes them, or datasets "
      "named "
      "as PyTorch names parameters, NAME.weight (/)");
}

}  // namespace

module::LoadedModel read_foreign(const Place& root, size_t file_size,
                                 const volup_load_options& options) {
  ForeignFile file{{root.id, root.path}, file_size, options, read_tree(root), {}};
  module::LoadedModel model;
  if (is_keras(file)) {
    model = read_keras(&file);
  } else if (is_state_dict(file.tree)) {
    model = read_state_dict(&file);
  } else {
    refuse_kind(root);
  }
  if (!file.faults.list.empty()) {
    module::refuse_unsupported(module::join(file.faults.list, "; "));
  }
  return model;
}

}  // namespace volup::hdf5
