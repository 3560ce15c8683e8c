// SPDX-License-Identifier: Apache-2.0
//
// A look through outputs that may be too large to copy to the host.
#ifndef VOLUP_TESTS_GPU_GPU_SCAN_H_
#define VOLUP_TESTS_GPU_GPU_SCAN_H_

#include <cstddef>
#include <cstdint>

namespace volup::test {

// Elements of 2 or 4 bytes whose bits are all ones, that is, that nothing wrote; -1 on an error.
int64_t count_poison(const void* out, int64_t elements, size_t element_bytes);

}  // namespace volup::test

#endif  // VOLUP_TESTS_GPU_GPU_SCAN_H_
