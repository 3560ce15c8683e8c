// SPDX-License-Identifier: Apache-2.0
#include "load/file_kind.h"

#include <algorithm>

namespace volup {
namespace {

using namespace std::string_view_literals;

constexpr FileKind kHdf5 = {"HDF5", "libvolup_hdf5.so"};
constexpr FileKind kTorchScript = {"TorchScript", "libvolup_torchscript.so"};

// Files of other kinds that people offer, by how they begin.
struct ForeignKind {
  std::string_view beginning;
  std::string_view what;
};
constexpr ForeignKind kForeign[] = {
    {"\x80\x02"sv, "a legacy pickle (torch.save before PyTorch 1.6, or pickle.dump)"},
    {"\x80\x03"sv, "a pickle"},
    {"\x80\x04"sv, "a pickle"},
    {"\x80\x05"sv, "a pickle"},
    {"\x93NUMPY"sv, "a NumPy array"},
    {"\x1f\x8b"sv, "a gzip stream"},
    {"\x7f"
     "ELF"sv,
     "an ELF program or library"},
    {"ftrt"sv, "a TensorRT plan"},
    {"GGUF"sv, "a GGUF file"},
    {"\xfd"
     "7zXZ"sv,
     "an xz stream"},
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
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

}  // namespace

Result<FileKind> detect_file_kind(std::span<const std::byte> bytes) {
  const std::string_view content = as_text(bytes);
  constexpr std::string_view kNeed = ", need TorchScript or volup's HDF5";
  if (content.empty()) return unreadable("got an empty file", kNeed);
  if (is_hdf5(content)) return kHdf5;
  // Every zip goes to the TorchScript module, which says what else it may be.
  if (content.starts_with("PK"sv)) return kTorchScript;
  for (const ForeignKind& foreign : kForeign) {
    if (content.starts_with(foreign.beginning)) {
      return unreadable("got ", foreign.what, kNeed);
    }
  }
  if (is_text(content)) return unreadable("got a text file", kNeed);
  return unreadable("got a file of an unknown kind", kNeed);
}

FileKind hdf5_file_kind() { return kHdf5; }

}  // namespace volup
