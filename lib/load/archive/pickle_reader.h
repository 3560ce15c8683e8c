// SPDX-License-Identifier: Apache-2.0
//
// Reads a pickle as PyTorch writes them into a table of values, with the stack and memo discipline
// that PyTorch's own readers take for granted. A call of the pickle stays what it says, a name and
// arguments: nothing is built, imported or called. What the names mean is the users' affair.
#ifndef VOLUP_LOAD_ARCHIVE_PICKLE_READER_H_
#define VOLUP_LOAD_ARCHIVE_PICKLE_READER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace volup::archive {

inline constexpr uint32_t kNoValue = UINT32_MAX;

// Indices are into Pickle::values.
struct PickleValue {
  enum Kind : uint8_t {
    kOther,  // a value that nobody asks for: a number with a fraction, an integer beyond 64 bits
    kMark,
    kNone,
    kBoolean,
    kInteger,
    kText,
    kGlobal,
    kTuple,
    kList,
    kDictionary,
    kCall,
    kStorage
  };
  Kind kind = kOther;
  bool is_appended = false;       // a call's members are a list's, not pairs
  uint32_t callee = kNoValue;     // kCall
  uint32_t arguments = kNoValue;  // kCall: a tuple
  uint32_t state = kNoValue;      // kCall: what it was filled with afterwards
  int64_t integer = 0;            // kInteger, kBoolean; kStorage: elements
  std::string_view text;          // kText; kGlobal: the name; kStorage: the type, "FloatStorage"
  std::string_view second;        // kGlobal: its module; kStorage: the key of its archive entry
  // kTuple, kList: in order; kDictionary and kCall: key, value, key, value, ...; kStorage: its id
  std::vector<uint32_t> members;
};

struct Pickle {
  std::vector<PickleValue> values;  // texts point into the bytes
  uint32_t root = kNoValue;
  std::string fault;  // empty: sound
};

// Who wrote it: Python's pickler has more to say than TorchScript's.
enum class PickleWriter { kTorchScript, kPython };

// Protocol 2 alone, as both write it. No value holds itself, none is nested beyond 500 values, and
// there are at most 2^21.
Pickle read_pickle(std::string_view bytes, PickleWriter writer);

// Bytes of an element of a storage type by its name; 0 if it is not a plain tensor type.
int64_t storage_element_size(std::string_view type);

}  // namespace volup::archive

#endif  // VOLUP_LOAD_ARCHIVE_PICKLE_READER_H_
