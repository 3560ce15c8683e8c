// SPDX-License-Identifier: Apache-2.0
//
// The TorchScript module against files made from good ones by damage.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "torchscript_under_test.h"
#include "zip_file.h"

namespace volup::test {
namespace {

// Not the last byte: its last bits mean nothing where the entry is deflated.
TEST(TorchScriptDamage, AFlippedByteInAnyEntryFailsItsChecksum) {
  for (const char* name : {"add_functional/traced.pt", "lse_seed/frozen.pt"}) {
    const std::string good = case_bytes(name);
    for (const Entry& entry : entries_of(good)) {
      for (const size_t at :
           {entry.data, entry.data + entry.stored / 2, entry.data + entry.stored - 2}) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 0x10);
        const Outcome outcome = torchscript().load(bad);
        EXPECT_EQ(outcome.status, VOLUP_STATUS_UNREADABLE) << entry.name << " at " << at;
        EXPECT_TRUE(refused_with(outcome, entry.name)) << outcome.text;
      }
    }
  }
}

TEST(TorchScriptDamage, ChecksumsThatDoNotFitAreTakenWhereTheUserSaysSo) {
  std::string bad = case_bytes("add_functional/traced.pt");
  for (const Entry& entry : entries_of(bad)) {
    // As a writer without checksums leaves them.
    put(&bad, entry.central + 16, uint32_t{0});
    put(&bad, little_endian<uint32_t>(bad, entry.central + 42) + 14u, uint32_t{0});
  }
  const Outcome refused = torchscript().load(bad);
  EXPECT_EQ(refused.status, VOLUP_STATUS_UNREADABLE);
  EXPECT_TRUE(refused_with(refused, "--ignore-crc")) << refused.text;
  volup_load_options options{};
  options.struct_size = sizeof(options);
  options.flags = VOLUP_LOAD_IGNORE_CRC;
  const Outcome taken = torchscript().load(bad, options);
  ASSERT_TRUE(taken.ok()) << taken.text;
  EXPECT_EQ(taken.weight(), torchscript().load(case_bytes("add_functional/traced.pt")).weight());
}

TEST(TorchScriptDamage, EveryTruncationIsRefused) {
  const std::string good = case_bytes("add_functional/traced.pt");
  for (size_t size = 0; size < good.size(); size += size < good.size() - 600 ? 61 : 1) {
    const Outcome outcome = torchscript().load(good.substr(0, size));
    ASSERT_EQ(outcome.status, VOLUP_STATUS_UNREADABLE) << "first " << size << " bytes";
    ASSERT_FALSE(outcome.text.empty());
  }
  EXPECT_FALSE(torchscript().load(good + '\0').ok());
}

TEST(TorchScriptDamage, AByteAnywhereGivesTheSameModelOrWords) {
  const std::string good = case_bytes("add_functional/scripted.pt");
  const Outcome whole = torchscript().load(good);
  ASSERT_TRUE(whole.ok());
  std::mt19937_64 random(20240607);
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bad = good;
    const size_t at = random() % bad.size();
    const char bit = static_cast<char>(1 << (random() % 8));
    bad[at] = static_cast<char>(bad[at] ^ bit);
    const Outcome outcome = torchscript().load(bad);
    if (!outcome.ok()) {
      ASSERT_FALSE(outcome.text.empty()) << "seed 20240607, round " << i << ", byte " << at;
      continue;
    }
    // Bytes between entries and times are nobody's.
    ++accepted;
    ASSERT_EQ(outcome.weight(), whole.weight()) << "byte " << at;
    ASSERT_EQ(outcome.bias(), whole.bias()) << "byte " << at;
  }
  EXPECT_LT(accepted, 2000);
}

TEST(TorchScriptDamage, ADirectoryThatLiesIsRefused) {
  const std::string good = case_bytes("add_functional/traced.pt");
  const std::vector<Entry> entries = entries_of(good);
  const auto changed = [&good](size_t at, auto value) {
    std::string bad = good;
    put(&bad, at, value);
    return torchscript().load(bad);
  };
  const size_t record = entries[0].central, next = entries[1].central;
  EXPECT_EQ(changed(record + 8, uint16_t{0x0801}).status, VOLUP_STATUS_UNSUPPORTED);  // encrypted
  EXPECT_TRUE(refused_with(changed(record + 8, uint16_t{0x0801}), "encrypted"));
  EXPECT_TRUE(refused_with(changed(record + 10, uint16_t{93}), "compression method 93"));
  EXPECT_TRUE(refused_with(changed(record + 24, uint32_t{1} << 30), "more than they can hold"));
  EXPECT_TRUE(refused_with(changed(record + 42, uint32_t{1} << 30), "no local header"));
  EXPECT_FALSE(changed(next + 42, little_endian<uint32_t>(good, record + 42)).ok());
  EXPECT_FALSE(changed(good.size() - 12, uint16_t{3}).ok());  // number of entries
}

TEST(TorchScriptDamage, ASoundZipOfStoredEntriesLoads) {
  const std::vector<Entry> entries = entries_of(case_bytes("add_functional/traced.pt"));
  const Outcome outcome = torchscript().load(zip_of(entries));
  EXPECT_TRUE(outcome.ok()) << outcome.text;
}

TEST(TorchScriptDamage, NamesThatMisleadAreRefused) {
  const std::vector<Entry> good = entries_of(case_bytes("add_functional/traced.pt"));
  const auto with = [&good](const std::string& name, const std::string& content) {
    std::vector<Entry> entries = good;
    Entry entry;
    entry.name = name;
    entry.content = content;
    entries.push_back(entry);
    return torchscript().load(zip_of(entries));
  };
  EXPECT_TRUE(with("traced.pt/extra/note", "x").ok());
  EXPECT_TRUE(refused_with(with("traced.pt/DATA.pkl", "x"), "twice"));
  EXPECT_TRUE(refused_with(with("traced.pt/../../x", "x"), "plain relative path"));
  EXPECT_TRUE(refused_with(with("/x", "x"), "plain relative path"));
  EXPECT_TRUE(refused_with(with(std::string("traced.pt/a\0b", 13), "x"), "plain relative path"));
  EXPECT_TRUE(refused_with(with("other/x", "x"), "more than one folder"));
  EXPECT_TRUE(refused_with(with("traced.pt/model.json", "{}"), "before 1.4"));
  EXPECT_TRUE(refused_with(with("traced.pt/.data/extern_modules", ""), "torch.package"));
  const Outcome state = with("traced.pt/code/__torch__/x.PY", "def __setstate__(self): pass\n");
  EXPECT_EQ(state.status, VOLUP_STATUS_UNSUPPORTED);
  EXPECT_TRUE(refused_with(state, "__setstate__")) << state.text;
}

// Entries changed under a checksum that fits: what reaches libtorch must not bring it down.
TEST(TorchScriptDamage, ChangedEntriesWithSoundChecksumsNeverCrash) {
  std::mt19937_64 random(77);
  for (const char* name :
       {"lse_seed/frozen.pt", "softmax_no_bias/scripted.pt", "add_functional/traced.pt"}) {
    const std::vector<Entry> good = entries_of(case_bytes(name));
    for (int round = 0; round < 400; ++round) {
      std::vector<Entry> entries = good;
      Entry& entry = entries[random() % entries.size()];
      const int changes = 1 + static_cast<int>(random() % 3);
      for (int i = 0; i < changes && !entry.content.empty(); ++i) {
        const size_t at = random() % entry.content.size();
        switch (random() % 3) {
          case 0:
            entry.content[at] = static_cast<char>(random());
            break;
          case 1:
            entry.content.erase(at, 1 + random() % 4);
            break;
          default:
            entry.content.insert(at, entry.content.substr(random() % entry.content.size(), 5));
        }
      }
      const Outcome outcome = torchscript().load(zip_of(entries));
      ASSERT_TRUE(outcome.ok() || !outcome.text.empty())
          << name << ", seed 77, round " << round << ", entry " << entry.name;
    }
  }
}

}  // namespace
}  // namespace volup::test
