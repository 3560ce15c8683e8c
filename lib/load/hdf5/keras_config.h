// SPDX-License-Identifier: Apache-2.0
//
// What the JSON of a Keras model says about its Conv3DTranspose layers and what is around them, and
// Keras' padding in volup's terms. No HDF5 here.
#ifndef VOLUP_LOAD_HDF5_KERAS_CONFIG_H_
#define VOLUP_LOAD_HDF5_KERAS_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "volup/volup.h"

namespace volup::hdf5 {

struct KerasLayer {
  std::string name, class_name;
};

// A Conv3DTranspose. faults: what volup does not compute, each "what: got X, need Y (where)".
struct KerasConvolution {
  std::string name;
  volup_geometry geometry{};  // in_channels is 0: the weight's shape says it
  bool use_bias = true;
  bool channels_last = true;
  // Whether the layers that follow, to the model's end, are softmax over channels and sigmoid; they
  // are named then.
  bool softmax_sigmoid = false;
  std::vector<std::string> epilogue_layers;
  std::vector<std::string> faults;
};

struct KerasModel {
  std::vector<KerasConvolution> convolutions;
  std::vector<KerasLayer> others;  // layers that compute something
};

// Nothing where the text is no JSON of a Keras model; *fault says why.
std::optional<KerasModel> parse_keras_model(const std::string& json, std::string* fault);

// Keras' padding of one axis as volup's. output_padding: nothing where Keras chooses the size.
struct KerasCrop {
  int64_t begin, end, output_padding;
};
KerasCrop keras_crop(bool same, int64_t kernel, int64_t stride, int64_t dilation,
                     std::optional<int64_t> output_padding);

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_KERAS_CONFIG_H_
