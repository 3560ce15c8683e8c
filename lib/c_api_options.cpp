// SPDX-License-Identifier: Apache-2.0
#include "c_api_options.h"

#include <cstddef>

#include "abi_convert.h"
#include "c_api_structs.h"
#include "model.h"

namespace volup {
namespace {

// g with each size that a file may fill in at the least that the rest allows.
ConvTranspose3d with_open_sizes_filled(ConvTranspose3d g) {
  if (g.in_channels == 0) g.in_channels = g.groups;
  if (g.out_channels == 0) g.out_channels = g.groups;
  for (int64_t& size : g.kernel) size = size == 0 ? 1 : size;
  return g;
}

}  // namespace

Status check_kind(int32_t kind) {
  if (kind >= 0 && kind < kEpilogueCount) return {};
  return invalid_argument("epilogue kind: got ", kind, ", need 0 to ", kEpilogueCount - 1);
}

Result<ConvTranspose3d> read_geometry(const volup_geometry* given) {
  volup_geometry g;
  VOLUP_RETURN_IF_ERROR(read_struct("geometry", given, &g));
  return geometry_from_abi(g);
}

Result<LoadOptions> read_load_options(const volup_load_options* given) {
  LoadOptions options;
  if (given == nullptr) return options;
  volup_load_options abi;
  VOLUP_RETURN_IF_ERROR(
      read_struct("options", given, &abi, offsetof(volup_load_options, submodule)));
  if (abi.module_directory != nullptr) options.module_directory = abi.module_directory;
  if (abi.submodule != nullptr) options.submodule = abi.submodule;
  constexpr uint32_t kKnown = VOLUP_LOAD_IGNORE_CRC | VOLUP_LOAD_ALLOW_NONFINITE;
  if ((abi.flags & ~kKnown) != 0) {
    return invalid_argument("flags: got ", abi.flags, ", need volup_load_flag values, at most ",
                            kKnown);
  }
  options.ignore_crc = (abi.flags & VOLUP_LOAD_IGNORE_CRC) != 0;
  options.allow_nonfinite = (abi.flags & VOLUP_LOAD_ALLOW_NONFINITE) != 0;
  if (abi.epilogue != nullptr) {
    volup_epilogue epilogue;
    VOLUP_RETURN_IF_ERROR(read_struct("epilogue", abi.epilogue, &epilogue));
    VOLUP_RETURN_IF_ERROR(check_kind(epilogue.kind));
    options.epilogue = epilogue_from_abi(epilogue);
    VOLUP_RETURN_IF_ERROR(validate(*options.epilogue));
  }
  if (abi.geometry != nullptr) {
    VOLUP_ASSIGN_OR_RETURN(options.geometry, read_geometry(abi.geometry));
    VOLUP_RETURN_IF_ERROR(validate(with_open_sizes_filled(*options.geometry)));
  }
  return options;
}

Result<SessionOptions> read_session_options(const volup_session_options* given) {
  SessionOptions options;
  if (given == nullptr) return options;
  volup_session_options abi;
  VOLUP_RETURN_IF_ERROR(read_struct("options", given, &abi));
  VOLUP_ASSIGN_OR_RETURN(options.device,
                         read_enum("device_type", abi.device_type, DeviceType::kCuda));
  VOLUP_ASSIGN_OR_RETURN(options.precision,
                         read_enum("precision", abi.precision, Precision::kFp16));
  VOLUP_ASSIGN_OR_RETURN(options.io, read_enum("io_dtype", abi.io_dtype, DType::kBf16));
  if (abi.device_index < 0) {
    return invalid_argument("device_index: got ", abi.device_index, ", need >= 0");
  }
  if (abi.threads < 0 || abi.threads > 4096) {
    return invalid_argument("threads: got ", abi.threads, ", need 0 to 4096");
  }
  options.device_index = abi.device_index;
  options.threads = abi.threads;
  options.workspace_limit = abi.workspace_limit;
  options.allocator = abi.allocator;
  if (abi.kernel != nullptr) options.kernel = abi.kernel;
  return options;
}

}  // namespace volup
