// SPDX-License-Identifier: Apache-2.0
//
// How outputs of "cuda/sm90" leave where tiles have two squares and values 16 bits: a warp puts
// those of its 16 positions into a box of shared memory of its own, and a bulk copy takes the whole
// box while the warp is at its next tile. What is outside the tensor the copy leaves out.
#ifndef VOLUP_CUDA_SM90_OUT_BOX_CUH_
#define VOLUP_CUDA_SM90_OUT_BOX_CUH_

#include "cuda/ptx.h"
#include "cuda/sm90_block.cuh"
#include "cuda/sm90_layout.h"

namespace volup::sm90 {

template <typename Io, int kN>
struct OutBox : Block {
  static constexpr int kElement = static_cast<int>(sizeof(Io));
  static constexpr int kBytes = out_box_bytes(kN, kElement);
  static constexpr int kPitch = kOutRow * kElement;  // from a channel to the next
  static_assert(kOutRows * kSquareEdge * 4 == kRows && kBytes % 128 == 0);

  const int lane;
  const uint32_t at;  // of the warp's box

  __device__ OutBox(const Block& block, int lane_of_warp)
      : Block(block),
        lane(lane_of_warp),
        at(ptx::shared_address(shared.dynamic) + c.out_at + ptx::thread_index() / 32 * kBytes) {}

  // Waits until the box as it was last sent has been read.
  __device__ void await_read() const {
    if (lane == 0) ptx::bulk_wait_read();
    __syncwarp();
  }
  // The thread's pair of outputs of channel 8 i + e after its first and row h, packed.
  __device__ void put(int i, int e, int h, uint32_t pair) const {
    const uint32_t own = at + lane % 4 * 2 * kPitch + lane / 4 * 2 * kElement;
    ptx::store_shared(own + (h * kN + 8 * i + e) * kPitch, pair);
  }
  // Starts the copy of the box. tile: the warpgroup's square; x: of its first output.
  __device__ void send(const Tile& tile, int x) const {
    ptx::fence_proxy_async();
    __syncwarp();
    // The map of a phase along y without outputs is another one's.
    if (lane == 0 && band(tile.band).phase_y < p.oh) {
      ptx::tensor_store(&p.output_maps[c.first_band + tile.band], x, first_channel(kN),
                        tile.y + kOutRows * warp(), tile.z, tile.n, at);
      ptx::bulk_commit();
    }
  }
  // Waits until all boxes of the warp are in memory.
  __device__ static void await_stored(int lane_of_warp) {
    if (lane_of_warp == 0) ptx::bulk_wait();
    __syncwarp();
  }
};

}  // namespace volup::sm90

#endif  // VOLUP_CUDA_SM90_OUT_BOX_CUH_
