// SPDX-License-Identifier: Apache-2.0
#include "load/file_kind.h"

#include <gtest/gtest.h>

#include <string>

namespace volup {
namespace {

Result<FileKind> detect(const std::string& content) {
  return detect_file_kind(std::as_bytes(std::span(content.data(), content.size())));
}

TEST(FileKind, IsFoundFromTheContent) {
  const std::string hdf5("\x89HDF\r\n\x1a\n", 8);
  ASSERT_TRUE(detect(hdf5).ok());
  EXPECT_EQ(detect(hdf5)->name, "HDF5");
  EXPECT_EQ(detect(std::string(512, 'u') + hdf5)->name, "HDF5") << "a user block before it";
  EXPECT_EQ(detect("PK\x03\x04 and more")->name, "TorchScript");
}

TEST(FileKind, OtherFilesAreNamedForWhatTheyAre) {
  const std::pair<std::string, const char*> table[] = {
      {"", "an empty file"},
      {"hello world\n", "a text file"},
      {std::string("\x80\x02}q\x00", 5), "legacy pickle"},
      {std::string("\x93NUMPY\x01\x00", 8), "a NumPy array"},
      {std::string("\x7f") + "ELF\x02\x01", "an ELF program"},
      {std::string("\x01\x02\x00\x03", 4), "an unknown kind"},
  };
  for (const auto& [content, words] : table) {
    const auto kind = detect(content);
    ASSERT_FALSE(kind.ok()) << words;
    EXPECT_EQ(kind.status().code(), VOLUP_STATUS_UNREADABLE);
    EXPECT_NE(kind.status().text().find(words), std::string::npos) << kind.status().text();
  }
}

}  // namespace
}  // namespace volup
