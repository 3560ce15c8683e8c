// SPDX-License-Identifier: Apache-2.0
//
// A folder of its own for a test, gone after it.
#ifndef VOLUP_TESTS_LOAD_TEMPORARY_FOLDER_H_
#define VOLUP_TESTS_LOAD_TEMPORARY_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <string>

namespace volup::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = std::filesystem::temp_directory_path() / "volup-load-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace volup::test

#endif  // VOLUP_TESTS_LOAD_TEMPORARY_FOLDER_H_
