// SPDX-License-Identifier: Apache-2.0
//
// Status and Result<T>: how everything below the C ABI says that something failed. A Status is a
// volup_status code (what the caller can do next) and one sentence (what happened).
#ifndef VOLUP_STATUS_H_
#define VOLUP_STATUS_H_

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "volup/volup.h"

namespace volup {

namespace detail {
inline void append(std::string& out, std::string_view text) { out += text; }
inline void append(std::string& out, char c) { out += c; }
template <std::same_as<bool> Bool>
void append(std::string& out, Bool value) {
  out += value ? "true" : "false";
}
template <typename Number>
requires(std::integral<Number> || std::floating_point<Number>) void append(std::string& out,
                                                                           Number value) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out.append(digits, end);
}
template <typename List>
requires requires(const List& list) {
  list.begin() != list.end();
} &&(!std::convertible_to<List, std::string_view>)void append(std::string& out, const List& list) {
  out += '[';
  const char* separator = "";
  for (const auto& item : list) {
    out += separator;
    append(out, item);
    separator = ", ";
  }
  out += ']';
}
}  // namespace detail

// Text of the parts one after the other; numbers do not depend on the locale.
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(volup_status code, std::string text) : code_(code), text_(std::move(text)) {}

  bool ok() const { return code_ == VOLUP_STATUS_OK; }
  volup_status code() const { return code_; }
  const std::string& text() const { return text_; }

 private:
  volup_status code_ = VOLUP_STATUS_OK;
  std::string text_;
};

template <typename... Parts>
Status invalid_argument(const Parts&... parts) {
  return {VOLUP_STATUS_INVALID_ARGUMENT, cat(parts...)};
}
template <typename... Parts>
Status unsupported(const Parts&... parts) {
  return {VOLUP_STATUS_UNSUPPORTED, cat(parts...)};
}
template <typename... Parts>
Status unreadable(const Parts&... parts) {
  return {VOLUP_STATUS_UNREADABLE, cat(parts...)};
}
template <typename... Parts>
Status unavailable(const Parts&... parts) {
  return {VOLUP_STATUS_UNAVAILABLE, cat(parts...)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}

  bool ok() const { return state_.index() == 0; }
  // The failure; only where !ok().
  const Status& status() const { return std::get<1>(state_); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

// Why a kernel cannot take a problem, in words; nothing where it can.
using Refusal = std::optional<std::string>;

}  // namespace volup

#define VOLUP_CONCAT_(a, b) a##b
#define VOLUP_CONCAT(a, b) VOLUP_CONCAT_(a, b)

// Leaves the function with the failure of expression (a Status), if it failed.
#define VOLUP_RETURN_IF_ERROR(expression)                                      \
  do {                                                                         \
    if (::volup::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

// Declares target from the value of expression (a Result), or leaves with its failure.
#define VOLUP_ASSIGN_OR_RETURN(target, expression) \
  VOLUP_ASSIGN_OR_RETURN_(VOLUP_CONCAT(result_, __LINE__), target, expression)
#define VOLUP_ASSIGN_OR_RETURN_(result, target, expression) \
  auto result = (expression);                               \
  if (!result.ok()) return result.status();                 \
  target = std::move(result).value()

// First lines of Kernel::refuse: leaves with words if the condition holds.
#define VOLUP_REFUSE_IF(condition, ...)              \
  do {                                               \
    if (condition) return ::volup::cat(__VA_ARGS__); \
  } while (false)

#endif  // VOLUP_STATUS_H_
