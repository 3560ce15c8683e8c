// SPDX-License-Identifier: Apache-2.0
#include "problem.h"

#include <array>
#include <charconv>
#include <optional>

namespace volup {
namespace {

bool is_uniform(const Axes& axes) { return axes[0] == axes[1] && axes[1] == axes[2]; }

// "3" or "1x3x3".
std::string print_axes(const Axes& axes) {
  if (is_uniform(axes)) return cat(axes[0]);
  return cat(axes[0], "x", axes[1], "x", axes[2]);
}

// As print_axes, with "begin:end" where the two sides differ.
std::string print_padding(const Axes& begin, const Axes& end) {
  const auto side = [&](int axis) {
    return begin[axis] == end[axis] ? cat(begin[axis]) : cat(begin[axis], ":", end[axis]);
  };
  if (is_uniform(begin) && is_uniform(end)) return side(0);
  return cat(side(0), "x", side(1), "x", side(2));
}

bool parse_number(std::string_view text, int64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

// One part or three, separated by 'x'.
bool split_axes(std::string_view text, std::array<std::string_view, 3>* parts) {
  size_t count = 0;
  while (true) {
    const size_t separator = text.find('x');
    if (count == 3) return false;
    (*parts)[count++] = text.substr(0, separator);
    if (separator == std::string_view::npos) break;
    text.remove_prefix(separator + 1);
  }
  if (count == 1) (*parts)[1] = (*parts)[2] = (*parts)[0];
  return count == 1 || count == 3;
}

bool parse_axes(std::string_view text, Axes* out) {
  std::array<std::string_view, 3> parts;
  if (!split_axes(text, &parts)) return false;
  for (int axis = 0; axis < 3; ++axis) {
    if (!parse_number(parts[axis], &(*out)[axis])) return false;
  }
  return true;
}

bool parse_padding(std::string_view text, Axes* begin, Axes* end) {
  std::array<std::string_view, 3> parts;
  if (!split_axes(text, &parts)) return false;
  for (int axis = 0; axis < 3; ++axis) {
    const std::string_view part = parts[axis];
    const size_t colon = part.find(':');
    const std::string_view last = colon == std::string_view::npos ? part : part.substr(colon + 1);
    if (!parse_number(part.substr(0, colon), &(*begin)[axis]) ||
        !parse_number(last, &(*end)[axis])) {
      return false;
    }
  }
  return true;
}

std::optional<Precision> precision_of(std::string_view name) {
  for (const Precision precision :
       {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    if (name == name_of(precision)) return precision;
  }
  return std::nullopt;
}

std::optional<DType> dtype_of(std::string_view name) {
  for (const DType dtype : {DType::kFp32, DType::kFp16, DType::kBf16}) {
    if (name == name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

// The fields of a problem string, as far as they have been seen.
struct Fields {
  std::optional<EpilogueKind> epilogue;
  std::optional<int64_t> batch, in_channels, out_channels;
  std::optional<Axes> input, kernel;
  ConvTranspose3d geometry;
  Precision precision = Precision::kFp32;
  DType io = DType::kFp32;

  bool take(std::string_view word);
};

bool Fields::take(std::string_view word) {
  if (word.size() == 1) {
    const size_t kind = std::string_view("IABC").find(word[0]);
    if (kind == std::string_view::npos) return false;
    epilogue = static_cast<EpilogueKind>(kind);
    return true;
  }
  if (const auto named = precision_of(word)) {
    precision = *named;
    return true;
  }
  const auto after = [&](std::string_view prefix) {
    return word.starts_with(prefix) ? std::optional(word.substr(prefix.size())) : std::nullopt;
  };
  if (const auto text = after("io=")) {
    const auto named = dtype_of(*text);
    if (named) io = *named;
    return named.has_value();
  }
  if (const auto text = after("ci")) return parse_number(*text, &in_channels.emplace());
  if (const auto text = after("co")) return parse_number(*text, &out_channels.emplace());
  if (const auto text = after("op")) return parse_axes(*text, &geometry.output_padding);
  if (const auto text = after("n")) return parse_number(*text, &batch.emplace());
  if (const auto text = after("i")) return parse_axes(*text, &input.emplace());
  if (const auto text = after("k")) return parse_axes(*text, &kernel.emplace());
  if (const auto text = after("s")) return parse_axes(*text, &geometry.stride);
  if (const auto text = after("d")) return parse_axes(*text, &geometry.dilation);
  if (const auto text = after("g")) return parse_number(*text, &geometry.groups);
  if (const auto text = after("p")) {
    return parse_padding(*text, &geometry.padding_begin, &geometry.padding_end);
  }
  return false;
}

}  // namespace

Result<Problem> make_problem(const ConvTranspose3d& geometry, const Epilogue& epilogue,
                             const Shape5& input, Precision precision, DType io) {
  VOLUP_RETURN_IF_ERROR(validate(geometry));
  if (precision == Precision::kFp16 && io != DType::kFp16) {
    return invalid_argument("precision fp16: got I/O dtype ", name_of(io),
                            ", need fp16 (values past 65504 would overflow: choose tf32 or bf16)");
  }
  Problem problem;
  problem.geometry = geometry;
  problem.epilogue = epilogue;
  problem.precision = precision;
  problem.io = io;
  problem.input = input;
  VOLUP_ASSIGN_OR_RETURN(problem.conv_output, output_shape(geometry, input));
  problem.output = problem.conv_output;
  if (reduces_channels(epilogue.kind)) problem.output[1] = 1;
  return problem;
}

std::string print(const Problem& p) {
  const ConvTranspose3d& g = p.geometry;
  std::string text =
      cat(letter_of(p.epilogue.kind), " n", p.input[0], " ci", g.in_channels, " co", g.out_channels,
          " i", p.input[2], "x", p.input[3], "x", p.input[4], " k", print_axes(g.kernel));
  const Axes zeros = {0, 0, 0};
  const Axes ones = {1, 1, 1};
  if (g.stride != ones) text += " s" + print_axes(g.stride);
  if (g.padding_begin != zeros || g.padding_end != zeros) {
    text += " p" + print_padding(g.padding_begin, g.padding_end);
  }
  if (g.output_padding != zeros) text += " op" + print_axes(g.output_padding);
  if (g.dilation != ones) text += " d" + print_axes(g.dilation);
  if (g.groups != 1) text += cat(" g", g.groups);
  text += cat(" ", name_of(p.precision));
  if (p.io != DType::kFp32) text += cat(" io=", name_of(p.io));
  return text;
}

Result<Problem> parse_problem(std::string_view text) {
  Fields fields;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t start = rest.find_first_not_of(' ');
    if (start == std::string_view::npos) break;
    rest.remove_prefix(start);
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(word.size());
    if (!fields.take(word)) {
      return invalid_argument("problem: got the word '", word,
                              "', need fields like 'C n128 ci32 co64 i16x16x16 k3 s2 p1 op1 fp32'");
    }
  }
  const auto need = [&](bool given, const char* what) {
    return given ? Status() : invalid_argument("problem '", text, "': need ", what);
  };
  VOLUP_RETURN_IF_ERROR(need(fields.epilogue.has_value(), "the epilogue's letter A, B, C or I"));
  VOLUP_RETURN_IF_ERROR(need(fields.batch.has_value(), "n, the batch"));
  VOLUP_RETURN_IF_ERROR(need(fields.in_channels.has_value(), "ci, the input channels"));
  VOLUP_RETURN_IF_ERROR(need(fields.out_channels.has_value(), "co, the output channels"));
  VOLUP_RETURN_IF_ERROR(need(fields.input.has_value(), "i, the input size DxHxW"));
  VOLUP_RETURN_IF_ERROR(need(fields.kernel.has_value(), "k, the kernel"));
  fields.geometry.in_channels = *fields.in_channels;
  fields.geometry.out_channels = *fields.out_channels;
  fields.geometry.kernel = *fields.kernel;
  const Axes& size = *fields.input;
  return make_problem(fields.geometry, default_epilogue(*fields.epilogue),
                      {*fields.batch, *fields.in_channels, size[0], size[1], size[2]},
                      fields.precision, fields.io);
}

}  // namespace volup
