// SPDX-License-Identifier: Apache-2.0
//
// Descriptions of tensors for bulk copies, which the driver encodes. The driver is asked for its
// function at run time: libvolup links no libcuda.
#ifndef VOLUP_CUDA_SM90_TENSOR_MAP_H_
#define VOLUP_CUDA_SM90_TENSOR_MAP_H_

#include <cuda.h>

#include "cuda/sm90_layout.h"

namespace volup::sm90 {

// Of a dense [n, ci, id, ih, iw] tensor with the sizes of p at x, in boxes of box_x x box_y
// positions and box_c channels; element: bytes. False where the driver cannot.
bool encode_x_map(const Parameters& p, const void* x, int element, CUtensorMap* map);

// Of add at the outputs of each band, for tiles of two squares: see AddSlots; where nothing is
// added, of the outputs themselves: see OutBox. False where the driver cannot.
bool encode_output_maps(Parameters& p, int element);

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_TENSOR_MAP_H_
