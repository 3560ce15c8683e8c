// SPDX-License-Identifier: Apache-2.0
//
// volup inspect: what a model file holds, from the library's description of it.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "library.h"
#include "words.h"

namespace volup::tool {
namespace {

using nlohmann::json;

void row(std::string_view name, const std::string& value) {
  constexpr std::size_t kNameWidth = 16;
  std::string line(name);
  line.resize(kNameWidth, ' ');
  std::cout << line << value << '\n';
}

std::string plain(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return number(value.get<double>(), 9);
  return value.dump();
}

// [3,3,3] as "3", [1,3,3] as "1x3x3", as in the problem string.
std::string per_axis(const json& values) {
  std::vector<std::string> words;
  bool same = true;
  for (const json& value : values) {
    words.push_back(plain(value));
    same = same && value == values.front();
  }
  return same && !words.empty() ? words.front() : join(words, "x");
}

std::string padding(const json& geometry) {
  const json begin = geometry.value("padding_begin", json::array());
  const json end = geometry.value("padding_end", json::array());
  if (begin == end) return per_axis(begin);
  return per_axis(begin) + " before, " + per_axis(end) + " after";
}

std::string geometry_text(const json& geometry) {
  const auto field = [&](const char* name) { return geometry.value(name, json()); };
  return plain(field("in_channels")) + " -> " + plain(field("out_channels")) +
         " channels, kernel " + per_axis(field("kernel")) + ", stride " +
         per_axis(field("stride")) + ", padding " + padding(geometry) + ", output padding " +
         per_axis(field("output_padding")) + ", dilation " + per_axis(field("dilation")) +
         ", groups " + plain(field("groups"));
}

std::string epilogue_text(const json& epilogue) {
  std::vector<std::string> words;
  for (const auto& [name, value] : epilogue.items()) {
    if (name != "kind" && !value.is_null()) words.push_back(name + " " + plain(value));
  }
  const std::string constants = join(words, ", ");
  return epilogue.value("kind", "?") + (constants.empty() ? "" : " (" + constants + ")");
}

void print_source(const json& source) {
  std::string text = source.value("kind", "?");
  if (source.contains("bytes") && source["bytes"].is_number_integer()) {
    text += ", " + grouped(source["bytes"].get<std::int64_t>()) + " bytes";
  }
  row("source", text);
  for (const auto& [key, label] : {std::pair{"producer", "producer"},
                                   {"library", "read with"},
                                   {"weight_dtype", "weight dtype"},
                                   {"sha256", "sha256"}}) {
    const json value = source.value(key, json());
    if (value.is_string() && !value.get<std::string>().empty()) row(label, plain(value));
  }
  const json origin = source.value("origin", json());
  if (!origin.is_object()) return;
  std::vector<std::string> words;
  for (const char* key : {"kind", "producer", "sha256"}) {
    const json value = origin.value(key, json());
    if (value.is_string() && !value.get<std::string>().empty()) words.push_back(plain(value));
  }
  if (!words.empty()) row("converted from", join(words, ", "));
}

void print_text(const std::string& file, const json& model) {
  row("file", file);
  row("type", model.value("type", "?"));
  row("convolution", geometry_text(model.value("geometry", json::object())));
  row("epilogue", epilogue_text(model.value("epilogue", json::object())));
  row("bias", model.value("bias", false) ? "yes" : "no");
  row("parameters", grouped(model.value("parameters", std::int64_t{0})));
  print_source(model.value("source", json::object()));
  for (const json& name : model.value("unused", json::array())) row("unused", plain(name));
  for (const json& note : model.value("notes", json::array())) row("note", plain(note));
}

}  // namespace

ExitCode inspect(const Options& options) {
  const Model model = load_model(options.model, options.load);
  const json description = describe(model.get());
  if (options.json) {
    const json result = {{"command", "inspect"}, {"file", options.model}, {"model", description}};
    std::cout << result.dump() << '\n';
  } else {
    print_text(options.model, description);
  }
  return ExitCode::kGood;
}

}  // namespace volup::tool
