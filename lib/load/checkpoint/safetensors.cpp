// SPDX-License-Identifier: Apache-2.0
//
// See safetensors.h. The JSON is taken event by event: nothing of the header's own shape is built,
// so its size bounds what is allocated, and a key that is there twice is seen.
#include "load/checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "load/module_support.h"

namespace volup::checkpoint {
namespace {

using module::refuse_unreadable;
using module::refuse_unsupported;
using module::to_text;

// std::quoted would be found too.
std::string in_quotes(std::string_view text) { return module::quoted(text); }

constexpr uint64_t kHeaderLimit = uint64_t{32} << 20;
constexpr size_t kRankLimit = 16;

[[noreturn]] void damaged(const std::string& text) {
  refuse_unreadable("damaged safetensors file: " + text);
}

struct Dtype {
  std::string_view name;
  std::string_view ours;
  int64_t size;
};
constexpr Dtype kDtypes[] = {
    {"F32", "float32", 4},   {"F16", "float16", 2},    {"BF16", "bfloat16", 2},
    {"F64", "float64", 8},   {"I64", "int64", 8},      {"I32", "int32", 4},
    {"I16", "int16", 2},     {"I8", "int8", 1},        {"U64", "uint64", 8},
    {"U32", "uint32", 4},    {"U16", "uint16", 2},     {"U8", "uint8", 1},
    {"BOOL", "bool", 1},     {"F8_E4M3", "float8", 1}, {"F8_E5M2", "float8", 1},
    {"C64", "complex64", 8},
};

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// { "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {...} }
class Header : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;
  std::string format;  // __metadata__'s "format"
  std::string fault;

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_float(number_float_t, const string_t&) override { return other("a fraction"); }
  bool binary(binary_t&) override { return other("binary data"); }
  bool number_integer(number_integer_t) override { return other("a negative number"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr || !in_list_) return other("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return fail("a number beyond 63 bits");
    }
    if (list_->size() == kRankLimit) return fail("more than 16 numbers in a list");
    list_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ == 2 && in_metadata_) {
      if (key_ == "format") format = text;
      return true;
    }
    if (depth_ != 2 || key_ != "dtype" || in_list_) return other("a text");
    entries.back().dtype = text;
    return true;
  }
  bool start_object(size_t) override {
    if (in_list_ || depth_ == 2) return other("an object");
    ++depth_;
    if (depth_ == 2 && !in_metadata_) {
      entries.emplace_back();
      entries.back().name = name_;
    }
    return true;
  }
  bool key(string_t& text) override {
    key_ = text;
    list_ = nullptr;
    if (depth_ == 1) {
      if (!names_.insert(text).second) return fail("the name " + in_quotes(text) + " twice");
      in_metadata_ = text == "__metadata__";
      name_ = text;
      return true;
    }
    if (in_metadata_) return true;
    Entry& entry = entries.back();
    bool* const seen = text == "dtype"          ? &entry.has_dtype
                       : text == "shape"        ? &entry.has_shape
                       : text == "data_offsets" ? &entry.has_offsets
                                                : nullptr;
    if (seen == nullptr) return fail("the key " + in_quotes(text) + " in " + in_quotes(name_));
    if (*seen) return fail("the key " + in_quotes(text) + " twice in " + in_quotes(name_));
    *seen = true;
    if (text == "shape") list_ = &entry.shape;
    if (text == "data_offsets") list_ = &entry.offsets;
    return true;
  }
  bool end_object() override {
    if (--depth_ == 1 && !in_metadata_) {
      const Entry& entry = entries.back();
      if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets) {
        return fail("no dtype, shape or data_offsets in " + in_quotes(name_));
      }
    }
    return true;
  }
  bool start_array(size_t) override {
    if (list_ == nullptr || in_list_) return other("a list");
    in_list_ = true;
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    list_ = nullptr;
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail("no JSON at byte " + to_text(static_cast<uint64_t>(position)));
  }

 private:
  bool fail(std::string text) {
    if (fault.empty()) fault = std::move(text);
    return false;
  }
  bool other(const char* what) {
    return fail(std::string(what) + " where none belongs" +
                (name_.empty() ? "" : " in " + in_quotes(name_)));
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  bool in_list_ = false;
  std::string name_, key_;
  std::vector<int64_t>* list_ = nullptr;  // where numbers go
  std::set<std::string> names_;
};

// Every byte of the data belongs to one tensor.
void check_layout(const std::vector<Entry>& entries, uint64_t size) {
  std::vector<const Entry*> in_order;
  in_order.reserve(entries.size());
  for (const Entry& entry : entries) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->offsets[0], a->offsets[1]) < std::pair(b->offsets[0], b->offsets[1]);
  });
  int64_t end = 0;
  for (const Entry* entry : in_order) {
    if (entry->offsets[0] != end) {
      damaged(std::string("got ") + (entry->offsets[0] < end ? "an overlap" : "a hole") +
              " before " + in_quotes(entry->name) + " at " + to_text(entry->offsets[0]) +
              ", need its bytes from " + to_text(end));
    }
    end = entry->offsets[1];
  }
  if (static_cast<uint64_t>(end) != size) {
    damaged("got " + to_text(size) + " bytes of tensors, need " + to_text(end) +
            " (truncated, or more behind)");
  }
}

StoredTensor tensor_of(const Entry& entry, std::string_view data) {
  const auto* dtype = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const Dtype& row) { return row.name == entry.dtype; });
  if (dtype == std::end(kDtypes)) {
    refuse_unsupported("dtype: got " + in_quotes(entry.dtype) +
                       ", need one that this version knows (" + in_quotes(entry.name) + ")");
  }
  if (entry.offsets.size() != 2 || entry.offsets[0] > entry.offsets[1]) {
    damaged("the data_offsets of " + in_quotes(entry.name) + " are " +
            module::list_text(entry.offsets) + ", need [begin, end]");
  }
  int64_t bytes = product(entry.shape);
  if (bytes < 0 || !module::multiply_into(&bytes, dtype->size) ||
      bytes != entry.offsets[1] - entry.offsets[0]) {
    damaged("got " + to_text(entry.offsets[1] - entry.offsets[0]) + " bytes for " +
            in_quotes(entry.name) + ", need those of " + entry.dtype + " " +
            module::list_text(entry.shape));
  }
  if (static_cast<uint64_t>(entry.offsets[1]) > data.size()) {
    damaged("got " + to_text(data.size()) + " bytes of tensors, need " + to_text(entry.offsets[1]) +
            " for " + in_quotes(entry.name) + " (truncated)");
  }
  StoredTensor tensor;
  tensor.name = entry.name;
  tensor.dtype = dtype->ours;
  tensor.element_size = dtype->size;
  tensor.shape = entry.shape;
  tensor.strides.assign(entry.shape.size(), 1);
  for (size_t axis = entry.shape.size(); axis-- > 1;) {
    // Cannot overflow where the product of the sizes does not; a tensor without elements has any.
    tensor.strides[axis - 1] = bytes == 0 ? 0 : tensor.strides[axis] * entry.shape[axis];
  }
  tensor.storage = data.substr(static_cast<size_t>(entry.offsets[0]), static_cast<size_t>(bytes));
  return tensor;
}

}  // namespace

TensorFile read_safetensors(std::string_view bytes) {
  if (bytes.size() < 10) damaged("it ends inside its header");
  uint64_t header_size = 0;
  for (size_t i = 0; i < 8; ++i) {
    header_size |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  if (header_size > kHeaderLimit) {
    damaged("got a header of " + to_text(header_size) + " bytes, need at most " +
            to_text(kHeaderLimit));
  }
  if (header_size > bytes.size() - 8) {
    damaged("got " + to_text(bytes.size() - 8) + " bytes, need a header of " +
            to_text(header_size) + " (truncated)");
  }
  const std::string_view text = bytes.substr(8, header_size);
  if (text.empty() || text[0] != '{') damaged("its header does not begin with '{'");
  Header header;
  const bool parsed = nlohmann::json::sax_parse(text.begin(), text.end(), &header);
  if (!header.fault.empty() || !parsed) {
    damaged("its header holds " + (header.fault.empty() ? "no JSON" : header.fault));
  }
  // Other frameworks keep kernels in layouts of their own under the same shapes.
  if (!header.format.empty() && header.format != "pt") {
    refuse_unsupported("format of the safetensors file: got " + in_quotes(header.format) +
                       ", need 'pt' (PyTorch's layout of weights)");
  }
  TensorFile file;
  file.kind = "safetensors";
  file.producer = header.format.empty() ? "safetensors" : "safetensors (format pt)";
  if (header.format.empty()) {
    file.notes.push_back("the file does not name a framework; its weights were taken as PyTorch's");
  }
  const std::string_view data = bytes.substr(8 + header_size);
  file.tensors.reserve(header.entries.size());
  for (const Entry& entry : header.entries) file.tensors.push_back(tensor_of(entry, data));
  check_layout(header.entries, data.size());
  if (file.tensors.empty()) refuse_unsupported("content: got no tensors, need named tensors");
  return file;
}

}  // namespace volup::checkpoint
