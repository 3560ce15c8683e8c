// SPDX-License-Identifier: Apache-2.0
//
// From datasets that others wrote to a model: what a weight's shape, the file and the options say
// together. Knows how weights lie in memory for PyTorch and for Keras, not where they lie in a
// file. Needs the module's mutex held.
#ifndef VOLUP_LOAD_HDF5_FOREIGN_WEIGHTS_H_
#define VOLUP_LOAD_HDF5_FOREIGN_WEIGHTS_H_

#include <string>
#include <vector>

#include "load/hdf5/hdf5_access.h"
#include "load/hdf5/hdf5_tree.h"
#include "load/module_support.h"

namespace volup::hdf5 {

// A file that is open, with all that its reader gathers.
struct ForeignFile {
  Place root;
  size_t size;
  const volup_load_options& options;
  Tree tree;
  Faults faults;

  std::string submodule() const { return options.submodule ? options.submodule : ""; }
  // Null where there is no such dataset.
  const TreeDataset* find(const std::string& path) const;
};

enum class Layout {
  kTorch,  // [in, out / groups, kD, kH, kW]
  kKeras   // [kD, kH, kW, out, in]
};

// The datasets of one layer.
struct Candidate {
  std::string name;                       // as messages and --submodule have it
  const TreeDataset* weight;              // five axes
  const TreeDataset* bias = nullptr;      // null: none
  std::vector<std::string> aliases = {};  // other names that --submodule may have
};

// The one candidate that the options name, by itself or by a block around it, or the only one. Null
// with a fault otherwise, which lists the candidates with their shapes.
const Candidate* choose(const std::vector<Candidate>& candidates, ForeignFile* file);

// Faults unless the options have both an epilogue and a geometry; candidates are listed then.
bool require_options(bool geometry_known, bool epilogue_known,
                     const std::vector<Candidate>& candidates, ForeignFile* file);

// For a file of weights alone: the chosen candidate, with the options' geometry and epilogue taken
// into *model. Null with the faults of both otherwise.
const Candidate* choose_by_options(const std::vector<Candidate>& candidates, ForeignFile* file,
                                   module::LoadedModel* model);

// Completes the geometry's channels and kernel from the weight's shape; those given must agree.
void complete_geometry(const Candidate& candidate, Layout layout, volup_geometry* geometry,
                       Faults* faults);

// Reads weight and bias into the model, in volup's order of axes. The geometry is complete.
void read_layer(const Candidate& candidate, Layout layout, ForeignFile* file,
                module::LoadedModel* model);

// Adds every dataset to the model's unused entries, other than those of the list.
void list_unused(const ForeignFile& file, const std::vector<const TreeDataset*>& used,
                 module::LoadedModel* model);

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_FOREIGN_WEIGHTS_H_
