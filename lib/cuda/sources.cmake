# SPDX-License-Identifier: Apache-2.0
#
# The portable CUDA backend's sources, relative to lib/.
set(VOLUP_CUDA_SOURCES
  cuda/cuda_device.cpp
  cuda/cudnn_api.cpp
  cuda/cudnn_kernel.cpp
  cuda/epilogue_pass.cu
  cuda/mma_gather.cu
  cuda/mma_rows.cu
  cuda/simt_kernel.cu
  cuda/sm90_kernels.cpp
  cuda/sm90_pack.cpp
  cuda/sm90_plan.cpp
  cuda/sm90_refusals.cpp
  cuda/sm90_steps.cpp
  cuda/sm90_tensor_map.cpp)

# For compute capability 9.0 alone (wgmma).
set(VOLUP_CUDA_SM90A_SOURCES
  cuda/sm90_march.cu
  cuda/sm90_16bit.cu
  cuda/sm90_fp32.cu
  cuda/sm90_range.cu
  cuda/sm90_tf32.cu)

# Sums name their FMAs. Elsewhere contraction could differ between instances of one template, and
# with it the bits of one problem run by two of them.
set_source_files_properties(cuda/epilogue_pass.cu cuda/simt_kernel.cu
                            PROPERTIES COMPILE_OPTIONS -fmad=false)
