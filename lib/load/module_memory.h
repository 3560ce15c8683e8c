// SPDX-License-Identifier: Apache-2.0
//
// Memory for what is as large as a file: not set, and in large pages where the system has them, for
// taking 100 MB page by page costs a quarter of the time in which they are read and hashed.
#ifndef VOLUP_LOAD_MODULE_MEMORY_H_
#define VOLUP_LOAD_MODULE_MEMORY_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace volup::module {

struct FreeMemory {
  void operator()(void* memory) const noexcept { std::free(memory); }
};
using MemoryBlock = std::unique_ptr<void, FreeMemory>;

// At least size bytes, aligned for every element type. Throws std::bad_alloc.
inline MemoryBlock allocate_block(size_t size) {
  constexpr size_t kLargePage = size_t{1} << 21;
  const bool is_large = size >= 4 * kLargePage && size <= SIZE_MAX - kLargePage;
  const size_t rounded = (size + kLargePage - 1) / kLargePage * kLargePage;
  MemoryBlock block(is_large ? std::aligned_alloc(kLargePage, rounded)
                             : std::malloc(size == 0 ? 1 : size));
  if (block == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (is_large) madvise(block.get(), rounded, MADV_HUGEPAGE);  // a wish: nothing hangs on it
#endif
  return block;
}

}  // namespace volup::module

#endif  // VOLUP_LOAD_MODULE_MEMORY_H_
