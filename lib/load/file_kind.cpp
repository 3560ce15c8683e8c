// SPDX-License-Identifier: Apache-2.0
#include "load/file_kind.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace volup {
namespace {

using namespace std::string_view_literals;

constexpr FileKind kHdf5 = {"HDF5", "libvolup_hdf5.so"};
constexpr FileKind kTorchScript = {"TorchScript", "libvolup_torchscript.so"};
constexpr FileKind kStateDict = {"PyTorch state_dict", "libvolup_checkpoint.so"};
constexpr FileKind kSafetensors = {"safetensors", "libvolup_checkpoint.so"};
constexpr FileKind kOnnx = {"ONNX", "libvolup_onnx.so"};

constexpr std::string_view kNeed =
    ", need TorchScript, a PyTorch state_dict, safetensors, ONNX or HDF5"sv;

// Files of other kinds that people offer, by the bytes at an offset.
struct ForeignKind {
  size_t offset;
  std::string_view bytes;
  std::string_view what;
};
constexpr ForeignKind kForeign[] = {
    {0, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv,
     "a legacy torch.save file (from before PyTorch 1.6, or written with "
     "_use_new_zipfile_serialization=False: load it in PyTorch with weights_only=True and save it "
     "again)"},
    {0, "\x80\x02"sv, "a legacy pickle (torch.save before PyTorch 1.6, or pickle.dump)"},
    {0, "\x80\x03"sv, "a pickle"},
    {0, "\x80\x04"sv, "a pickle"},
    {0, "\x80\x05"sv, "a pickle"},
    {0, "\x93NUMPY"sv, "a NumPy array (.npy)"},
    {0, "\x1f\x8b"sv, "a gzip stream (unpack it first)"},
    {0, "BZh"sv, "a bzip2 stream (unpack it first)"},
    {0, "\x28\xb5\x2f\xfd"sv, "a Zstandard stream (unpack it first)"},
    {0, "\xfd\x37zXZ"sv, "an xz stream (unpack it first)"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7-Zip archive (unpack it first)"},
    {257, "ustar"sv, "a tar archive (unpack it first)"},
    {0, "\x7f\x45LF"sv, "an ELF program or library"},
    {0, "ftrt"sv, "a TensorRT plan"},
    {0, "GGUF"sv, "a GGUF file"},
    {4, "TFL3"sv, "a TensorFlow Lite model"},
    {0, "CDF\x01"sv, "a netCDF file of the classic format"},
    {0, "CDF\x02"sv, "a netCDF file of the classic format"},
    {0, "MATLAB 5.0 MAT-file"sv, "a MATLAB file of version 5"},
    {128, "DICM"sv, "a DICOM image"},
    {344, "n+1\0"sv, "a NIfTI image"},
    {0, "version https://git-lfs.github.com"sv,
     "a Git LFS pointer, not the file itself (fetch it with git lfs pull)"},
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t little_endian(std::string_view content, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    value |= uint64_t{static_cast<unsigned char>(content[at + i])} << (8 * i);
  }
  return value;
}

bool contains(std::string_view content, std::string_view part) {
  return content.find(part) != std::string_view::npos;
}

// The superblock may begin at 0, 512, 1024, 2048, ... (HDF5 file format, II.A).
bool is_hdf5(std::string_view content) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n"sv;
  for (size_t at = 0; at + kSignature.size() <= content.size(); at = at == 0 ? 512 : 2 * at) {
    if (content.substr(at, kSignature.size()) == kSignature) return true;
  }
  return false;
}

bool is_text(std::string_view content) {
  const std::string_view start = content.substr(0, 512);
  return std::all_of(start.begin(), start.end(), [](char c) {
    return (c >= ' ' && c != '\x7f') || c == '\n' || c == '\r' || c == '\t';
  });
}

// The size of a JSON header, and the header.
bool is_safetensors(std::string_view content) {
  return content.size() >= 10 && content[8] == '{' &&
         little_endian(content, 0, 8) < (uint64_t{1} << 32);
}

// ---- Zip archives ------------------------------------------------------------------------------

// Names of the entries by the directory at the end; empty where it is not sound. The loader modules
// look closer.
std::vector<std::string_view> zip_names(std::string_view content) {
  constexpr size_t kEndSize = 22, kRecordSize = 46, kMostNames = 100'000;
  std::vector<std::string_view> names;
  const size_t end = content.rfind("PK\x05\x06"sv);
  if (end == std::string_view::npos || content.size() - end < kEndSize) return names;
  size_t at = little_endian(content, end + 16, 4);
  while (at < end && end - at >= kRecordSize && content.substr(at, 4) == "PK\x01\x02"sv &&
         names.size() < kMostNames) {
    const size_t name_size = little_endian(content, at + 28, 2);
    const size_t rest = little_endian(content, at + 30, 2) + little_endian(content, at + 32, 2);
    if (end - at - kRecordSize < name_size + rest) break;
    names.push_back(content.substr(at + kRecordSize, name_size));
    at += kRecordSize + name_size + rest;
  }
  return names;
}

Result<FileKind> detect_zip(std::string_view content) {
  const std::vector<std::string_view> names = zip_names(content);
  const auto has = [&names](auto&& wanted) {
    return std::any_of(names.begin(), names.end(), wanted);
  };
  const auto has_name = [&](std::string_view name) {
    return has([name](std::string_view each) { return each == name; });
  };
  const auto has_end = [&](std::string_view end) {
    return has([end](std::string_view each) { return each.ends_with(end); });
  };
  const auto has_part = [&](std::string_view part) {
    return has([part](std::string_view each) { return contains(each, part); });
  };
  if (names.empty()) {
    if (content.starts_with("PK\x05\x06"sv)) return unreadable("got an empty zip archive", kNeed);
    // Cut short or damaged: the names before the data are left.
    const bool is_script =
        contains(content, "/code/__torch__"sv) || !contains(content, "data.pkl"sv);
    return is_script ? kTorchScript : kStateDict;
  }
  if (has_name("model.weights.h5"sv) && has_name("config.json"sv)) {
    return unreadable(
        "got a Keras file of version 3 (.keras); its weights are in the entry model.weights.h5, or "
        "save the model as .h5",
        kNeed);
  }
  if (has_end(".data/extern_modules"sv)) {
    return unreadable("got a torch.package archive, which carries Python code", kNeed);
  }
  if (has_end("/archive_format"sv) || has_part("/models/model.json"sv)) {
    return unreadable("got a torch.export archive (.pt2); trace or script the model instead",
                      kNeed);
  }
  if (has_part("/code/"sv) || has_end("/constants.pkl"sv) || has_end("/model.json"sv)) {
    return kTorchScript;
  }
  if (has_end("/data.pkl"sv)) return kStateDict;
  if (std::all_of(names.begin(), names.end(),
                  [](std::string_view name) { return name.ends_with(".npy"sv); })) {
    return unreadable("got NumPy arrays (.npz)", kNeed);
  }
  if (has_name("[Content_Types].xml"sv)) return unreadable("got an Office document", kNeed);
  if (has_name("META-INF/MANIFEST.MF"sv)) return unreadable("got a Java archive", kNeed);
  return unreadable("got a zip archive of another program", kNeed);
}

// ---- Protocol buffers --------------------------------------------------------------------------

// The fields of a message, without a look inside them.
class ProtoFields {
 public:
  explicit ProtoFields(std::string_view content) : content_(content) {
    constexpr int kMostFields = 100'000;
    for (int i = 0; i < kMostFields && at_ < content_.size() && is_sound_; ++i) step();
  }

  bool is_sound() const { return is_sound_; }
  bool is_whole() const { return is_sound_ && !is_cut_ && at_ == content_.size(); }
  bool has(unsigned field) const { return (seen_ >> field & 1) != 0; }
  bool has_only(std::initializer_list<unsigned> fields) const {
    uint64_t allowed = 0;
    for (const unsigned field : fields) allowed |= uint64_t{1} << field;
    return (seen_ & ~allowed) == 0;
  }

 private:
  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at_ < content_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(content_[at_++]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  void step() {
    const auto key = varint();
    const uint64_t field = key ? *key >> 3 : 0;
    if (field == 0 || field > 63) {
      is_sound_ = false;
      return;
    }
    seen_ |= uint64_t{1} << field;
    uint64_t size = 0;
    switch (*key & 7) {
      case 0:
        if (!varint()) is_cut_ = true;
        return;
      case 1:
        size = 8;
        break;
      case 2: {
        const auto length = varint();
        is_cut_ = is_cut_ || !length;
        size = length.value_or(0);
        break;
      }
      case 5:
        size = 4;
        break;
      default:
        is_sound_ = false;
        return;
    }
    is_cut_ = is_cut_ || size > content_.size() - at_;
    at_ = is_cut_ ? content_.size() : at_ + size;
  }

  std::string_view content_;
  size_t at_ = 0;
  uint64_t seen_ = 0;
  bool is_sound_ = true;
  bool is_cut_ = false;
};

// onnx.ModelProto begins with its ir_version and has a graph (7); cut short it is still one.
bool is_onnx(std::string_view content, const ProtoFields& fields) {
  return content.starts_with("\x08"sv) && fields.is_sound() && fields.has(7) &&
         fields.has_only({1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26});
}

std::string_view tensorflow_kind(std::string_view content, const ProtoFields& fields) {
  if (!fields.is_whole()) return {};
  // saved_model_schema_version and meta_graphs.
  if (content.starts_with("\x08\x01\x12"sv) && fields.has_only({1, 2})) {
    return "a TensorFlow SavedModel (saved_model.pb), whose weights are in files beside it";
  }
  // node, versions, library.
  if (content.starts_with("\x0a"sv) && fields.has(4) && fields.has_only({1, 2, 3, 4})) {
    return "a TensorFlow graph (.pb)";
  }
  return {};
}

}  // namespace

Result<FileKind> detect_file_kind(std::span<const std::byte> bytes) {
  const std::string_view content = as_text(bytes);
  if (content.empty()) return unreadable("got an empty file", kNeed);
  if (is_hdf5(content)) return kHdf5;
  if (content.starts_with("PK"sv)) return detect_zip(content);
  for (const ForeignKind& foreign : kForeign) {
    if (content.size() > foreign.offset &&
        content.substr(foreign.offset).starts_with(foreign.bytes)) {
      return unreadable("got ", foreign.what, kNeed);
    }
  }
  if (is_safetensors(content)) return kSafetensors;
  if (is_text(content)) {
    const bool is_page = content.starts_with("<!DOCTYPE"sv) || content.starts_with("<!doctype"sv) ||
                         content.starts_with("<html"sv);
    return unreadable("got ", is_page ? "a web page (a download that failed?)" : "a text file",
                      kNeed);
  }
  const ProtoFields fields(content);
  if (is_onnx(content, fields)) return kOnnx;
  if (const std::string_view what = tensorflow_kind(content, fields); !what.empty()) {
    return unreadable("got ", what, kNeed);
  }
  return unreadable("got a file of an unknown kind", kNeed);
}

FileKind hdf5_file_kind() { return kHdf5; }

}  // namespace volup
