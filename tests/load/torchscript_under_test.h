// SPDX-License-Identifier: Apache-2.0
//
// The TorchScript module and the files of its tests; shared by them.
#ifndef VOLUP_TESTS_LOAD_TORCHSCRIPT_UNDER_TEST_H_
#define VOLUP_TESTS_LOAD_TORCHSCRIPT_UNDER_TEST_H_

#include <string>

#include "module_under_test.h"

namespace volup::test {

inline const ModuleUnderTest& torchscript() {
  static const ModuleUnderTest* const module = new ModuleUnderTest("libvolup_torchscript.so");
  return *module;
}

inline std::string case_bytes(const std::string& name) {
  return read_file(std::filesystem::path(VOLUP_TEST_CASES_DIR) / name);
}
inline std::string spelling_bytes(const std::string& name) {
  return read_file(std::filesystem::path(VOLUP_TEST_SPELLINGS_DIR) / name);
}

inline bool refused_with(const Outcome& outcome, const std::string& word) {
  return !outcome.ok() && outcome.text.find(word) != std::string::npos;
}

}  // namespace volup::test

#endif  // VOLUP_TESTS_LOAD_TORCHSCRIPT_UNDER_TEST_H_
