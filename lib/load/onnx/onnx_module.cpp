// SPDX-License-Identifier: Apache-2.0
//
// The ONNX loader module's boundary: the one exported symbol, the guard, and the parsing of the
// bytes by ONNX's own protobuf classes. Nothing of a model is computed here.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <onnx/onnx_pb.h>

#include <climits>
#include <string>
#include <utility>

#include "load/module_support.h"
#include "load/onnx/onnx_graph.h"

namespace volup::onnx_file {
namespace {

using module::refuse_unreadable;
using module::refuse_unsupported;
using module::to_text;

void parse(const void* data, size_t size, onnx::ModelProto* model) {
  if (size > INT_MAX) {
    refuse_unsupported("size: got " + to_text(size) + " bytes, need at most " + to_text(INT_MAX) +
                       ", which is all that protobuf reads");
  }
  // A library does not print.
  const google::protobuf::LogSilencer silent;
  google::protobuf::io::ArrayInputStream bytes(data, static_cast<int>(size));
  google::protobuf::io::CodedInputStream stream(&bytes);
  stream.SetTotalBytesLimit(INT_MAX);
  if (!model->ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    refuse_unreadable("damaged or truncated ONNX file: protobuf cannot read it");
  }
  if (!model->has_graph() || model->graph().node_size() == 0) {
    refuse_unreadable("damaged ONNX file: got no graph with nodes, need one");
  }
}

int32_t load(const volup_module_source* source, const volup_load_options* options,
             volup_module_model* out, volup_module_text* error) {
  return module::guarded(error, [&] {
    if (options->submodule) {
      refuse_unsupported(
          "submodule: got " + module::quoted(options->submodule) +
          ", need none for ONNX, whose graph has no submodules: cut the block out with "
          "onnx.utils.extract_model");
    }
    module::LoadedModel loaded;
    {
      onnx::ModelProto model;
      parse(source->data, source->size, &model);
      loaded = read_onnx(&model);
    }
    *out = module::to_abi(std::move(loaded));
  });
}

const char* library_text() {
  static const std::string* const text =
      new std::string("ONNX's protobuf classes, protobuf " +
                      google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION));
  return text->c_str();
}

}  // namespace
}  // namespace volup::onnx_file

extern "C" __attribute__((visibility("default"))) int32_t volup_module_open_v2(
    volup_module* module) {
  return volup::module::guarded(nullptr, [&] {
    module->load = volup::onnx_file::load;
    module->save = nullptr;
    module->release = volup::module::free_model;
    module->free_text = volup::module::free_text;
    module->library = volup::onnx_file::library_text();
  });
}
