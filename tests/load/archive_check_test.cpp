// SPDX-License-Identifier: Apache-2.0
//
// What the TorchScript module looks at before libtorch sees a file, without libtorch: real files,
// the inputs of archive_fuzz, and code and pickles made by hand.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "archive_input.h"
#include "module_under_test.h"

namespace volup::test {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCode = "class M(Module):\n  __parameters__ = []\n";

// Empty where the file is taken, else the words.
std::string words_for(std::string_view file) {
  EXPECT_EQ(fault_of_answer(file, true), "");
  try {
    torchscript::check_archive(file.data(), file.size(), true);
    return "";
  } catch (const module::Refusal& refusal) {
    return refusal.what();
  }
}
std::string words_for_code(std::string_view code) {
  return words_for(archive_of(kNonePickle, kNonePickle, kNonePickle, code));
}

testing::AssertionResult says(const std::string& text, const std::string& word) {
  if (text.find(word) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no '" << word << "' in '" << text << "'";
}

TEST(ArchiveCheck, RealFilesOfTorchScriptAreTaken) {
  int count = 0;
  for (const auto& file : fs::recursive_directory_iterator(VOLUP_TEST_CASES_DIR)) {
    const std::string folder = file.path().parent_path().filename();
    if (file.path().extension() != ".pt" || folder == "bad") continue;
    SCOPED_TRACE(file.path().string());
    const std::string bytes = read_file(file.path());
    EXPECT_EQ(words_for(bytes), "");
    EXPECT_TRUE(torchscript::check_archive(bytes.data(), bytes.size(), false)
                    .producer.starts_with("PyTorch (TorchScript file version "));
    ++count;
  }
  EXPECT_GT(count, 20);
}

TEST(ArchiveCheck, InputsOfTheFuzzerGiveFactsOrWords) {
  int count = 0;
  for (const auto& file : fs::directory_iterator(VOLUP_TEST_FUZZ_DIR "/archive")) {
    SCOPED_TRACE(file.path().string());
    EXPECT_EQ(fault_of_input(read_file(file.path())), "");
    ++count;
  }
  EXPECT_GT(count, 30);
}

TEST(ArchiveCheck, CodeThatRunsWhileLoadingIsRefused) {
  EXPECT_EQ(words_for_code(kCode), "");
  EXPECT_TRUE(says(words_for_code("class M(Module):\n  def __setstate__(self, x):\n    pass\n"),
                   "got __setstate__, need a module without it (a/code/__torch__.py:2)"));
  EXPECT_TRUE(says(words_for_code("\n\n# __getstate__"), "__getstate__"));
}

TEST(ArchiveCheck, AnAttributeWithoutATypeIsRefused) {
  EXPECT_TRUE(says(words_for_code("class M(Module):\n  weight = 1\n"),
                   "got the attribute 'weight' without a type, need one"));
  EXPECT_EQ(words_for_code("class M(Module):\n  weight : Tensor\n  x : int = 1\n"), "");
  EXPECT_EQ(words_for_code("class M(Module):\n  def f(self):\n    y = 1\n    return y\n"), "");
}

TEST(ArchiveCheck, CodeNestedBeyondMeasureIsRefused) {
  EXPECT_EQ(words_for_code("x = " + std::string(150, '(') + std::string(150, ')')), "");
  EXPECT_TRUE(says(words_for_code("x = " + std::string(250, '(')), "nested beyond 200"));
  EXPECT_TRUE(says(words_for_code(std::string(500, ' ') + "x"), "nested beyond 200"));
}

TEST(ArchiveCheck, AStorageMustLieInTheArchive) {
  const auto pickle = [](const std::string& type, const std::string& key, char elements) {
    const auto text = [](const std::string& value) {
      return "X" + std::string(1, static_cast<char>(value.size())) + std::string(3, '\0') + value;
    };
    return "\x80\x02(" + text("storage") + "ctorch\n" + type + "\n" + text(key) + text("cpu") +
           "K" + std::string(1, elements) + "tQ.";
  };
  const auto words = [&](const std::string& data) {
    return words_for(archive_of(data, kNonePickle, kNonePickle, kCode));
  };
  EXPECT_EQ(words(pickle("FloatStorage", "0", 100)), "");
  EXPECT_TRUE(says(words(pickle("FloatStorage", "1", 100)), "got nothing, need 100 elements"));
  EXPECT_TRUE(says(words(pickle("QInt8Storage", "0", 1)), "tensor type: got 'QInt8Storage'"));
  // 256 bytes of constants hold 32 doubles.
  const auto constants = [&](char elements) {
    return words_for(
        archive_of(kNonePickle, pickle("DoubleStorage", "0", elements), kNonePickle, kCode));
  };
  EXPECT_EQ(constants(32), "");
  EXPECT_TRUE(says(constants(33), "got 256 bytes, need 33 elements of DoubleStorage"));
  EXPECT_TRUE(
      says(words_for(archive_of(kNonePickle, kNonePickle, pickle("FloatStorage", "0", 1), kCode)),
           "tensors in 'a/code/__torch__.py.debug_pkl'"));
}

}  // namespace
}  // namespace volup::test
