// SPDX-License-Identifier: Apache-2.0
//
// Opens a loader module as the library does and calls it through module_abi.h; shared by the tests
// of the modules. The library itself takes no part.
#ifndef VOLUP_TESTS_LOAD_MODULE_UNDER_TEST_H_
#define VOLUP_TESTS_LOAD_MODULE_UNDER_TEST_H_

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "load/module_abi.h"

namespace volup::test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// What a load gave: a model, or a status and its words.
class Outcome {
 public:
  Outcome() = default;
  Outcome(Outcome&& other) noexcept { *this = std::move(other); }
  Outcome& operator=(Outcome&& other) noexcept {
    std::swap(module_, other.module_);
    std::swap(status, other.status);
    std::swap(text, other.text);
    std::swap(model, other.model);
    return *this;
  }
  ~Outcome() {
    if (module_ && status == VOLUP_STATUS_OK) module_->release(&model);
  }

  bool ok() const { return status == VOLUP_STATUS_OK; }
  std::vector<float> weight() const { return {model.weight, model.weight + model.weight_count}; }
  std::vector<float> bias() const {
    return model.bias ? std::vector<float>(model.bias, model.bias + model.bias_count)
                      : std::vector<float>();
  }
  static std::string or_empty(const char* text) { return text ? text : ""; }
  std::string unused() const { return or_empty(model.unused); }
  std::string notes() const { return or_empty(model.notes); }

  int32_t status = VOLUP_STATUS_OK;
  std::string text;
  volup_module_model model{};

 private:
  friend class ModuleUnderTest;
  const volup_module* module_ = nullptr;
};

class ModuleUnderTest {
 public:
  explicit ModuleUnderTest(const std::string& file_name) {
    const std::string path = std::string(VOLUP_TEST_MODULE_DIR) + "/" + file_name;
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw std::runtime_error(dlerror());
    const auto open =
        reinterpret_cast<volup_module_open_fn>(dlsym(handle, VOLUP_MODULE_OPEN_SYMBOL));
    if (!open || open(&module_) != VOLUP_STATUS_OK) throw std::runtime_error("cannot open " + path);
  }

  // The bytes are moved to a block of exactly their size, so that a tool that checks memory sees a
  // read past their end.
  Outcome load(const std::string& bytes) const {
    volup_load_options options{};
    options.struct_size = sizeof(options);
    return load(bytes, options);
  }
  Outcome load(const std::string& bytes, const volup_load_options& options) const {
    const std::vector<char> exact(bytes.begin(), bytes.end());
    const volup_module_source source{exact.data(), exact.size(), "memory"};
    Outcome outcome;
    outcome.module_ = &module_;
    volup_module_text error{};
    std::memset(&outcome.model, 0x5a, sizeof(outcome.model));
    const volup_module_model untouched = outcome.model;
    outcome.status = module_.load(&source, &options, &outcome.model, &error);
    if (outcome.status != VOLUP_STATUS_OK) {
      outcome.text = Outcome::or_empty(error.text);
      module_.free_text(&error);
      if (std::memcmp(&untouched, &outcome.model, sizeof(untouched)) != 0) {
        throw std::runtime_error("a failed load touched its output");
      }
    }
    return outcome;
  }

  // Empty on success, else the words.
  std::string save(const volup_module_model& model, const std::filesystem::path& path) const {
    volup_module_text error{};
    const int32_t status = module_.save(&model, path.c_str(), &error);
    std::string text;
    if (status != VOLUP_STATUS_OK) {
      text = std::to_string(status) + " " + Outcome::or_empty(error.text);
      module_.free_text(&error);
    }
    return text;
  }

  const volup_module& abi() const { return module_; }

 private:
  volup_module module_{};
};

}  // namespace volup::test

#endif  // VOLUP_TESTS_LOAD_MODULE_UNDER_TEST_H_
