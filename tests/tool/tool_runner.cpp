// SPDX-License-Identifier: Apache-2.0
//
// See tool_runner.h.
#include "tool_runner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>

namespace volup::test {
namespace {

namespace fs = std::filesystem;

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> environment_with(const Environment& changes) {
  std::map<std::string, std::string> values;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    values[text.substr(0, equals)] = equals == std::string::npos ? "" : text.substr(equals + 1);
  }
  values.erase("VOLUP_LOG");  // a developer's setting would add lines to stderr
  for (const auto& [name, value] : changes) values[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : values) lines.push_back(name + "=" + value);
  return lines;
}

std::vector<char*> pointers(std::vector<std::string>* texts) {
  std::vector<char*> result;
  for (std::string& text : *texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

fs::path scratch_root() {
  return fs::temp_directory_path() / ("volup tool-test ü " + std::to_string(getpid()));
}

class RemoveScratch : public testing::Environment {
 public:
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(scratch_root(), ignored);
  }
};
const auto* const kRemoveScratch = testing::AddGlobalTestEnvironment(new RemoveScratch);

std::string shell_quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char letter : word)
    quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
}

}  // namespace

std::string Outcome::last_line() const {
  std::string text = err;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

Outcome run_tool(const std::vector<std::string>& arguments, const Environment& environment) {
  std::vector<std::string> words = {VOLUP_TEST_TOOL};
  words.insert(words.end(), arguments.begin(), arguments.end());
  Outcome outcome;
  for (const auto& [name, value] : environment)
    outcome.rerun += name + "=" + shell_quoted(value) + " ";
  for (const std::string& word : words) outcome.rerun += shell_quoted(word) + " ";

  const std::string stem =
      (fs::temp_directory_path() / ("volup-tool-" + std::to_string(getpid()))).string();
  const std::string out_path = stem + ".out";
  const std::string err_path = stem + ".err";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0600);
  posix_spawn_file_actions_addopen(&actions, 2, err_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0600);
  std::vector<std::string> variables = environment_with(environment);
  pid_t child = 0;
  const int error = posix_spawn(&child, words.front().c_str(), &actions, nullptr,
                                pointers(&words).data(), pointers(&variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    ADD_FAILURE() << "cannot start " << words.front();
    return outcome;
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  outcome.out = slurp(out_path);
  outcome.err = slurp(err_path);
  fs::remove(out_path);
  fs::remove(err_path);
  return outcome;
}

void expect_failure(const Outcome& outcome, int exit_code, const std::vector<std::string>& words) {
  SCOPED_TRACE("rerun: " + outcome.rerun);
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  if (exit_code != 1) {
    EXPECT_EQ(outcome.out, "");
  }
  const std::string last = outcome.last_line();
  EXPECT_TRUE(last.starts_with("volup: ")) << outcome.err;
  EXPECT_TRUE(last.ends_with(".") || last.ends_with("?")) << last;
  EXPECT_NE(last.find(' ', 7), std::string::npos) << "no sentence: " << last;
  EXPECT_EQ(outcome.err.find("HDF5-DIAG"), std::string::npos) << outcome.err;
  for (const std::string& word : words) {
    EXPECT_NE(last.find(word), std::string::npos) << "no '" << word << "' in: " << last;
  }
}

void expect_good(const Outcome& outcome) {
  SCOPED_TRACE("rerun: " + outcome.rerun);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out, "");
}

fs::path scratch() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(info->test_suite_name()) + "." + info->name();
  for (char& letter : name) letter = letter == '/' ? '_' : letter;
  const fs::path folder = scratch_root() / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

fs::path cases_dir() { return VOLUP_TEST_CASES_DIR; }
fs::path models_dir() { return VOLUP_TEST_MODELS_DIR; }
bool has_torchscript() { return VOLUP_TEST_TORCHSCRIPT != 0; }

}  // namespace volup::test
