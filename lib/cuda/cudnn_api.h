// SPDX-License-Identifier: Apache-2.0
//
// The part of cuDNN 9's legacy API that the fallback calls, opened on demand: building needs no
// cuDNN, and a machine without it runs everything else. Prototypes and values are those of the
// public headers cudnn_graph_v9.h, cudnn_ops_v9.h and cudnn_cnn_v9.h of cuDNN 9.19; cuDNN keeps
// them within a major version, which is in the library's file name.
#ifndef VOLUP_CUDA_CUDNN_API_H_
#define VOLUP_CUDA_CUDNN_API_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace volup {

using CudnnHandle = struct cudnnContext*;
using CudnnTensor = struct cudnnTensorStruct*;
using CudnnFilter = struct cudnnFilterStruct*;
using CudnnConvolution = struct cudnnConvolutionStruct*;

// Enums as int, which is how both sides pass them.
inline constexpr int kCudnnSuccess = 0;            // cudnnStatus_t
inline constexpr int kCudnnFloat = 0;              // cudnnDataType_t
inline constexpr int kCudnnNchw = 0;               // cudnnTensorFormat_t
inline constexpr int kCudnnCrossCorrelation = 1;   // cudnnConvolutionMode_t
inline constexpr int kCudnnDeterministic = 1;      // cudnnDeterminism_t
inline constexpr int kCudnnBackwardDataAlgo1 = 1;  // cudnnConvolutionBwdDataAlgo_t

enum class CudnnMath : int { kDefault = 0, kTensorOp = 1, kTensorOpConversion = 2, kFma = 3 };

// cudnnConvolutionBwdDataAlgoPerf_t
struct CudnnAlgorithm {
  int algo;
  int status;
  float time;
  size_t memory;
  int determinism;
  CudnnMath math;
  int reserved[3];
};

struct CudnnApi {
  int64_t version = 0;  // cudnnGetVersion(): major * 10000 + minor * 100 + patch; 0: not there
  std::string missing;  // why it is not there

  size_t (*get_version)() = nullptr;
  const char* (*get_error_string)(int status) = nullptr;
  int (*create)(CudnnHandle*) = nullptr;
  int (*destroy)(CudnnHandle) = nullptr;
  int (*set_stream)(CudnnHandle, cudaStream_t) = nullptr;
  int (*create_tensor)(CudnnTensor*) = nullptr;
  int (*destroy_tensor)(CudnnTensor) = nullptr;
  int (*set_tensor)(CudnnTensor, int type, int rank, const int* sizes,
                    const int* strides) = nullptr;
  int (*create_filter)(CudnnFilter*) = nullptr;
  int (*destroy_filter)(CudnnFilter) = nullptr;
  int (*set_filter)(CudnnFilter, int type, int format, int rank, const int* sizes) = nullptr;
  int (*create_convolution)(CudnnConvolution*) = nullptr;
  int (*destroy_convolution)(CudnnConvolution) = nullptr;
  int (*set_convolution)(CudnnConvolution, int rank, const int* padding, const int* stride,
                         const int* dilation, int mode, int compute_type) = nullptr;
  int (*set_groups)(CudnnConvolution, int groups) = nullptr;
  int (*set_math)(CudnnConvolution, CudnnMath) = nullptr;
  int (*get_algorithms)(CudnnHandle, CudnnFilter, CudnnTensor dy, CudnnConvolution, CudnnTensor dx,
                        int requested, int* returned, CudnnAlgorithm*) = nullptr;
  int (*get_workspace)(CudnnHandle, CudnnFilter, CudnnTensor dy, CudnnConvolution, CudnnTensor dx,
                       int algo, size_t* bytes) = nullptr;
  int (*backward_data)(CudnnHandle, const void* alpha, CudnnFilter, const void* w, CudnnTensor,
                       const void* dy, CudnnConvolution, int algo, void* workspace, size_t bytes,
                       const void* beta, CudnnTensor, void* dx) = nullptr;
};

// Opens libcudnn.so.9, or the file that the environment's VOLUP_CUDNN names, on the first call; it
// is never closed. Calls no CUDA function.
const CudnnApi& cudnn_api();

}  // namespace volup

#endif  // VOLUP_CUDA_CUDNN_API_H_
