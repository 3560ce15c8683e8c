// SPDX-License-Identifier: Apache-2.0
//
// What lib/cuda knows of a CUDA device beyond device.h: how to make it current for a while.
#ifndef VOLUP_CUDA_CUDA_DEVICE_H_
#define VOLUP_CUDA_CUDA_DEVICE_H_

namespace volup {

// Makes the primary context of a CUDA device current on the calling thread while it lives. The
// thread's context is pushed and popped, so that whatever was there, be it nothing, comes back and
// no context is made on any other device.
class CudaContextScope {
 public:
  explicit CudaContextScope(int device_index);
  ~CudaContextScope();
  CudaContextScope(const CudaContextScope&) = delete;
  CudaContextScope& operator=(const CudaContextScope&) = delete;

 private:
  bool pushed_;
};

}  // namespace volup

#endif  // VOLUP_CUDA_CUDA_DEVICE_H_
