// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes into what the TorchScript module looks at before libtorch sees a
// file. libtorch itself is not here.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "archive_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const std::string fault = volup::test::fault_of_input(input); !fault.empty()) {
    std::fprintf(stderr, "%s\n", fault.c_str());
    std::abort();
  }
  return 0;
}
