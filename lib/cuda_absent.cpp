// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device of a build without CUDA.
#include "device.h"

namespace volup {

Result<std::unique_ptr<Device>> open_cuda_device(int /*index*/) {
  return unavailable("this volup was built without CUDA: only the CPU is there");
}

int cuda_device_count() { return 0; }

}  // namespace volup
