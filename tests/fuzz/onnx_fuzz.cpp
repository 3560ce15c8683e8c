// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes into the ONNX loader module.
#include "module_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  volup::test::load_every_way(data, size);
  return 0;
}
