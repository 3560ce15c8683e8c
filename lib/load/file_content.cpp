// SPDX-License-Identifier: Apache-2.0
//
// See file_content.h.
#include "load/file_content.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "load/sha256.h"

namespace volup {
namespace {

std::string system_error_text() { return std::strerror(errno); }

struct OpenFile {
  int descriptor;
  ~OpenFile() {
    if (descriptor >= 0) close(descriptor);
  }
};

// In pieces, so that it can be stopped; empty then.
std::string sha256_until(const std::stop_token& stop, std::span<const std::byte> bytes) {
  constexpr size_t kPiece = size_t{1} << 22;
  Sha256 sum;
  while (!bytes.empty()) {
    if (stop.stop_requested()) return "";
    const size_t count = std::min(kPiece, bytes.size());
    sum.update(bytes.first(count));
    bytes = bytes.subspan(count);
  }
  return sum.finish_hex();
}

}  // namespace

// Reads rather than maps: a file that shrinks under a map kills the process.
Result<FileContent> read_file(const std::string& path) {
  const OpenFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat info;
  if (file.descriptor < 0 || fstat(file.descriptor, &info) != 0) {
    return unreadable("cannot be opened: ", system_error_text());
  }
  if (!S_ISREG(info.st_mode)) {
    return unreadable("got ", S_ISDIR(info.st_mode) ? "a directory" : "no regular file",
                      ", need a file");
  }
  FileContent content;
  content.size = static_cast<size_t>(info.st_size);
  content.memory = module::allocate_block(content.size);
  auto* const bytes = static_cast<std::byte*>(content.memory.get());
  size_t done = 0;
  while (done < content.size) {
    const ssize_t count = read(file.descriptor, bytes + done, content.size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return unreadable("cannot be read: ", system_error_text());
    if (count == 0) {
      return unreadable("got ", done, " bytes, need the ", content.size,
                        " it had when it was opened");
    }
    done += static_cast<size_t>(count);
  }
  return content;
}

Digest::Digest(std::span<const std::byte> bytes) : bytes_(bytes) {
  // A thread costs as much as hashing some 100 KB.
  constexpr size_t kWorthAThread = size_t{1} << 20;
  if (bytes.size() < kWorthAThread) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      try {
        hex_ = sha256_until(stop, bytes_);
      } catch (const std::bad_alloc&) {
        hex_.clear();  // hex() tries again
      }
    });
  } catch (const std::system_error&) {
    // No thread to be had: hex() does it.
  }
}

std::string Digest::hex() {
  if (thread_.joinable()) thread_.join();
  return hex_.empty() ? sha256_hex(bytes_) : hex_;
}

}  // namespace volup
