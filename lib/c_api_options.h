// SPDX-License-Identifier: Apache-2.0
//
// volup_load_options, with what it points to, and volup_session_options, from the C ABI to the
// core's types: checked, copied, no pointer of the caller's left but an allocator's.
#ifndef VOLUP_C_API_OPTIONS_H_
#define VOLUP_C_API_OPTIONS_H_

#include <cstdint>

#include "geometry.h"
#include "load/load.h"
#include "session.h"
#include "status.h"
#include "volup/volup.h"

namespace volup {

Status check_kind(int32_t kind);
Result<ConvTranspose3d> read_geometry(const volup_geometry* given);
// NULL stands for the defaults.
Result<LoadOptions> read_load_options(const volup_load_options* given);
Result<SessionOptions> read_session_options(const volup_session_options* given);

}  // namespace volup

#endif  // VOLUP_C_API_OPTIONS_H_
