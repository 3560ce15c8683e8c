// SPDX-License-Identifier: Apache-2.0
//
// Names and limits of volup's HDF5 schema, version 1, for reader and writer alike; described for
// people in docs/hdf5-format.md. No HDF5 calls here.
#ifndef VOLUP_LOAD_HDF5_HDF5_SCHEMA_H_
#define VOLUP_LOAD_HDF5_HDF5_SCHEMA_H_

#include <cstdint>

#include "volup/volup.h"

namespace volup::hdf5 {

inline constexpr const char* kFormatName = "volup-model";
inline constexpr int64_t kFormatVersion = 1;

// Attributes of the root group.
inline constexpr const char* kFormat = "format";
inline constexpr const char* kVersion = "format_version";
inline constexpr const char* kType = "type";
inline constexpr const char* kProducer = "producer";

// Groups, which hold attributes alone.
inline constexpr const char* kGeometry = "geometry";
inline constexpr const char* kEpilogue = "epilogue";
inline constexpr const char* kOrigin = "origin";

// Datasets.
inline constexpr const char* kWeight = "weight";
inline constexpr const char* kBias = "bias";
inline constexpr const char* kUnused = "unused";
inline constexpr const char* kNotes = "notes";

// Attributes of kGeometry.
struct CountField {
  const char* name;
  int64_t volup_geometry::*field;
  int64_t least;
};
inline constexpr CountField kCountFields[] = {
    {"in_channels", &volup_geometry::in_channels, 1},
    {"out_channels", &volup_geometry::out_channels, 1},
    {"groups", &volup_geometry::groups, 1},
};
struct AxesField {
  const char* name;
  int64_t (volup_geometry::*field)[3];
  int64_t least;
};
inline constexpr AxesField kAxesFields[] = {
    {"kernel", &volup_geometry::kernel, 1},
    {"stride", &volup_geometry::stride, 1},
    {"padding_begin", &volup_geometry::padding_begin, 0},
    {"padding_end", &volup_geometry::padding_end, 0},
    {"output_padding", &volup_geometry::output_padding, 0},
    {"dilation", &volup_geometry::dilation, 1},
};

// Attributes of kEpilogue, by model type.
struct ConstantField {
  const char* name;
  float volup_epilogue::*field;
};
inline constexpr ConstantField kLogsumexpConstants[] = {
    {"shift", &volup_epilogue::shift},         {"divisor", &volup_epilogue::divisor},
    {"subtract", &volup_epilogue::subtract},   {"clamp_min", &volup_epilogue::clamp_min},
    {"clamp_max", &volup_epilogue::clamp_max},
};
inline constexpr ConstantField kHardswishConstants[] = {
    {"shift", &volup_epilogue::shift},
    {"divisor", &volup_epilogue::divisor},
    {"clamp_min", &volup_epilogue::clamp_min},
    {"clamp_max", &volup_epilogue::clamp_max},
};

struct ModelType {
  const char* name;
  volup_epilogue_kind kind;
  const ConstantField* constants;
  int constant_count;
};
inline constexpr ModelType kModelTypes[] = {
    {"identity", VOLUP_EPILOGUE_IDENTITY, nullptr, 0},
    {"logsumexp_swish_clamp", VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP, kLogsumexpConstants, 5},
    {"softmax_sigmoid", VOLUP_EPILOGUE_SOFTMAX_SIGMOID, nullptr, 0},
    {"add_hardswish", VOLUP_EPILOGUE_ADD_HARDSWISH, kHardswishConstants, 4},
};

// Attributes of kOrigin.
inline constexpr const char* kOriginFields[] = {"kind", "producer", "sha256"};

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_HDF5_SCHEMA_H_
