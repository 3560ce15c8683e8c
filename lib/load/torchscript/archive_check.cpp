// SPDX-License-Identifier: Apache-2.0
//
// What a file is and whether libtorch may have it; see archive_check.h.
#include "load/torchscript/archive_check.h"

#include <algorithm>
#include <string_view>

#include "load/archive/folder.h"
#include "load/archive/pickle_reader.h"
#include "load/archive/zip_archive.h"
#include "load/module_support.h"
#include "load/torchscript/pickle_scan.h"

namespace volup::torchscript {
namespace {

using archive::Checksums;
using archive::Folder;
using archive::ZipArchive;
using archive::ZipEntry;
using module::quoted;
using module::refuse_unreadable;
using module::refuse_unsupported;
using module::to_text;

constexpr std::string_view kNeed = ", need a TorchScript module (torch.jit.save)";

[[noreturn]] void wrong_kind(const std::string& what) {
  refuse_unreadable("file kind: got " + what + std::string(kNeed));
}

void refuse_other_bytes(std::string_view bytes) {
  if (bytes.empty()) wrong_kind("an empty file");
  if (bytes.substr(0, 4) == "PK\x03\x04") return;
  if (bytes[0] == '\x80') {
    wrong_kind("a bare pickle, as torch.save wrote before PyTorch 1.6");
  }
  if (bytes.substr(0, 4) == "PK\x05\x06") wrong_kind("an empty zip archive");
  const std::string_view head = bytes.substr(0, 512);
  const bool is_text = std::all_of(head.begin(), head.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\r' || c == '\t';
  });
  wrong_kind(is_text ? "text" : "bytes that are no zip archive");
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// A name that a pickle of plain tensors and containers may use.
bool is_plain_global(std::string_view name) {
  static constexpr std::string_view kPlain[] = {"torch._utils ",       "collections ",
                                                "torch.nn.parameter ", "torch.storage ",
                                                "torch._tensor ",      "torch.serialization "};
  if (name.substr(0, 6) == "torch ") return true;
  return std::any_of(std::begin(kPlain), std::end(kPlain), [name](std::string_view start) {
    return name.substr(0, start.size()) == start;
  });
}

[[noreturn]] void refuse_pickle_archive(const Folder& folder) {
  const PickleScan scan = scan_pickle(folder.read("data.pkl"));
  for (const std::string& name : scan.globals) {
    if (!is_plain_global(name)) {
      std::string dotted = name;
      std::replace(dotted.begin(), dotted.end(), ' ', '.');
      wrong_kind("a pickled Python object (torch.save of a module: class " + quoted(dotted) +
                 "), which needs its Python code");
    }
  }
  wrong_kind("a PyTorch state_dict or other tensors (torch.save), which has weights but no graph");
}

void refuse_other_archives(const Folder& folder) {
  if (folder.has("model.json") || folder.has_under("tensors/")) {
    refuse_unsupported(
        "TorchScript layout: got the one of PyTorch before 1.4 (model.json), need a file saved "
        "again by a newer PyTorch");
  }
  if (folder.has(".data/extern_modules") || folder.has_under(".data/ts_code")) {
    wrong_kind("a torch.package archive, which carries Python code");
  }
  if (folder.has("archive_format") || folder.has_under("models/")) {
    wrong_kind("a torch.export archive (.pt2)");
  }
  if (folder.has_under("code/") && folder.has("data.pkl") && folder.has("constants.pkl") &&
      folder.has("version")) {
    return;
  }
  if (folder.has_under("code/")) {
    refuse_unreadable("damaged TorchScript archive: got no " +
                      std::string(!folder.has("data.pkl")        ? "data.pkl"
                                  : !folder.has("constants.pkl") ? "constants.pkl"
                                                                 : "version") +
                      ", need data.pkl, constants.pkl, version and code/");
  }
  if (folder.has("data.pkl")) refuse_pickle_archive(folder);
  wrong_kind("a zip archive of another program");
}

// Code that libtorch would run while it loads: a class's own __setstate__.
void refuse_loading_code(const std::string& code, const std::string& name) {
  for (const std::string_view word : {"__setstate__", "__getstate__"}) {
    const size_t at = code.find(word);
    if (at == std::string::npos) continue;
    const auto line = std::count(code.begin(), code.begin() + static_cast<ptrdiff_t>(at), '\n');
    refuse_unsupported("code that runs while loading: got " + std::string(word) +
                       ", need a module without it (" + name + ":" +
                       to_text(static_cast<int64_t>(line + 1)) + ")");
  }
}

// Class bodies of a form that TorchScript writes: libtorch's importer reads an attribute without a
// type, other than the few it knows, through a null pointer.
void check_class_bodies(const std::string& code, const std::string& name) {
  static constexpr std::string_view kUntyped[] = {"__parameters__", "__buffers__",
                                                  "__annotations__", "__forward_hooks__",
                                                  "__forward_pre_hooks__"};
  bool in_class = false;
  size_t body_indent = 0;
  int64_t number = 0;
  for (size_t at = 0; at < code.size();) {
    const size_t end = std::min(code.find('\n', at), code.size());
    const std::string_view line = std::string_view(code).substr(at, end - at);
    at = end + 1;
    ++number;
    const size_t indent = line.find_first_not_of(" \t");
    if (indent == std::string_view::npos) continue;
    if (indent == 0) {
      in_class = line.starts_with("class");
      body_indent = 0;
      continue;
    }
    if (!in_class) continue;
    if (body_indent == 0) body_indent = indent;
    if (indent != body_indent) continue;
    const size_t equals = line.find('=', indent);
    const size_t word_end = std::min(line.find_first_of(" \t=:.[(,", indent), line.size());
    const bool is_untyped =
        equals != std::string_view::npos &&
        line.substr(word_end, equals - word_end).find_first_not_of(" \t") == std::string_view::npos;
    const std::string_view word = line.substr(indent, word_end - indent);
    if (is_untyped &&
        std::find(std::begin(kUntyped), std::end(kUntyped), word) == std::end(kUntyped)) {
      refuse_unreadable("damaged TorchScript archive: got the attribute " + quoted(word) +
                        " without a type, need one (" + name + ":" + to_text(number) + ")");
    }
  }
}

// libtorch parses by recursion.
void check_nesting(const std::string& code, const std::string& name) {
  constexpr int kLimit = 200;
  int depth = 0, spaces = 0;
  bool at_start = true;
  for (const char c : code) {
    depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    spaces = c == '\n' ? 0 : spaces + (at_start && c == ' ');
    at_start = c == '\n' || (at_start && c == ' ');
    if (depth > kLimit || spaces > 2 * kLimit) {
      refuse_unsupported("code: got expressions or blocks nested beyond " + to_text(kLimit) +
                         ", need less (" + name + ")");
    }
  }
}

void check_code(const ZipArchive& archive) {
  for (const ZipEntry& entry : archive.entries()) {
    if (!lower_case(entry.name).ends_with(".py")) continue;
    const std::string code = archive.read(entry);
    refuse_loading_code(code, entry.name);
    check_class_bodies(code, entry.name);
    check_nesting(code, entry.name);
  }
}

void check_storages(const Folder& folder, const PickleScan& scan, const std::string& tensors) {
  for (const PickleStorage& storage : scan.storages) {
    const int64_t element = archive::storage_element_size(storage.type);
    const std::string where = tensors + storage.key;
    if (element == 0) {
      refuse_unsupported("tensor type: got " + quoted(storage.type) +
                         ", need a plain numeric type (" + where + ")");
    }
    if (storage.elements == 0) continue;
    const ZipEntry* const entry = folder.find(where);
    int64_t bytes = element;
    if (!entry || !module::multiply_into(&bytes, storage.elements) ||
        static_cast<uint64_t>(bytes) > entry->size) {
      refuse_unreadable("damaged TorchScript archive: got " +
                        (entry ? to_text(entry->size) + " bytes" : std::string("nothing")) +
                        ", need " + to_text(storage.elements) + " elements of " + storage.type +
                        " (" + where + ")");
    }
  }
}

void check_pickles(const ZipArchive& archive, const Folder& folder) {
  const auto sound = [](const std::string& bytes, const std::string& name) {
    PickleScan scan = scan_pickle(bytes);
    if (!scan.fault.empty()) {
      refuse_unreadable("damaged TorchScript archive: the pickle " + name +
                        " is not sound: " + scan.fault);
    }
    return scan;
  };
  check_storages(folder, sound(folder.read("data.pkl"), "data.pkl"), "data/");
  check_storages(folder, sound(folder.read("constants.pkl"), "constants.pkl"), "constants/");
  for (const ZipEntry& entry : archive.entries()) {
    if (!lower_case(entry.name).ends_with(".debug_pkl")) continue;
    if (!sound(archive.read(entry), entry.name).storages.empty()) {
      refuse_unreadable("damaged TorchScript archive: tensors in " + quoted(entry.name));
    }
  }
}

}  // namespace

ArchiveFacts check_archive(const void* data, size_t size, bool ignore_crc) {
  refuse_other_bytes(std::string_view(static_cast<const char*>(data), size));
  const ZipArchive archive(data, size, ignore_crc ? Checksums::kIgnored : Checksums::kChecked);
  const Folder folder(archive);
  if (!folder.fault().empty()) wrong_kind(folder.fault());
  refuse_other_archives(folder);
  check_code(archive);
  check_pickles(archive, folder);
  // libtorch 1.x reads every file as little-endian, whatever this entry says.
  if (const std::string order = folder.read("byteorder"); !order.empty() && order != "little") {
    refuse_unsupported("byte order: got " + quoted(order) + ", need 'little' (byteorder)");
  }
  std::string version = folder.read("version");
  while (!version.empty() && (version.back() == '\n' || version.back() == ' ')) version.pop_back();
  const bool is_number = !version.empty() && version.size() <= 9 &&
                         version.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) {
    refuse_unreadable("damaged TorchScript archive: got the version " + quoted(version) +
                      ", need a number");
  }
  return {"PyTorch (TorchScript file version " + version + ")"};
}

}  // namespace volup::torchscript
