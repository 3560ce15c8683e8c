// SPDX-License-Identifier: Apache-2.0
#include "load/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>

#include "load/file_content.h"

namespace volup {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string digest(const std::string& text) { return sha256_hex(bytes_of(text)); }

std::string random_text(size_t size) {
  std::mt19937 random(256);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// FIPS 180-4's examples, and lengths around the padding's edges (values from coreutils sha256sum).
TEST(Sha256, MatchesPublishedDigests) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(digest(std::string(55, 'a')),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(digest(std::string(56, 'a')),
            "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(digest(std::string(64, 'a')),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

TEST(Sha256, PiecesOfAnySizeGiveTheSameDigest) {
  const std::string text = random_text(1000);
  const std::string whole = digest(text);
  for (size_t piece = 1; piece <= 200; ++piece) {
    Sha256 sum;
    for (size_t at = 0; at < text.size(); at += piece) {
      sum.update(bytes_of(text).subspan(at, std::min(piece, text.size() - at)));
    }
    ASSERT_EQ(sum.finish_hex(), whole) << piece;
  }
}

TEST(Sha256, TheCpusInstructionsAgreeWithPlainCode) {
  const Sha256Compressor* const fast = sha_ni_sha256();
  if (fast == nullptr) GTEST_SKIP() << "this CPU has no SHA instructions";
  EXPECT_EQ(&best_sha256(), fast);
  const std::string text = random_text(5000);
  for (size_t size = 0; size <= text.size(); size += 1 + size / 50) {
    Sha256 by_instructions(*fast), by_code(portable_sha256());
    by_instructions.update(bytes_of(text).first(size));
    by_code.update(bytes_of(text).first(size));
    ASSERT_EQ(by_instructions.finish_hex(), by_code.finish_hex()) << size;
  }
}

// 3 MiB and a byte: a thread takes it.
TEST(Sha256, ADigestTakenAsideIsTheSame) {
  for (const size_t size : {size_t{0}, size_t{1000}, (size_t{3} << 20) + 1, size_t{9} << 20}) {
    const std::string text = random_text(size);
    Digest aside(bytes_of(text));
    EXPECT_EQ(aside.hex(), digest(text)) << size;
    const Digest dropped(bytes_of(text));  // stops, and touches nothing afterwards
  }
}

}  // namespace
}  // namespace volup
