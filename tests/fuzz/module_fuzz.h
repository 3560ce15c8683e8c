// SPDX-License-Identifier: Apache-2.0
//
// What every fuzz target of a loader module does with its input: load it as it is, with the options
// of a file of weights alone for each type, and with a submodule. A loaded model's arrays are read
// to their ends.
#ifndef VOLUP_TESTS_FUZZ_MODULE_FUZZ_H_
#define VOLUP_TESTS_FUZZ_MODULE_FUZZ_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "load/module_abi.h"

extern "C" int32_t volup_module_open_v2(volup_module* module);

namespace volup::test {

inline void read_through(const volup_module_model& model) {
  volatile float sum = 0;
  for (int64_t i = 0; i < model.weight_count; ++i) sum = sum + model.weight[i];
  for (int64_t i = 0; i < model.bias_count; ++i) sum = sum + model.bias[i];
  for (const char* text :
       {model.kind, model.producer, model.weight_dtype, model.origin_kind, model.origin_producer,
        model.origin_sha256, model.weight_name, model.bias_name, model.unused, model.notes}) {
    if (text) sum = sum + static_cast<float>(std::strlen(text));
  }
}

inline void load_once(const uint8_t* data, size_t size, const volup_load_options& options) {
  static const volup_module module = [] {
    volup_module opened{};
    if (volup_module_open_v2(&opened) != VOLUP_STATUS_OK) std::abort();
    return opened;
  }();
  const volup_module_source source{data, size, "memory"};
  volup_module_model model{};
  volup_module_text error{};
  const int32_t status = module.load(&source, &options, &model, &error);
  if (status == VOLUP_STATUS_OK) {
    if (!model.weight || model.weight_count < 1) std::abort();
    read_through(model);
    module.release(&model);
    return;
  }
  // A refusal has words; a fault of the file is never one of volup's.
  if (!error.text || status == VOLUP_STATUS_INTERNAL) std::abort();
  module.free_text(&error);
}

inline void load_every_way(const uint8_t* data, size_t size) {
  volup_load_options options{};
  options.struct_size = sizeof(options);
  load_once(data, size, options);
  volup_epilogue epilogue{sizeof(epilogue), VOLUP_EPILOGUE_LOGSUMEXP_SWISH_CLAMP, 3, 6, 0, -1, 1};
  volup_geometry geometry{sizeof(geometry), 0,         0,         1,         {0, 0, 0},
                          {2, 2, 2},        {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
  options.epilogue = &epilogue;
  options.geometry = &geometry;
  load_once(data, size, options);
  epilogue.kind = VOLUP_EPILOGUE_SOFTMAX_SIGMOID;
  options.submodule = "up";
  load_once(data, size, options);
}

}  // namespace volup::test

#endif  // VOLUP_TESTS_FUZZ_MODULE_FUZZ_H_
