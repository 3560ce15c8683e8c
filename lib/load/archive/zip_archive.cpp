// SPDX-License-Identifier: Apache-2.0
//
// A zip archive in memory, walked whole; see zip_archive.h. Field numbers are those of PKWARE's
// APPNOTE 6.3.10.
#include "load/archive/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <set>

#include "load/module_support.h"

namespace volup::archive {
namespace {

using module::quoted;
using module::refuse_unreadable;
using module::refuse_unsupported;
using module::to_text;

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint64_t kLocalSize = 30;
constexpr uint64_t kCentralSize = 46;
constexpr uint64_t kEndSize = 22;
constexpr uint64_t kEnd64Size = 56;
constexpr uint64_t kLocator64Size = 20;
constexpr uint16_t kZip64Extra = 1;
constexpr uint16_t kFlagEncrypted = 1;
constexpr uint16_t kFlagSizesFollow = 8;
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;
// deflate's best: 258 bytes for two bits, less its overhead.
constexpr uint64_t kDeflateRatio = 1032;

template <typename Integer>
Integer little_endian(const unsigned char* bytes) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    value = static_cast<Integer>(value | static_cast<Integer>(bytes[i]) << (8 * i));
  }
  return value;
}
uint16_t u16(const unsigned char* bytes) { return little_endian<uint16_t>(bytes); }
uint32_t u32(const unsigned char* bytes) { return little_endian<uint32_t>(bytes); }
uint64_t u64(const unsigned char* bytes) { return little_endian<uint64_t>(bytes); }

[[noreturn]] void damaged(const std::string& text) {
  refuse_unreadable("damaged zip archive: " + text);
}

std::string lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

void check_name(const std::string& name) {
  const bool has_control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == '\\';
  });
  const std::string padded = "/" + name + "/";
  if (name.empty() || name.front() == '/' || has_control ||
      padded.find("/../") != std::string::npos || padded.find("/./") != std::string::npos) {
    damaged("got the entry name " + quoted(name) + ", need a plain relative path");
  }
}

// Takes what the 32-bit fields left to the zip64 extra field (4.5.3), in its fixed order.
void read_zip64_extra(const unsigned char* extra, uint64_t extra_size, ZipEntry* entry) {
  uint64_t* const wanted[] = {&entry->size, &entry->compressed, &entry->header};
  const bool any = std::any_of(std::begin(wanted), std::end(wanted),
                               [](const uint64_t* field) { return *field == 0xffffffff; });
  if (!any) return;
  for (uint64_t at = 0; at + 4 <= extra_size;) {
    const uint16_t id = u16(extra + at);
    const uint64_t length = u16(extra + at + 2);
    at += 4;
    if (at + length > extra_size) break;
    if (id == kZip64Extra) {
      uint64_t field_at = at;
      for (uint64_t* field : wanted) {
        if (*field != 0xffffffff) continue;
        if (field_at + 8 > at + length) damaged("a zip64 field is short in " + quoted(entry->name));
        *field = u64(extra + field_at);
        field_at += 8;
      }
      return;
    }
    at += length;
  }
  damaged("a zip64 field is missing in " + quoted(entry->name));
}

}  // namespace

ZipArchive::ZipArchive(const void* data, size_t size, Checksums checksums)
    : bytes_(static_cast<const unsigned char*>(data)), size_(size) {
  read_directory();
  for (ZipEntry& entry : entries_) check_local_header(&entry);
  check_layout();
  check_contents(checksums);
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  for (const ZipEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::string ZipArchive::read(const ZipEntry& entry) const {
  std::string content;
  content.reserve(entry.size);
  unpack(entry, [&content](const unsigned char* bytes, size_t count) {
    content.append(reinterpret_cast<const char*>(bytes), count);
  });
  return content;
}

std::string_view ZipArchive::stored(const ZipEntry& entry) const {
  return {reinterpret_cast<const char*>(bytes_) + entry.data, entry.size};
}

void ZipArchive::read_directory() {
  if (size_ < kEndSize || u32(bytes_ + size_ - kEndSize) != kEndSignature) {
    refuse_unreadable("truncated zip archive: got no end record at the end of " + to_text(size_) +
                      " bytes, need the whole file (it is cut short or has bytes after its end)");
  }
  const unsigned char* end = bytes_ + size_ - kEndSize;
  uint64_t count = u16(end + 10), bytes = u32(end + 12), offset = u32(end + 16);
  if (u16(end + 4) != 0 || u16(end + 6) != 0 || u16(end + 8) != count || u16(end + 20) != 0) {
    damaged("the end record speaks of several disks or of a comment");
  }
  uint64_t directory_end = size_ - kEndSize;
  const bool has_locator = directory_end >= kLocator64Size &&
                           u32(bytes_ + directory_end - kLocator64Size) == kLocator64Signature;
  if (has_locator) {
    const unsigned char* locator = bytes_ + directory_end - kLocator64Size;
    const uint64_t record_at = u64(locator + 8);
    directory_end -= kLocator64Size;
    if (directory_end < kEnd64Size || record_at != directory_end - kEnd64Size ||
        u32(bytes_ + record_at) != kEnd64Signature) {
      damaged("the zip64 end record is not where its locator says");
    }
    const unsigned char* end64 = bytes_ + record_at;
    directory_end = record_at;
    if (u64(end64 + 4) != kEnd64Size - 12 || u32(end64 + 16) != 0 || u32(end64 + 20) != 0 ||
        u64(end64 + 24) != u64(end64 + 32)) {
      damaged("the zip64 end record is not sound");
    }
    const uint64_t count64 = u64(end64 + 32), bytes64 = u64(end64 + 40), offset64 = u64(end64 + 48);
    if ((count != 0xffff && count != count64) || (bytes != 0xffffffff && bytes != bytes64) ||
        (offset != 0xffffffff && offset != offset64)) {
      damaged("the two end records differ");
    }
    count = count64, bytes = bytes64, offset = offset64;
  }
  if (offset > directory_end || bytes != directory_end - offset) {
    damaged("the directory is not where the end record says");
  }
  if (count > bytes / kCentralSize) damaged("more entries than the directory has room for");
  directory_ = offset;
  entries_.reserve(count);
  uint64_t position = offset;
  for (uint64_t i = 0; i < count; ++i) {
    entries_.push_back(read_central_record(&position, directory_end));
  }
  if (position != directory_end) damaged("the directory holds more than its entries");
}

ZipEntry ZipArchive::read_central_record(uint64_t* position, uint64_t end) const {
  if (end - *position < kCentralSize || u32(bytes_ + *position) != kCentralSignature) {
    damaged("a directory record is not sound");
  }
  const unsigned char* record = bytes_ + *position;
  const uint64_t name_size = u16(record + 28), extra_size = u16(record + 30),
                 comment_size = u16(record + 32);
  const uint64_t whole = kCentralSize + name_size + extra_size + comment_size;
  if (end - *position < whole) damaged("a directory record is cut short");
  ZipEntry entry;
  entry.name.assign(reinterpret_cast<const char*>(record) + kCentralSize, name_size);
  check_name(entry.name);
  if (u16(record + 8) & kFlagEncrypted) {
    refuse_unsupported("zip archive: got the encrypted entry " + quoted(entry.name) +
                       ", need one without encryption");
  }
  const uint16_t method = u16(record + 10);
  if (method != kStored && method != kDeflated) {
    refuse_unsupported("zip archive: got compression method " + to_text(method) +
                       ", need stored or "
                       "deflated (" +
                       entry.name + ")");
  }
  entry.deflated = method == kDeflated;
  entry.crc = u32(record + 16);
  entry.compressed = u32(record + 20);
  entry.size = u32(record + 24);
  entry.header = u32(record + 42);
  read_zip64_extra(record + kCentralSize + name_size, extra_size, &entry);
  const bool sane = entry.deflated ? entry.size / kDeflateRatio <= entry.compressed
                                   : entry.size == entry.compressed;
  if (!sane) {
    damaged("got " + to_text(entry.size) + " bytes from " + to_text(entry.compressed) + " in " +
            quoted(entry.name) + ", more than they can hold");
  }
  *position += whole;
  return entry;
}

void ZipArchive::check_local_header(ZipEntry* entry) const {
  const std::string where = " in " + quoted(entry->name);
  if (entry->header > directory_ || directory_ - entry->header < kLocalSize ||
      u32(bytes_ + entry->header) != kLocalSignature) {
    damaged("no local header" + where);
  }
  const unsigned char* header = bytes_ + entry->header;
  const uint64_t name_size = u16(header + 26), extra_size = u16(header + 28);
  const uint64_t room = directory_ - entry->header - kLocalSize;
  if (room < name_size + extra_size || room - name_size - extra_size < entry->compressed) {
    damaged("data past the directory" + where);
  }
  const char* name = reinterpret_cast<const char*>(header) + kLocalSize;
  const uint16_t flags = u16(header + 6), method = u16(header + 8);
  if (entry->name != std::string_view(name, name_size) || (flags & kFlagEncrypted) != 0 ||
      method != (entry->deflated ? kDeflated : kStored)) {
    damaged("the local header differs from the directory" + where);
  }
  if ((flags & kFlagSizesFollow) == 0) {
    ZipEntry local = *entry;
    local.compressed = u32(header + 18);
    local.size = u32(header + 22);
    read_zip64_extra(header + kLocalSize + name_size, extra_size, &local);
    if (u32(header + 14) != entry->crc || local.compressed != entry->compressed ||
        local.size != entry->size) {
      damaged("the local header differs from the directory" + where);
    }
  }
  entry->data = entry->header + kLocalSize + name_size + extra_size;
}

void ZipArchive::check_layout() const {
  std::set<std::string> names;
  std::vector<const ZipEntry*> in_order;
  for (const ZipEntry& entry : entries_) {
    if (!names.insert(lower_case(entry.name)).second) {
      damaged("the name " + quoted(entry.name) + " is there twice");
    }
    in_order.push_back(&entry);
  }
  std::sort(in_order.begin(), in_order.end(),
            [](const ZipEntry* a, const ZipEntry* b) { return a->header < b->header; });
  for (size_t i = 1; i < in_order.size(); ++i) {
    if (in_order[i - 1]->data + in_order[i - 1]->compressed > in_order[i]->header) {
      damaged("the entries " + quoted(in_order[i - 1]->name) + " and " + quoted(in_order[i]->name) +
              " overlap");
    }
  }
}

void ZipArchive::check_contents(Checksums checksums) const {
  std::vector<std::string> unfit;
  for (const ZipEntry& entry : entries_) {
    // What is stored as it is has nothing else to check.
    if (checksums == Checksums::kIgnored && !entry.deflated) continue;
    uLong crc = crc32_z(0, nullptr, 0);
    unpack(entry,
           [&crc](const unsigned char* bytes, size_t count) { crc = crc32_z(crc, bytes, count); });
    if (crc != entry.crc && checksums == Checksums::kChecked) unfit.push_back(quoted(entry.name));
  }
  if (unfit.empty()) return;
  const size_t count = unfit.size();
  constexpr size_t kNamed = 8;
  if (count > kNamed) {
    unfit.resize(kNamed);
    unfit.push_back("...");
  }
  damaged("got bytes that do not fit their CRC-32 in " + module::join(unfit, ", ") + " (" +
          to_text(count) + " of " + to_text(entries_.size()) +
          " entries), need an intact copy, or ignore_crc (volup: --ignore-crc) for a file that was "
          "written without checksums");
}

template <typename Sink>
void ZipArchive::unpack(const ZipEntry& entry, const Sink& sink) const {
  if (!entry.deflated) {
    sink(bytes_ + entry.data, entry.size);
    return;
  }
  struct Inflater {
    z_stream stream{};
    Inflater() {
      if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
    }
    ~Inflater() { inflateEnd(&stream); }
  } inflater;
  z_stream& stream = inflater.stream;
  std::vector<unsigned char> buffer(size_t{1} << 16);
  const unsigned char* in = bytes_ + entry.data;
  uint64_t in_left = entry.compressed, produced = 0;
  int result = Z_OK;
  while (result != Z_STREAM_END) {
    if (stream.avail_in == 0 && in_left > 0) {
      const uint64_t piece = std::min<uint64_t>(in_left, uint64_t{1} << 30);
      stream.next_in = const_cast<unsigned char*>(in);
      stream.avail_in = static_cast<uInt>(piece);
      in += piece, in_left -= piece;
    }
    stream.next_out = buffer.data();
    stream.avail_out = static_cast<uInt>(buffer.size());
    result = inflate(&stream, Z_NO_FLUSH);
    const size_t count = buffer.size() - stream.avail_out;
    produced += count;
    const bool stuck = count == 0 && stream.avail_in == 0 && in_left == 0;
    if ((result != Z_OK && result != Z_STREAM_END) || produced > entry.size ||
        (stuck && result != Z_STREAM_END)) {
      damaged("the deflated bytes of " + quoted(entry.name) + " are not sound");
    }
    sink(buffer.data(), count);
  }
  if (produced != entry.size || stream.avail_in != 0 || in_left != 0) {
    damaged("the deflated size of " + quoted(entry.name) + " does not fit");
  }
}

}  // namespace volup::archive
