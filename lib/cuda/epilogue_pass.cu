// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>

#include "cuda/cuda_error.h"
#include "cuda/epilogue_math.cuh"
#include "cuda/epilogue_pass.h"
#include "cuda/simt_kernel.h"

namespace volup {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlockLimit = int64_t{1} << 20;  // more work goes round in strides

struct PassArguments {
  EpiloguePass pass;
  Divider by_plane{1};
  Divider by_channels{1};
  int64_t items = 0;  // positions where channels are coupled, else elements
};

__device__ inline int64_t first_item() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t item_stride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

template <EpilogueKind kKind, typename T>
__global__ void __launch_bounds__(kThreads)
    pointwise_pass(const __grid_constant__ PassArguments a) {
  const EpiloguePass& pass = a.pass;
  T* const out = static_cast<T*>(pass.out);
  for (int64_t item = first_item(); item < a.items; item += item_stride()) {
    int64_t channel;
    a.by_channels.divide(a.by_plane.divide(item), &channel);
    const float y = pass.logits[item] + __ldg(pass.bias + channel);
    if constexpr (kKind == EpilogueKind::kAddHardswish) {
      const float add = load_float(static_cast<const T*>(pass.add) + item);
      store_float(out + item, hardswish_product(y + add, pass.epilogue));
    } else {
      store_float(out + item, y);
    }
  }
}

template <EpilogueKind kKind, typename T>
__global__ void __launch_bounds__(kThreads) coupled_pass(const __grid_constant__ PassArguments a) {
  const EpiloguePass& pass = a.pass;
  T* const out = static_cast<T*>(pass.out);
  for (int64_t item = first_item(); item < a.items; item += item_stride()) {
    int64_t voxel;
    const int64_t sample = a.by_plane.divide(item, &voxel);
    const int64_t first = sample * pass.channels * pass.plane + voxel;
    const auto logit = [&](int64_t c) {
      return pass.logits[first + c * pass.plane] + __ldg(pass.bias + c);
    };
    ExpSum total;
    for (int64_t c = 0; c < pass.channels; ++c) total.add(logit(c));
    if constexpr (kKind == EpilogueKind::kLogsumexpSwishClamp) {
      store_float(out + item, swish_clamp(total.logsumexp(), pass.epilogue));
    } else {
      const float scale = total.softmax_scale();
      for (int64_t c = 0; c < pass.channels; ++c) {
        store_float(out + first + c * pass.plane, sigmoid(expf(logit(c) - total.maximum) * scale));
      }
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) widen(const T* from, float* to, int64_t count) {
  for (int64_t item = first_item(); item < count; item += item_stride()) {
    to[item] = load_float(from + item);
  }
}

using PassFunction = void (*)(PassArguments);

template <typename T>
PassFunction function_for_kind(EpilogueKind kind) {
  switch (kind) {
    case EpilogueKind::kLogsumexpSwishClamp:
      return coupled_pass<EpilogueKind::kLogsumexpSwishClamp, T>;
    case EpilogueKind::kSoftmaxSigmoid:
      return coupled_pass<EpilogueKind::kSoftmaxSigmoid, T>;
    case EpilogueKind::kAddHardswish:
      return pointwise_pass<EpilogueKind::kAddHardswish, T>;
    case EpilogueKind::kIdentity:
      break;
  }
  return pointwise_pass<EpilogueKind::kIdentity, T>;
}

PassFunction pass_function(EpilogueKind kind, DType io) {
  switch (io) {
    case DType::kFp16:
      return function_for_kind<__half>(kind);
    case DType::kBf16:
      return function_for_kind<__nv_bfloat16>(kind);
    case DType::kFp32:
      break;
  }
  return function_for_kind<float>(kind);
}

const void* widen_function(DType io) {
  switch (io) {
    case DType::kFp16:
      return reinterpret_cast<const void*>(widen<__half>);
    case DType::kBf16:
      return reinterpret_cast<const void*>(widen<__nv_bfloat16>);
    case DType::kFp32:
      break;
  }
  return reinterpret_cast<const void*>(widen<float>);
}

Status launch(const void* function, void** parameters, int64_t items, cudaStream_t stream,
              const char* what) {
  const int64_t blocks = std::min(items / kThreads + (items % kThreads != 0), kBlockLimit);
  return cuda_status(cudaLaunchKernel(function, dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
                                      parameters, 0, stream),
                     what);
}

}  // namespace

Status launch_epilogue_pass(const EpiloguePass& pass, DType io, cudaStream_t stream) {
  PassArguments arguments;
  arguments.pass = pass;
  arguments.by_plane = Divider(pass.plane);
  arguments.by_channels = Divider(pass.channels);
  arguments.items = pass.samples * pass.plane;
  if (!couples_channels(pass.epilogue.kind)) arguments.items *= pass.channels;
  void* parameters[] = {&arguments};
  return launch(reinterpret_cast<const void*>(pass_function(pass.epilogue.kind, io)), parameters,
                arguments.items, stream, "epilogue pass, launch");
}

Status launch_widen(const void* from, DType io, float* to, int64_t count, cudaStream_t stream) {
  void* parameters[] = {&from, &to, &count};
  return launch(widen_function(io), parameters, count, stream, "widening pass, launch");
}

Status load_epilogue_pass(EpilogueKind kind, DType io) {
  cudaFuncAttributes attributes;
  VOLUP_RETURN_IF_CUDA_ERROR(
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(pass_function(kind, io))),
      "epilogue pass, loading");
  return cuda_status(cudaFuncGetAttributes(&attributes, widen_function(io)),
                     "widening pass, loading");
}

}  // namespace volup
