// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes into the loader module for files of weights alone. Checksums are not
// looked at, or no changed zip would get past them. Bytes that begin as a pickle are put into an
// archive as its data.pkl, beside a storage of 2,592 bytes.
#include <string>

#include "module_fuzz.h"
#include "zip_bytes.h"

namespace {

using volup::test::load_once;

void load_ignoring_checksums(const uint8_t* data, size_t size) {
  volup_epilogue epilogue{sizeof(epilogue), VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP, 3, 6, 0, -1, 1};
  volup_geometry geometry{sizeof(geometry), 0,         0,         1,         {0, 0, 0},
                          {2, 2, 2},        {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
  volup_load_options options{};
  options.struct_size = sizeof(options);
  options.flags = VOLUP_LOAD_IGNORE_CRC;
  options.epilogue = &epilogue;
  options.geometry = &geometry;
  load_once(data, size, options);
  options.submodule = "decoder.up1";
  load_once(data, size, options);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size >= 2 && data[0] == 0x80) {
    volup::test::ZipBytes zip;
    zip.add("a/data.pkl", std::string(reinterpret_cast<const char*>(data), size));
    zip.add("a/data/0", std::string(2592, '\x3f'));
    const std::string bytes = zip.finish();
    load_ignoring_checksums(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    return 0;
  }
  volup::test::load_every_way(data, size);
  load_ignoring_checksums(data, size);
  return 0;
}
