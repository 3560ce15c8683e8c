// SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90_tensor_map.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

#include "geometry.h"

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

// A box of a tensor of five dimensions, fastest first; strides: bytes, of all but the fastest.
bool encode(const void* at, int element, const int64_t (&sizes)[5], const int64_t (&strides)[4],
            const int32_t (&box)[5], CUtensorMapSwizzle swizzle, CUtensorMap* map) {
  static const Encode encode = find_encode();
  if (encode == nullptr) return false;
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  cuuint64_t wide_sizes[5], wide_strides[4];
  cuuint32_t wide_box[5];
  std::copy(std::begin(sizes), std::end(sizes), wide_sizes);
  std::copy(std::begin(strides), std::end(strides), wide_strides);
  std::copy(std::begin(box), std::end(box), wide_box);
  // The values are moved as they are: 16-bit types differ in nothing here.
  const CUtensorMapDataType type =
      element == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode(map, type, 5, const_cast<void*>(at), wide_sizes, wide_strides, wide_box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

bool encode_x_map(const Parameters& p, const void* x, int element, CUtensorMap* map) {
  // x, y, z, channel, sample.
  const int64_t sizes[5] = {p.iw, p.ih, p.id, p.ci, p.n};
  int64_t strides[4];
  int64_t stride = element;
  for (int axis = 0; axis < 4; ++axis) strides[axis] = stride *= sizes[axis];
  return encode(x, element, sizes, strides, {p.box_x, p.box_y, 1, p.box_c, 1},
                CU_TENSOR_MAP_SWIZZLE_NONE, map);
}

bool encode_output_maps(Parameters& p, int element) {
  // Of add where there is one, and else of the outputs.
  const bool adds = p.add != nullptr;
  const auto* tensor = static_cast<const char*>(adds ? p.add : p.out);
  const int32_t box[5] = {adds ? kAddRow : kOutRow, adds ? add_channels(element) : kMaxChannels,
                          adds ? kSquareEdge : kOutRows, 1, 1};
  const CUtensorMapSwizzle swizzle = !adds          ? CU_TENSOR_MAP_SWIZZLE_NONE
                                     : element == 4 ? CU_TENSOR_MAP_SWIZZLE_128B
                                                    : CU_TENSOR_MAP_SWIZZLE_64B;
  for (const Class& c : std::span(p.classes).first(static_cast<size_t>(p.class_count))) {
    for (int32_t i = c.first_band; i < c.first_band + c.bands; ++i) {
      // A band without outputs has boxes all the same, beside those of the class's other bands.
      // Nobody looks at boxes of add there: they are those of the first phase, which has some.
      const int32_t phase_y =
          phase_count(p.oh, p.stride_y, p.bands[i].phase_y) > 0 ? p.bands[i].phase_y : 0;
      const int64_t first = int64_t{c.phase_z} * p.oh * p.ow + int64_t{phase_y} * p.ow;
      // x, channel, y, z, sample: rows of a box are channels of a y.
      const int64_t sizes[5] = {p.ow, p.co, phase_count(p.oh, p.stride_y, phase_y),
                                phase_count(p.od, p.stride_z, c.phase_z), p.n};
      const int64_t strides[4] = {p.output_plane * element, int64_t{p.stride_y} * p.ow * element,
                                  int64_t{p.stride_z} * p.oh * p.ow * element,
                                  p.co * p.output_plane * element};
      // Without outputs along z a class has no tiles.
      if (sizes[3] == 0) continue;
      if (!encode(tensor + first * element, element, sizes, strides, box, swizzle,
                  &p.output_maps[i])) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace volup::sm90
