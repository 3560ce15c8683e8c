// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 (FIPS 180-4), so that a converted file can say what it was made from.
#ifndef VOLUP_LOAD_SHA256_H_
#define VOLUP_LOAD_SHA256_H_

#include <cstddef>
#include <span>
#include <string>

namespace volup {

// Lower-case hexadecimal digest of bytes.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace volup

#endif  // VOLUP_LOAD_SHA256_H_
