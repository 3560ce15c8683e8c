// SPDX-License-Identifier: Apache-2.0
//
// What both loader modules need on their side of module_abi.h: how a fault travels inside a module,
// memory that crosses the boundary, texts. A module links nothing of the library, so nothing here
// is the library's.
#ifndef VOLUP_LOAD_MODULE_SUPPORT_H_
#define VOLUP_LOAD_MODULE_SUPPORT_H_

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "load/module_abi.h"
#include "load/module_floats.h"

namespace volup::module {

// A refusal. Thrown anywhere in a module, turned into a status by guarded() at its boundary: the
// libraries below throw too, so there is one way out.
class Refusal : public std::exception {
 public:
  Refusal(volup_status status, std::string text) : status_(status), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  volup_status status() const { return status_; }

 private:
  volup_status status_;
  std::string text_;
};

[[noreturn]] inline void refuse_unreadable(std::string text) {
  throw Refusal(VOLUP_STATUS_UNREADABLE, std::move(text));
}
[[noreturn]] inline void refuse_unsupported(std::string text) {
  throw Refusal(VOLUP_STATUS_UNSUPPORTED, std::move(text));
}

// Shortest decimal that reads back as the same number, whatever the locale.
template <typename Number>
std::string to_text(Number value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

template <typename Range>
std::string list_text(const Range& values) {
  std::string text = "[";
  for (const auto& value : values) text += (text.size() > 1 ? ", " : "") + to_text(value);
  return text + "]";
}

inline std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

// A list as module_abi.h has it: one entry a line. Splits an entry that holds a newline in two.
inline std::vector<std::string> split_lines(const char* text) {
  std::vector<std::string> lines;
  std::string_view rest = text ? text : "";
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    if (!line.empty()) lines.emplace_back(line);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return lines;
}

// Text from a file for a message or a list: printable, one line, not endless.
inline std::string quoted(std::string_view text, size_t limit = 120) {
  std::string out = "'";
  for (const char c : text.substr(0, limit)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return out + (text.size() > limit ? "...'" : "'");
}

// a * b, refused by the caller where it is false.
inline bool multiply_into(int64_t* value, int64_t factor) {
  return !__builtin_mul_overflow(*value, factor, value);
}

// malloc'ed copy; null for an empty text.
inline char* copy_text(std::string_view text) {
  if (text.empty()) return nullptr;
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

// What a loader found, before it becomes the C struct.
struct LoadedModel {
  volup_geometry geometry{};
  volup_epilogue epilogue{};
  Floats weight;
  Floats bias;
  bool has_bias = false;
  std::string kind, producer, weight_dtype;
  std::string weight_name, bias_name;
  std::string origin_kind, origin_producer, origin_sha256;
  std::vector<std::string> unused, notes;

  void note(std::string text) {
    for (const std::string& other : notes) {
      if (other == text) return;
    }
    notes.push_back(std::move(text));
  }
};

// The arrays behind a volup_module_model.
struct OwnedArrays {
  Floats weight;
  Floats bias;
};

inline void free_model(volup_module_model* model) {
  if (!model) return;
  delete static_cast<OwnedArrays*>(model->owner);
  void* const owned[] = {model->kind,        model->producer,        model->weight_dtype,
                         model->origin_kind, model->origin_producer, model->origin_sha256,
                         model->weight_name, model->bias_name,       model->unused,
                         model->notes};
  for (void* memory : owned) std::free(memory);
  *model = {};
}

inline void free_text(volup_module_text* text) {
  if (!text) return;
  std::free(text->text);
  text->text = nullptr;
}

inline volup_module_model to_abi(LoadedModel loaded) {
  volup_module_model model{};
  try {
    model.geometry = loaded.geometry;
    model.geometry.struct_size = sizeof(volup_geometry);
    model.epilogue = loaded.epilogue;
    model.epilogue.struct_size = sizeof(volup_epilogue);
    auto* const arrays = new OwnedArrays{std::move(loaded.weight), std::move(loaded.bias)};
    model.owner = arrays;
    model.weight = arrays->weight.data();
    model.weight_count = static_cast<int64_t>(arrays->weight.size());
    if (loaded.has_bias) {
      model.bias = arrays->bias.data();
      model.bias_count = static_cast<int64_t>(arrays->bias.size());
    }
    model.kind = copy_text(loaded.kind);
    model.producer = copy_text(loaded.producer);
    model.weight_dtype = copy_text(loaded.weight_dtype);
    model.origin_kind = copy_text(loaded.origin_kind);
    model.origin_producer = copy_text(loaded.origin_producer);
    model.origin_sha256 = copy_text(loaded.origin_sha256);
    model.weight_name = copy_text(loaded.weight_name);
    model.bias_name = copy_text(loaded.bias_name);
    model.unused = copy_text(join(loaded.unused, "\n"));
    model.notes = copy_text(join(loaded.notes, "\n"));
  } catch (...) {
    free_model(&model);
    throw;
  }
  return model;
}

// Runs body and turns what it throws into a status and error->text. Nothing passes.
template <typename Body>
int32_t guarded(volup_module_text* error, const Body& body) noexcept {
  const auto say = [error](volup_status status, const char* text) {
    if (error) {
      const size_t size = std::strlen(text) + 1;
      error->text = static_cast<char*>(std::malloc(size));
      if (error->text) std::memcpy(error->text, text, size);
    }
    return static_cast<int32_t>(status);
  };
  try {
    body();
    return VOLUP_STATUS_OK;
  } catch (const Refusal& refusal) {
    return say(refusal.status(), refusal.what());
  } catch (const std::bad_alloc&) {
    return say(VOLUP_STATUS_OUT_OF_MEMORY, "out of host memory while reading the file");
  } catch (const std::exception& fault) {
    return say(VOLUP_STATUS_INTERNAL, fault.what());
  } catch (...) {
    return say(VOLUP_STATUS_INTERNAL, "an unknown exception in the loader module");
  }
}

}  // namespace volup::module

#endif  // VOLUP_LOAD_MODULE_SUPPORT_H_
