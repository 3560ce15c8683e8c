// SPDX-License-Identifier: Apache-2.0
//
// See load_flags.h. Numbers are checked here for their form alone; what fits together is the
// library's to say.
#include "load_flags.h"

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "failure.h"
#include "words.h"

namespace volup::tool {
namespace {

[[noreturn]] void usage(const std::string& sentence) { throw Failure(ExitCode::kUsage, sentence); }

struct Type {
  const char* letter;
  const char* name;
  volup_epilogue_kind kind;
};
constexpr Type kTypes[] = {{"A", "logsumexp_swish_clamp", VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP},
                           {"B", "softmax_sigmoid", VOLUP_EPILOGUE_SOFTMAX_SIGMOID},
                           {"C", "add_hardswish", VOLUP_EPILOGUE_ADD_HARDSWISH}};

volup_epilogue_kind parse_type(const std::string& text) {
  std::vector<std::string> names;
  for (const Type& type : kTypes) {
    if (text == type.letter || text == type.name) return type.kind;
    names.emplace_back(type.letter);
    names.emplace_back(type.name);
  }
  usage("--type: unknown word '" + text + "'" + suggestion(text, names));
}

// One value for all axes, or DxHxW. Throws where there are others.
std::array<std::string, 3> split_axes(const char* option, const std::string& text) {
  std::array<std::string, 3> parts;
  std::size_t count = 0;
  std::string_view rest = text;
  for (bool more = true; more; ++count) {
    const std::size_t cross = rest.find('x');
    more = cross != std::string_view::npos;
    if (count < 3) parts[count] = rest.substr(0, cross);
    if (more) rest.remove_prefix(cross + 1);
  }
  if (count != 1 && count != 3) {
    usage(std::string(option) + ": got '" + text +
          "', need one number or three, for example 2 or 1x2x2");
  }
  if (count == 1) parts[1] = parts[2] = parts[0];
  return parts;
}

std::int64_t whole_number(const char* option, const std::string& text, const std::string& part) {
  const auto value = parse_integer(part);
  if (!value || *value < 0) {
    usage(std::string(option) + ": got '" + text + "', need whole numbers of at least 0");
  }
  return *value;
}

void parse_axes(const char* option, const std::string& text, std::int64_t (&axes)[3]) {
  if (text.empty()) return;
  const auto parts = split_axes(option, text);
  for (std::size_t i = 0; i < 3; ++i) axes[i] = whole_number(option, text, parts[i]);
}

// An axis may be BEGIN:END.
void parse_padding(const std::string& text, volup_geometry* geometry) {
  if (text.empty()) return;
  const auto parts = split_axes("--padding", text);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t colon = parts[i].find(':');
    const std::string end = colon == std::string::npos ? parts[i] : parts[i].substr(colon + 1);
    geometry->padding_begin[i] = whole_number("--padding", text, parts[i].substr(0, colon));
    geometry->padding_end[i] = whole_number("--padding", text, end);
  }
}

void parse_constant(const char* option, const std::string& text, float* value) {
  if (text.empty()) return;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error != std::errc() || end != text.data() + text.size()) {
    usage(std::string(option) + ": got '" + text + "', need a number");
  }
}

std::optional<volup_epilogue> parse_epilogue(const LoadTexts& texts) {
  struct Constant {
    const char* option;
    const std::string& text;
    float volup_epilogue::*field;
  };
  const Constant constants[] = {{"--shift", texts.shift, &volup_epilogue::shift},
                                {"--divisor", texts.divisor, &volup_epilogue::divisor},
                                {"--subtract", texts.subtract, &volup_epilogue::subtract},
                                {"--clamp-min", texts.clamp_min, &volup_epilogue::clamp_min},
                                {"--clamp-max", texts.clamp_max, &volup_epilogue::clamp_max}};
  if (texts.type.empty()) {
    for (const Constant& constant : constants) {
      if (!constant.text.empty()) {
        usage("--type is missing: " + std::string(constant.option) + " is a constant of a type");
      }
    }
    return std::nullopt;
  }
  volup_epilogue epilogue{};
  epilogue.struct_size = sizeof epilogue;
  if (volup_epilogue_init(parse_type(texts.type), &epilogue) != VOLUP_STATUS_OK) {
    throw Failure(ExitCode::kInternal, volup_last_error());
  }
  for (const Constant& constant : constants) {
    // A constant that the type does not name would be dropped without a word.
    const bool names_it = epilogue.kind == VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP ||
                          (epilogue.kind == VOLUP_EPILOGUE_ADD_HARDSWISH &&
                           constant.field != &volup_epilogue::subtract);
    if (!constant.text.empty() && !names_it) {
      usage(std::string(constant.option) + ": type " + texts.type + " has no such constant");
    }
    parse_constant(constant.option, constant.text, &(epilogue.*constant.field));
  }
  return epilogue;
}

std::optional<volup_geometry> parse_geometry(const LoadTexts& texts) {
  if (texts.stride.empty()) {
    const std::pair<const char*, const std::string&> others[] = {
        {"--kernel-size", texts.kernel_size},
        {"--padding", texts.padding},
        {"--output-padding", texts.output_padding},
        {"--dilation", texts.dilation},
        {"--groups", texts.groups}};
    for (const auto& [option, text] : others) {
      if (!text.empty()) {
        usage("--stride is missing: " + std::string(option) + " is given, need the stride with it");
      }
    }
    return std::nullopt;
  }
  volup_geometry geometry{};
  geometry.struct_size = sizeof geometry;
  geometry.groups = 1;
  for (std::int64_t& axis : geometry.dilation) axis = 1;
  parse_axes("--stride", texts.stride, geometry.stride);
  parse_axes("--kernel-size", texts.kernel_size, geometry.kernel);
  parse_axes("--output-padding", texts.output_padding, geometry.output_padding);
  parse_axes("--dilation", texts.dilation, geometry.dilation);
  parse_padding(texts.padding, &geometry);
  if (!texts.groups.empty()) {
    geometry.groups = whole_number("--groups", texts.groups, texts.groups);
  }
  return geometry;
}

}  // namespace

LoadChoice parse_load_texts(const LoadTexts& texts) {
  LoadChoice choice;
  choice.submodule = texts.submodule;
  if (texts.ignore_crc) choice.flags |= VOLUP_LOAD_IGNORE_CRC;
  if (texts.allow_nonfinite) choice.flags |= VOLUP_LOAD_ALLOW_NONFINITE;
  choice.epilogue = parse_epilogue(texts);
  choice.geometry = parse_geometry(texts);
  return choice;
}

}  // namespace volup::tool
