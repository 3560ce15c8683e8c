// SPDX-License-Identifier: Apache-2.0
#include "cuda/cudnn_api.h"

#include <dlfcn.h>

#include <cstdlib>

#include "status.h"

namespace volup {
namespace {

// Looks functions up and remembers the first that is not there.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  void find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }

  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

CudnnApi open_cudnn() {
  const char* const asked = std::getenv("VOLUP_CUDNN");
  const std::string file = asked != nullptr && *asked != '\0' ? asked : "libcudnn.so.9";
  CudnnApi api;
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    api.missing = cat("cuDNN cannot be opened: ", why == nullptr ? file.c_str() : why);
    return api;
  }
  Symbols symbols(library);
  symbols.find("cudnnGetVersion", &api.get_version);
  symbols.find("cudnnGetErrorString", &api.get_error_string);
  symbols.find("cudnnCreate", &api.create);
  symbols.find("cudnnDestroy", &api.destroy);
  symbols.find("cudnnSetStream", &api.set_stream);
  symbols.find("cudnnCreateTensorDescriptor", &api.create_tensor);
  symbols.find("cudnnDestroyTensorDescriptor", &api.destroy_tensor);
  symbols.find("cudnnSetTensorNdDescriptor", &api.set_tensor);
  symbols.find("cudnnCreateFilterDescriptor", &api.create_filter);
  symbols.find("cudnnDestroyFilterDescriptor", &api.destroy_filter);
  symbols.find("cudnnSetFilterNdDescriptor", &api.set_filter);
  symbols.find("cudnnCreateConvolutionDescriptor", &api.create_convolution);
  symbols.find("cudnnDestroyConvolutionDescriptor", &api.destroy_convolution);
  symbols.find("cudnnSetConvolutionNdDescriptor", &api.set_convolution);
  symbols.find("cudnnSetConvolutionGroupCount", &api.set_groups);
  symbols.find("cudnnSetConvolutionMathType", &api.set_math);
  symbols.find("cudnnGetConvolutionBackwardDataAlgorithm_v7", &api.get_algorithms);
  symbols.find("cudnnGetConvolutionBackwardDataWorkspaceSize", &api.get_workspace);
  symbols.find("cudnnConvolutionBackwardData", &api.backward_data);
  if (!symbols.missing().empty()) {
    api.missing = cat("cuDNN in ", file, " has no ", symbols.missing());
    return api;
  }
  api.version = static_cast<int64_t>(api.get_version());
  if (api.version == 0) api.missing = cat("cuDNN in ", file, " cannot open its own libraries");
  return api;
}

}  // namespace

const CudnnApi& cudnn_api() {
  static const CudnnApi kApi = open_cudnn();
  return kApi;
}

}  // namespace volup
