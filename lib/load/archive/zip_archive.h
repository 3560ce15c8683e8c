// SPDX-License-Identifier: Apache-2.0
//
// A zip archive in memory, walked whole before anyone else reads it: the central directory, every
// local header, every entry's CRC-32 against its bytes (all that do not fit are named at once).
// Stricter than zip: no comment, no gap after the end, no overlap, no two names that differ in case
// alone, so that another reader of the same bytes finds the same entries. Knows nothing of PyTorch.
#ifndef VOLUP_LOAD_ARCHIVE_ZIP_ARCHIVE_H_
#define VOLUP_LOAD_ARCHIVE_ZIP_ARCHIVE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace volup::archive {

struct ZipEntry {
  std::string name;
  uint64_t header = 0;      // offset of the local header
  uint64_t data = 0;        // offset of the data
  uint64_t compressed = 0;  // bytes at data
  uint64_t size = 0;        // bytes when unpacked
  uint32_t crc = 0;
  bool deflated = false;
};

// Whether bytes that do not fit their CRC-32 are refused.
enum class Checksums { kChecked, kIgnored };

class ZipArchive {
 public:
  // Throws module::Refusal: UNREADABLE where the bytes are damaged, UNSUPPORTED where they are
  // sound but encrypted or packed in another way. The bytes must outlive the archive.
  ZipArchive(const void* data, size_t size, Checksums checksums);

  const std::vector<ZipEntry>& entries() const { return entries_; }
  // Null if there is none.
  const ZipEntry* find(std::string_view name) const;
  std::string read(const ZipEntry& entry) const;
  // The same without a copy; only where the entry is not deflated.
  std::string_view stored(const ZipEntry& entry) const;

 private:
  void read_directory();
  ZipEntry read_central_record(uint64_t* position, uint64_t end) const;
  void check_local_header(ZipEntry* entry) const;
  void check_layout() const;
  void check_contents(Checksums checksums) const;
  template <typename Sink>
  void unpack(const ZipEntry& entry, const Sink& sink) const;

  const unsigned char* bytes_;
  uint64_t size_;
  uint64_t directory_ = 0;  // offset of the central directory
  std::vector<ZipEntry> entries_;
};

}  // namespace volup::archive

#endif  // VOLUP_LOAD_ARCHIVE_ZIP_ARCHIVE_H_
