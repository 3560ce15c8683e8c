// SPDX-License-Identifier: Apache-2.0
//
// See words.h.
#include "words.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace volup::tool {
namespace {

// Edits (insert, delete, replace, swap of neighbours) between a and b.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string number(double value, int digits) {
  if (std::isnan(value)) return "nan";  // whatever its sign
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, digits);
  return std::string(buffer, end.ptr);
}

std::string grouped(std::int64_t value) {
  std::string text = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string shape_text(const Shape& shape) {
  std::string text;
  for (const std::int64_t size : shape) {
    if (!text.empty()) text += ',';
    text += std::to_string(size);
  }
  return text;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Shape> parse_shape(std::string_view text) {
  Shape shape{};
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const std::size_t comma = text.find(',');
    const bool last = axis + 1 == shape.size();
    if (last != (comma == std::string_view::npos)) return std::nullopt;
    const auto size = parse_integer(text.substr(0, comma));
    if (!size || *size < 0) return std::nullopt;
    shape[axis] = *size;
    if (!last) text.remove_prefix(comma + 1);
  }
  return shape;
}

std::optional<std::int64_t> element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return count;
}

nlohmann::json json_number(double value) {
  if (std::isfinite(value)) return value;
  return number(value);
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  // A third of the letters wrong is still a slip; more is another word.
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  if (!near.empty()) return "; did you mean '" + near + "'?";
  return "; need one of " + join(candidates, ", ");
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

std::string one_sentence(std::string_view text) {
  std::string sentence;
  for (const char letter : text) {
    const bool space = letter == '\n' || letter == '\r' || letter == '\t' || letter == ' ';
    if (space && (sentence.empty() || sentence.back() == ' ')) continue;
    sentence += space ? ' ' : letter;
  }
  while (!sentence.empty() && sentence.back() == ' ') sentence.pop_back();
  if (sentence.empty()) sentence = "no reason was given";
  if (sentence.back() != '.' && sentence.back() != '?') sentence += '.';
  return sentence;
}

}  // namespace volup::tool
