// SPDX-License-Identifier: Apache-2.0
//
// Zip archives for fuzz targets: entries stored as they are, without checksums.
#ifndef VOLUP_TESTS_FUZZ_ZIP_BYTES_H_
#define VOLUP_TESTS_FUZZ_ZIP_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace volup::test {

class ZipBytes {
 public:
  void add(const std::string& name, std::string_view content) {
    const std::string offset = number(bytes_.size(), 4);
    const std::string common = number(0, 2) + number(0, 2) + number(0, 8) +
                               number(content.size(), 4) + number(content.size(), 4) +
                               number(name.size(), 2) + number(0, 2);
    bytes_ += "PK\x03\x04" + number(20, 2) + common + name;
    bytes_ += content;
    directory_ +=
        "PK\x01\x02" + number(20, 4) + common + number(0, 2) + number(0, 8) + offset + name;
    ++entries_;
  }
  std::string finish() const {
    return bytes_ + directory_ + "PK\x05\x06" + number(0, 4) + number(entries_, 2) +
           number(entries_, 2) + number(directory_.size(), 4) + number(bytes_.size(), 4) +
           number(0, 2);
  }

 private:
  static std::string number(uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
    return out;
  }

  std::string bytes_, directory_;
  size_t entries_ = 0;
};

}  // namespace volup::test

#endif  // VOLUP_TESTS_FUZZ_ZIP_BYTES_H_
