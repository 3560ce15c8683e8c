// SPDX-License-Identifier: Apache-2.0
#include "load/sha256.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace volup {
namespace {

uint32_t load_big_endian(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void compress_block(Sha256State& state, const unsigned char* block) {
  std::array<uint32_t, 64> w;
  for (int i = 0; i < 16; ++i) w[i] = load_big_endian(block + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kSha256Round[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const Sha256State step = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state[i] += step[i];
}

void compress(Sha256State& state, const unsigned char* blocks, size_t count) {
  for (; count > 0; --count, blocks += 64) compress_block(state, blocks);
}

}  // namespace

const Sha256Compressor& portable_sha256() {
  static constexpr Sha256Compressor kPortable = {"portable", compress};
  return kPortable;
}

const Sha256Compressor& best_sha256() {
  static const Sha256Compressor* const sha_ni = sha_ni_sha256();
  return sha_ni != nullptr ? *sha_ni : portable_sha256();
}

void Sha256::update(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t left = bytes.size();
  size_ += left;
  if (in_block_ != 0) {
    const size_t taken = std::min(left, block_.size() - in_block_);
    if (taken != 0) std::memcpy(block_.data() + in_block_, data, taken);
    in_block_ += taken;
    data += taken;
    left -= taken;
    if (in_block_ < block_.size()) return;
    compressor_.compress(state_, block_.data(), 1);
    in_block_ = 0;
  }
  compressor_.compress(state_, data, left / 64);
  in_block_ = left % 64;
  if (in_block_ != 0) std::memcpy(block_.data(), data + left - in_block_, in_block_);
}

std::string Sha256::finish_hex() {
  // The rest, a 1 bit, zeros, and the length in bits: one block or two.
  std::array<unsigned char, 128> tail = {};
  std::memcpy(tail.data(), block_.data(), in_block_);
  tail[in_block_] = 0x80;
  const size_t tail_size = in_block_ < 56 ? 64 : 128;
  const uint64_t bits = size_ * 8;
  for (size_t i = 0; i < 8; ++i) {
    tail[tail_size - 1 - i] = static_cast<unsigned char>(bits >> (8 * i));
  }
  compressor_.compress(state_, tail.data(), tail_size / 64);

  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += kDigits[(word >> shift) & 15];
  }
  return hex;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 sum;
  sum.update(bytes);
  return sum.finish_hex();
}

}  // namespace volup
