// SPDX-License-Identifier: Apache-2.0
//
// A model: what a file says. Geometry, epilogue and fp32 weights in host memory, validated once,
// immutable from then on, shared by sessions. It knows where it came from and no device.
#ifndef VOLUP_MODEL_H_
#define VOLUP_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "epilogue.h"
#include "geometry.h"
#include "problem.h"
#include "status.h"

namespace volup {

// Where a model came from. Empty strings: not known, or not applicable.
struct ModelSource {
  std::string kind = "arrays";  // "arrays", "torchscript", "volup-hdf5"
  std::string path;
  int64_t bytes = 0;
  std::string producer;
  std::string weight_dtype = "float32";
  std::string sha256;   // of the file
  std::string library;  // what read it
  std::string origin_kind, origin_producer, origin_sha256;
  std::vector<std::string> unused;
  std::vector<std::string> notes;
};

// An array that may have been allocated by a loader module, which then frees it.
using FloatArray = std::shared_ptr<const float[]>;

// The constants that its kind names must be numbers, the divisor not 0, the clamp in order.
Status validate(const Epilogue& epilogue);

class Model {
 public:
  // weight: [in_channels, out_channels / groups, kD, kH, kW]; bias: [out_channels] or null.
  static Result<std::shared_ptr<const Model>> create(const ConvTranspose3d& geometry,
                                                     const Epilogue& epilogue, FloatArray weight,
                                                     int64_t weight_count, FloatArray bias,
                                                     int64_t bias_count, ModelSource source);

  const ConvTranspose3d& geometry() const { return geometry_; }
  const Epilogue& epilogue() const { return epilogue_; }
  const float* weight() const { return weight_.get(); }
  // Null where the convolution has no bias.
  const float* bias() const { return bias_.get(); }
  const ModelSource& source() const { return source_; }
  const WeightFacts& weight_facts() const { return facts_; }
  // The JSON of volup_model_describe.
  const std::string& description() const { return description_; }

 private:
  Model() = default;

  ConvTranspose3d geometry_;
  Epilogue epilogue_;
  FloatArray weight_;
  FloatArray bias_;
  ModelSource source_;
  WeightFacts facts_;
  std::string description_;
};

}  // namespace volup

#endif  // VOLUP_MODEL_H_
