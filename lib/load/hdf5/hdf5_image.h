// SPDX-License-Identifier: Apache-2.0
//
// Opens an HDF5 file that lies in memory, without copying it. Knows nothing of what is in it.
#ifndef VOLUP_LOAD_HDF5_HDF5_IMAGE_H_
#define VOLUP_LOAD_HDF5_HDF5_IMAGE_H_

#include <cstddef>

#include "load/hdf5/hdf5_access.h"

namespace volup::hdf5 {

// HDF5 reads the caller's memory where it lies: every copy that its core driver asks for is that
// memory. It is opened for reading alone, so nothing is written to it.
struct BorrowedImage {
  const void* data;
};

// image must outlive the file. Throws module::Refusal UNREADABLE for what is no sound HDF5 file.
Handle open_image(BorrowedImage* image, size_t size);

}  // namespace volup::hdf5

#endif  // VOLUP_LOAD_HDF5_HDF5_IMAGE_H_
