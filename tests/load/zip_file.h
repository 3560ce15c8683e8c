// SPDX-License-Identifier: Apache-2.0
//
// Zip files as strings, taken apart and put together in the plainest way: the files are the tests'
// own. Shared by the tests of modules that read archives.
#ifndef VOLUP_TESTS_LOAD_ZIP_FILE_H_
#define VOLUP_TESTS_LOAD_ZIP_FILE_H_

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace volup::test {

template <typename Integer>
Integer little_endian(const std::string& bytes, size_t at) {
  Integer value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}
template <typename Integer>
void put(std::string* bytes, size_t at, Integer value) {
  std::memcpy(bytes->data() + at, &value, sizeof(value));
}

// A zip's entries, read in the plainest way: these files are ours.
struct Entry {
  std::string name;
  std::string content;
  size_t central = 0;  // offset of its directory record
  size_t data = 0;
  size_t stored = 0;  // bytes at data
};

inline std::vector<Entry> entries_of(const std::string& zip) {
  std::vector<Entry> entries;
  const size_t end = zip.size() - 22;
  size_t at = little_endian<uint32_t>(zip, end + 16);
  for (int i = 0; i < little_endian<uint16_t>(zip, end + 10); ++i) {
    Entry entry;
    entry.central = at;
    const bool deflated = little_endian<uint16_t>(zip, at + 10) == 8;
    entry.stored = little_endian<uint32_t>(zip, at + 20);
    entry.name = zip.substr(at + 46, little_endian<uint16_t>(zip, at + 28));
    const size_t local = little_endian<uint32_t>(zip, at + 42);
    entry.data = local + 30u + little_endian<uint16_t>(zip, local + 26) +
                 little_endian<uint16_t>(zip, local + 28);
    entry.content.resize(little_endian<uint32_t>(zip, at + 24));
    if (deflated) {
      z_stream stream{};
      inflateInit2(&stream, -MAX_WBITS);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(zip.data()) + entry.data);
      stream.avail_in = static_cast<uInt>(entry.stored);
      stream.next_out = reinterpret_cast<Bytef*>(entry.content.data());
      stream.avail_out = static_cast<uInt>(entry.content.size());
      EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
      inflateEnd(&stream);
    } else {
      entry.content = zip.substr(entry.data, entry.stored);
    }
    at += 46u + little_endian<uint16_t>(zip, at + 28) + little_endian<uint16_t>(zip, at + 30) +
          little_endian<uint16_t>(zip, at + 32);
    entries.push_back(std::move(entry));
  }
  return entries;
}

template <typename Integer>
void append(std::string* bytes, Integer value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A sound zip of stored entries.
inline std::string zip_of(const std::vector<Entry>& entries) {
  std::string zip, directory;
  for (const Entry& entry : entries) {
    const uint32_t crc =
        static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(entry.content.data()),
                                    static_cast<uInt>(entry.content.size())));
    const uint32_t offset = static_cast<uint32_t>(zip.size());
    const auto common = [&](std::string* out) {
      append<uint16_t>(out, 0);  // flags
      append<uint16_t>(out, 0);  // stored
      append<uint32_t>(out, 0);  // date and time
      append<uint32_t>(out, crc);
      append<uint32_t>(out, static_cast<uint32_t>(entry.content.size()));
      append<uint32_t>(out, static_cast<uint32_t>(entry.content.size()));
      append<uint16_t>(out, static_cast<uint16_t>(entry.name.size()));
      append<uint16_t>(out, 0);  // extra
    };
    append<uint32_t>(&zip, 0x04034b50);
    append<uint16_t>(&zip, 20);
    common(&zip);
    zip += entry.name + entry.content;
    append<uint32_t>(&directory, 0x02014b50);
    append<uint32_t>(&directory, 20);
    common(&directory);
    append<uint16_t>(&directory, 0);  // comment
    append<uint32_t>(&directory, 0);  // disk, internal
    append<uint32_t>(&directory, 0);  // external
    append<uint32_t>(&directory, offset);
    directory += entry.name;
  }
  const uint32_t offset = static_cast<uint32_t>(zip.size());
  zip += directory;
  append<uint32_t>(&zip, 0x06054b50);
  append<uint32_t>(&zip, 0);
  append<uint16_t>(&zip, static_cast<uint16_t>(entries.size()));
  append<uint16_t>(&zip, static_cast<uint16_t>(entries.size()));
  append<uint32_t>(&zip, static_cast<uint32_t>(directory.size()));
  append<uint32_t>(&zip, offset);
  append<uint16_t>(&zip, 0);
  return zip;
}

}  // namespace volup::test

#endif  // VOLUP_TESTS_LOAD_ZIP_FILE_H_
