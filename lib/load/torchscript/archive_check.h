// SPDX-License-Identifier: Apache-2.0
//
// Decides, before libtorch sees a byte, whether a file is a TorchScript archive that is safe to
// hand over: what kind of file it is, no code that runs while loading, every tensor storage backed
// by as many bytes as it claims. No libtorch here.
#ifndef VOLUP_LOAD_TORCHSCRIPT_ARCHIVE_CHECK_H_
#define VOLUP_LOAD_TORCHSCRIPT_ARCHIVE_CHECK_H_

#include <cstddef>
#include <string>

namespace volup::torchscript {

struct ArchiveFacts {
  std::string producer;  // "PyTorch (TorchScript file version 10)"
};

// Throws module::Refusal: UNREADABLE where the file is damaged or of another kind (the words say of
// which), UNSUPPORTED where it is TorchScript of a form that volup does not load.
ArchiveFacts check_archive(const void* data, size_t size, bool ignore_crc);

}  // namespace volup::torchscript

#endif  // VOLUP_LOAD_TORCHSCRIPT_ARCHIVE_CHECK_H_
