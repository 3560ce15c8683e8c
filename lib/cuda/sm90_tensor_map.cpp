// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90_tensor_map.h"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace volup::sm90 {

namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess
             ? reinterpret_cast<Encode>(function)
             : nullptr;
}

}  // namespace

bool encode_x_map(const Parameters& p, const void* x, int element, CUtensorMap* map) {
  static const Encode encode = find_encode();
  if (encode == nullptr) return false;
  // Fastest first: x, y, z, channel, sample.
  const int32_t sizes[5] = {p.iw, p.ih, p.id, p.ci, p.n};
  const cuuint32_t box[5] = {static_cast<cuuint32_t>(p.box_x), static_cast<cuuint32_t>(p.box_y), 1,
                             kChunk, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  cuuint64_t wide[5];
  cuuint64_t strides[4];  // bytes, of y and slower
  cuuint64_t stride = static_cast<cuuint64_t>(element);
  for (int axis = 0; axis < 5; ++axis) {
    wide[axis] = static_cast<cuuint64_t>(sizes[axis]);
    stride *= wide[axis];
    if (axis < 4) strides[axis] = stride;
  }
  // The values are moved as they are: 16-bit types differ in nothing here.
  const CUtensorMapDataType type =
      element == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode(map, type, 5, const_cast<void*>(x), wide, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace volup::sm90
