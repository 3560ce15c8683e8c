// SPDX-License-Identifier: Apache-2.0
//
// Opens an HDF5 file that lies in memory; see hdf5_image.h.
#include "load/hdf5/hdf5_image.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "load/module_support.h"

namespace volup::hdf5 {
namespace {

using module::refuse_unreadable;
using module::to_text;

// Where the superblock begins; size where there is none.
size_t find_superblock(const void* data, size_t size) {
  static constexpr unsigned char kSignature[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  const char* bytes = static_cast<const char*>(data);
  for (size_t offset = 0; offset + sizeof(kSignature) <= size;
       offset = offset == 0 ? 512 : offset * 2) {
    if (std::memcmp(bytes + offset, kSignature, sizeof(kSignature)) == 0) return offset;
  }
  return size;
}

// Bytes of a length in this file, 8 but for odd writers; 0 where HDF5 will not read it either.
size_t length_size(const unsigned char* bytes, size_t size, size_t superblock) {
  if (size - superblock < 16) return 0;
  const bool is_new = bytes[superblock + 8] >= 2;
  const size_t width = bytes[superblock + (is_new ? 10 : 14)];
  return width >= 2 && width <= 32 && (width & (width - 1)) == 0 ? width : 0;
}

// Where a global heap's signature with version 1 begins, at from or later; size where none does. By
// its first byte, which weights seldom have: memmem would take a tenth of a load.
size_t find_global_heap(const unsigned char* bytes, size_t size, size_t from) {
  static constexpr unsigned char kHeap[] = {'G', 'C', 'O', 'L', 1, 0, 0, 0};
  while (size - from >= sizeof(kHeap)) {
    const void* const found = std::memchr(bytes + from, kHeap[0], size - from - sizeof(kHeap) + 1);
    if (!found) return size;
    from = static_cast<size_t>(static_cast<const unsigned char*>(found) - bytes);
    if (std::memcmp(bytes + from, kHeap, sizeof(kHeap)) == 0) return from;
    ++from;
  }
  return size;
}

// HDF5 1.10 walks a global heap, where strings of variable length lie, without an end if a free
// object in it has no size, and reads past it if an object claims more than the heap has. Such
// heaps are refused before HDF5 sees them.
void check_global_heaps(const unsigned char* bytes, size_t size, size_t superblock) {
  const size_t width = length_size(bytes, size, superblock);
  if (width == 16 || width == 32) {
    module::refuse_unsupported("HDF5 lengths: got " + to_text(width) + " bytes, need 2, 4 or 8");
  }
  const size_t header = (8 + width + 7) / 8 * 8;  // of the heap, and of each object
  const auto length_at = [&](size_t at) {
    uint64_t length = 0;
    for (size_t i = width; i > 0; --i) length = length << 8 | bytes[at + i - 1];
    return length;
  };
  if (width == 0) return;
  for (size_t heap = find_global_heap(bytes, size, 0); size - heap >= header;
       heap = find_global_heap(bytes, size, heap + 8)) {
    const size_t end =
        heap + static_cast<size_t>(std::min<uint64_t>(length_at(heap + 8), size - heap));
    for (size_t at = heap + header; at < end && end - at >= header;) {
      const bool is_free = bytes[at] == 0 && bytes[at + 1] == 0;
      const uint64_t length = length_at(at + 8);
      const uint64_t room = end - at - (is_free ? 0 : header);
      if (length > room || (is_free && length == 0)) {
        refuse_unreadable("damaged HDF5 file: global heap: got an object of " + to_text(length) +
                          " bytes, need " + (is_free ? "1 to " : "0 to ") + to_text(room));
      }
      at += static_cast<size_t>(is_free ? length : header + (length + 7) / 8 * 8);
    }
  }
}

void* borrow(size_t, H5FD_file_image_op_t, void* image) {
  return const_cast<void*>(static_cast<BorrowedImage*>(image)->data);
}
void* copy_nothing(void* destination, const void*, size_t, H5FD_file_image_op_t, void*) {
  return destination;
}
void* never_grow(void*, size_t, H5FD_file_image_op_t, void*) { return nullptr; }
herr_t free_nothing(void*, H5FD_file_image_op_t, void*) { return 0; }
void* same_image(void* image) { return image; }
herr_t keep_image(void*) { return 0; }

}  // namespace

Handle open_image(BorrowedImage* image, size_t size) {
  if (size == 0) refuse_unreadable("the file is empty, need an HDF5 file");
  const size_t superblock = find_superblock(image->data, size);
  if (superblock == size) {
    refuse_unreadable("file kind: got no HDF5 signature, need an HDF5 file");
  }
  check_global_heaps(static_cast<const unsigned char*>(image->data), size, superblock);
  H5FD_file_image_callbacks_t callbacks = {borrow,     copy_nothing, never_grow, free_nothing,
                                           same_image, keep_image,   image};
  const Handle access = need(H5Pcreate(H5P_FILE_ACCESS), "opening");
  need_ok(H5Pset_fapl_core(access.get(), size_t{1} << 16, false), "opening");
  need_ok(H5Pset_file_image_callbacks(access.get(), &callbacks), "opening");
  need_ok(H5Pset_file_image(access.get(), const_cast<void*>(image->data), size), "opening");
  // HDF5 takes two open files of one name for one file.
  static uint64_t number = 0;
  const std::string name = "volup-image-" + to_text(++number);
  return need(H5Fopen(name.c_str(), H5F_ACC_RDONLY, access.get()), "opening");
}

}  // namespace volup::hdf5
