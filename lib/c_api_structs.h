// SPDX-License-Identifier: Apache-2.0
//
// How the C ABI's growable structs, pointers and enums are read from a caller and written back.
// What is in them is not looked at here.
#ifndef VOLUP_C_API_STRUCTS_H_
#define VOLUP_C_API_STRUCTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "status.h"
#include "volup/volup.h"

namespace volup {

// Copies a growable struct: an older caller's is shorter (the rest keeps its zero default), a newer
// one's extra bytes must be zero, for they would ask for what this version does not know.
// least: the size of the struct's first form.
template <typename Struct>
Status read_struct(const char* what, const Struct* given, Struct* out,
                   size_t least = sizeof(Struct)) {
  if (given == nullptr) return invalid_argument(what, ": got NULL, need a struct");
  const size_t size = given->struct_size;
  if (size < least) {
    return invalid_argument(what, ".struct_size: got ", size, ", need at least ", least);
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > 65536 ||
      (size > sizeof(Struct) && std::any_of(bytes + sizeof(Struct), bytes + size,
                                            [](unsigned char byte) { return byte != 0; }))) {
    return invalid_argument(what, ".struct_size: got ", size, " with fields set that version ",
                            VOLUP_VERSION_MAJOR, ".", VOLUP_VERSION_MINOR, " does not know, need ",
                            sizeof(Struct));
  }
  *out = {};
  std::memcpy(out, given, std::min(size, sizeof(Struct)));
  return {};
}

template <typename Struct>
Status check_out_struct(const char* what, const Struct* out) {
  if (out == nullptr) return invalid_argument(what, ": got NULL, need a struct");
  if (out->struct_size < sizeof(Struct)) {
    return invalid_argument(what, ".struct_size: got ", out->struct_size, ", need at least ",
                            sizeof(Struct));
  }
  return {};
}

template <typename Struct>
void write_struct(const Struct& value, Struct* out) {
  const size_t size = out->struct_size;
  std::memcpy(out, &value, sizeof(Struct));
  out->struct_size = size;
}

template <typename Pointer>
Status need(const char* what, const Pointer* pointer) {
  return pointer == nullptr ? invalid_argument(what, ": got NULL, need a pointer") : Status();
}

template <typename Enum>
Result<Enum> read_enum(const char* what, int32_t value, Enum last) {
  if (value < 0 || value > static_cast<int32_t>(last)) {
    return invalid_argument(what, ": got ", value, ", need 0 to ", static_cast<int32_t>(last));
  }
  return static_cast<Enum>(value);
}

}  // namespace volup

#endif  // VOLUP_C_API_STRUCTS_H_
