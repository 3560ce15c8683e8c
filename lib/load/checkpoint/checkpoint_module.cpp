// SPDX-License-Identifier: Apache-2.0
//
// The boundary of the loader module for files of weights alone: a PyTorch state_dict, safetensors.
// It has no libtorch and runs nothing of the file.
#include <zlib.h>

#include <string_view>

#include "load/archive/zip_archive.h"
#include "load/checkpoint/block_choice.h"
#include "load/checkpoint/safetensors.h"
#include "load/checkpoint/state_dict.h"
#include "load/module_support.h"

namespace volup::checkpoint {
namespace {

module::LoadedModel load_model(std::string_view bytes, const volup_load_options& options) {
  if (!bytes.starts_with("PK")) return choose_block(read_safetensors(bytes), options);
  const bool ignore_crc = (options.flags & VOLUP_LOAD_IGNORE_CRC) != 0;
  const archive::ZipArchive zip(
      bytes.data(), bytes.size(),
      ignore_crc ? archive::Checksums::kIgnored : archive::Checksums::kChecked);
  const TensorFile file = read_state_dict(zip, options.submodule ? options.submodule : "");
  module::LoadedModel model = choose_block(file, options);
  if (ignore_crc) model.note("checksums of the file were not checked");
  return model;
}

int32_t load(const volup_module_source* source, const volup_load_options* options,
             volup_module_model* out, volup_module_text* error) {
  return module::guarded(error, [&] {
    const std::string_view bytes(static_cast<const char*>(source->data), source->size);
    *out = module::to_abi(load_model(bytes, *options));
  });
}

}  // namespace
}  // namespace volup::checkpoint

extern "C" __attribute__((visibility("default"))) int32_t volup_module_open_v2(
    volup_module* module) {
  return volup::module::guarded(nullptr, [&] {
    module->load = volup::checkpoint::load;
    module->save = nullptr;
    module->release = volup::module::free_model;
    module->free_text = volup::module::free_text;
    module->library = "zlib " ZLIB_VERSION ", nlohmann/json";
  });
}
