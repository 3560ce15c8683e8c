// SPDX-License-Identifier: Apache-2.0
//
// Any bytes into what the TorchScript module looks at before libtorch sees a file. Bytes of a zip
// are a file as they are; those that begin as a pickle are put into a sound archive as its
// data.pkl, its constants.pkl and a table of places in code; all others as its code. Shared by the
// fuzz target and the test that replays its inputs.
#ifndef VOLUP_TESTS_FUZZ_ARCHIVE_INPUT_H_
#define VOLUP_TESTS_FUZZ_ARCHIVE_INPUT_H_

#include <string>
#include <string_view>

#include "load/module_support.h"
#include "load/torchscript/archive_check.h"
#include "zip_bytes.h"

namespace volup::test {

// The smallest pickle: None.
inline constexpr std::string_view kNonePickle = "\x80\x02N.";

inline std::string archive_of(std::string_view data, std::string_view constants,
                              std::string_view places, std::string_view code) {
  ZipBytes zip;
  zip.add("a/data.pkl", data);
  zip.add("a/code/__torch__.py", code);
  zip.add("a/code/__torch__.py.debug_pkl", places);
  zip.add("a/constants.pkl", constants);
  zip.add("a/data/0", std::string(2592, '\x3f'));
  zip.add("a/constants/0", std::string(256, '\x3f'));
  zip.add("a/version", "10\n");
  return zip.finish();
}

// What is wrong with volup's answer to a file; empty: it is taken, or refused with words.
inline std::string fault_of_answer(std::string_view file, bool ignore_crc) {
  try {
    const torchscript::ArchiveFacts facts =
        torchscript::check_archive(file.data(), file.size(), ignore_crc);
    return facts.producer.empty() ? "a file was taken without its producer" : "";
  } catch (const module::Refusal& refusal) {
    if (*refusal.what() == '\0') return "a refusal without words";
    return refusal.status() == VOLUP_STATUS_UNREADABLE ||
                   refusal.status() == VOLUP_STATUS_UNSUPPORTED
               ? ""
               : "a refusal of status " + module::to_text(static_cast<int>(refusal.status()));
  }
}

// The same of every file that the input makes.
inline std::string fault_of_input(std::string_view input) {
  if (input.starts_with("PK")) {
    const std::string strict = fault_of_answer(input, false);
    return strict.empty() ? fault_of_answer(input, true) : strict;
  }
  constexpr std::string_view kCode = "class M(Module):\n  __parameters__ = []\n";
  const bool is_pickle = input.starts_with('\x80');
  const std::string files[] = {
      archive_of(is_pickle ? input : kNonePickle, kNonePickle, kNonePickle,
                 is_pickle ? kCode : input),
      archive_of(kNonePickle, is_pickle ? input : kNonePickle, kNonePickle, kCode),
      archive_of(kNonePickle, kNonePickle, is_pickle ? input : kNonePickle, kCode)};
  for (const std::string& file : files) {
    if (std::string fault = fault_of_answer(file, true); !fault.empty()) return fault;
    if (!is_pickle) break;
  }
  return "";
}

}  // namespace volup::test

#endif  // VOLUP_TESTS_FUZZ_ARCHIVE_INPUT_H_
