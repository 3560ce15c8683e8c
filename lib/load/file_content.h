// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a file, read once, and their digest, which is taken beside what is done with them.
#ifndef VOLUP_LOAD_FILE_CONTENT_H_
#define VOLUP_LOAD_FILE_CONTENT_H_

#include <cstddef>
#include <span>
#include <string>
#include <thread>

#include "load/module_memory.h"
#include "status.h"

namespace volup {

struct FileContent {
  module::MemoryBlock memory;
  size_t size = 0;
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(memory.get()), size};
  }
};

Result<FileContent> read_file(const std::string& path);

// SHA-256 of bytes that stay where they are: by a thread of its own where they are many, so that
// parsing need not wait for it. Destroyed early, it stops.
class Digest {
 public:
  explicit Digest(std::span<const std::byte> bytes);
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;
  // Waits for it. Lower-case hexadecimal.
  std::string hex();

 private:
  const std::span<const std::byte> bytes_;
  std::string hex_;
  std::jthread thread_;  // last: it writes to the rest
};

}  // namespace volup

#endif  // VOLUP_LOAD_FILE_CONTENT_H_
