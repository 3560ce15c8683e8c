// SPDX-License-Identifier: Apache-2.0
//
// Words and numbers as the tool prints them: locale-independent numbers, shapes, the nearest good
// word to a bad one, and the one-sentence form of an error text. Prints nothing itself.
#ifndef VOLUP_TOOLS_VOLUP_WORDS_H_
#define VOLUP_TOOLS_VOLUP_WORDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace volup::tool {

using Shape = std::array<std::int64_t, 5>;  // N, C, D, H, W

// value with at most digits significant digits; "nan", "inf", "-inf" otherwise.
std::string number(double value, int digits = 4);

// 55360 as "55,360".
std::string grouped(std::int64_t value);

// "2,3,4,6,5", the form --shape takes.
std::string shape_text(const Shape& shape);
std::optional<Shape> parse_shape(std::string_view text);

// A whole decimal integer, else nothing.
std::optional<std::int64_t> parse_integer(std::string_view text);

// Elements of shape; nothing if a size is negative or the product passes 63 bits.
std::optional<std::int64_t> element_count(const Shape& shape);

// value as JSON: a number, or the string "nan", "inf", "-inf", which JSON has no number for.
nlohmann::json json_number(double value);

// The candidate nearest to word, if near enough to be meant; "" otherwise.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean 'WORD'?" for the nearest candidate, else "; need one of a, b, c".
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

std::string join(const std::vector<std::string>& words, std::string_view separator);

// text on one line, ended by a full stop or a question mark.
std::string one_sentence(std::string_view text);

}  // namespace volup::tool

#endif  // VOLUP_TOOLS_VOLUP_WORDS_H_
