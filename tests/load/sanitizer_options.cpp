// SPDX-License-Identifier: Apache-2.0
//
// For builds under AddressSanitizer: libhdf5 and libtorch lose memory of their own where a file is
// damaged. Nothing else is left out.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libhdf5\nleak:libtorch\n";
}
