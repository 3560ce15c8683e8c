// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device of device.h. The driver's library is opened by the runtime on the first call
// below, never at load time.
#include "cuda/cuda_device.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "cuda/cuda_error.h"
#include "cuda/cudnn_api.h"
#include "device.h"

namespace volup {
namespace {

constexpr int kOldestCapability = 80;

// Driver functions, found through the runtime: linking libcuda would tie the library to a driver.
struct Driver {
  decltype(&cuDevicePrimaryCtxRetain) retain_primary = nullptr;
  decltype(&cuCtxPushCurrent) push = nullptr;
  decltype(&cuCtxPopCurrent) pop = nullptr;

  bool complete() const { return retain_primary != nullptr && push != nullptr && pop != nullptr; }
};

template <typename Function>
void find_driver_function(const char* name, Function* function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#endif
  if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) {
    *function = reinterpret_cast<Function>(address);
  } else {
    static_cast<void>(cudaGetLastError());
  }
}

const Driver& driver() {
  static const Driver kDriver = [] {
    Driver driver;
    find_driver_function("cuDevicePrimaryCtxRetain", &driver.retain_primary);
    find_driver_function("cuCtxPushCurrent", &driver.push);
    find_driver_function("cuCtxPopCurrent", &driver.pop);
    return driver;
  }();
  return kDriver;
}

// The primary context stays retained for the life of the process, as the runtime itself keeps it:
// giving it back could take it from under the runtime's feet.
Result<CUcontext> primary_context(int index) {
  CUcontext context = nullptr;
  if (!driver().complete()) return unavailable("CUDA driver: got none of cuCtxPushCurrent's age");
  const CUresult result = driver().retain_primary(&context, index);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return Status(VOLUP_STATUS_OUT_OF_MEMORY,
                  cat("CUDA device ", index, ": no memory for a context"));
  }
  if (result != CUDA_SUCCESS) {
    return unavailable("CUDA device ", index, ": no context, got CUresult ",
                       static_cast<int>(result));
  }
  return context;
}

std::string version_text(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

// Number of CUDA devices of any age, or why there is none.
Result<int> device_count() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  static_cast<void>(cudaGetLastError());
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    return unavailable("CUDA: the driver is there but no device is");
  }
  if (error == cudaErrorInsufficientDriver || error == cudaErrorSystemDriverMismatch) {
    int version = 0;
    static_cast<void>(cudaDriverGetVersion(&version));
    if (version == 0) return unavailable("CUDA: no driver is installed");
    return unavailable("CUDA driver too old: got one for CUDA ", version_text(version), ", need ",
                       version_text(CUDART_VERSION));
  }
  return unavailable("CUDA: got ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
}

Result<int> compute_capability(int index) {
  int major = 0;
  int minor = 0;
  VOLUP_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index),
      cat("CUDA device ", index, ", compute capability"));
  VOLUP_RETURN_IF_CUDA_ERROR(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index),
      cat("CUDA device ", index, ", compute capability"));
  return major * 10 + minor;
}

Result<DeviceProperties> read_properties(int index) {
  cudaDeviceProp found;
  VOLUP_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&found, index),
                             cat("CUDA device ", index, ", properties"));
  DeviceProperties properties;
  properties.type = DeviceType::kCuda;
  properties.index = index;
  properties.name = found.name;
  properties.compute_capability = found.major * 10 + found.minor;
  properties.multiprocessors = found.multiProcessorCount;
  properties.shared_memory_bytes = found.sharedMemPerBlockOptin;
  properties.last_level_cache_bytes = static_cast<size_t>(found.l2CacheSize);
  const CudnnApi& cudnn = cudnn_api();
  properties.cudnn_version = cudnn.version;
  properties.cudnn_missing = cudnn.missing;
  return properties;
}

// Events around each piece of timed work, and the stream it runs on.
class Timer {
 public:
  explicit Timer(int iterations) : starts_(iterations), stops_(iterations) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    for (cudaEvent_t event : starts_) destroy(event);
    for (cudaEvent_t event : stops_) destroy(event);
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }

  Result<std::vector<double>> time(const std::function<Status(int, void*)>& work) {
    VOLUP_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                               "timing, stream");
    for (auto* events : {&starts_, &stops_}) {
      for (cudaEvent_t& event : *events) {
        VOLUP_RETURN_IF_CUDA_ERROR(cudaEventCreate(&event), "timing, event");
      }
    }
    // Whatever filled the tensors ran on other streams.
    VOLUP_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize(), "timing, wait before");
    for (size_t i = 0; i < starts_.size(); ++i) {
      VOLUP_RETURN_IF_CUDA_ERROR(cudaEventRecord(starts_[i], stream_), "timing, record");
      VOLUP_RETURN_IF_ERROR(work(static_cast<int>(i), stream_));
      VOLUP_RETURN_IF_CUDA_ERROR(cudaEventRecord(stops_[i], stream_), "timing, record");
    }
    VOLUP_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_), "timing, wait");
    std::vector<double> milliseconds;
    for (size_t i = 0; i < starts_.size(); ++i) {
      float elapsed = 0;
      VOLUP_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&elapsed, starts_[i], stops_[i]),
                                 "timing, elapsed");
      milliseconds.push_back(elapsed);
    }
    return milliseconds;
  }

 private:
  static void destroy(cudaEvent_t event) {
    if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
  }

  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> starts_;
  std::vector<cudaEvent_t> stops_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(DeviceProperties properties, CUcontext context)
      : properties_(std::move(properties)), context_(context) {}

  const DeviceProperties& properties() const override { return properties_; }

  int enter() const override { return driver().push(context_) == CUDA_SUCCESS ? 1 : 0; }
  void leave(int previous) const override {
    CUcontext popped = nullptr;
    if (previous == 1) static_cast<void>(driver().pop(&popped));
  }

  Result<void*> allocate(size_t bytes) override {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, std::max<size_t>(bytes, 1));
    if (error != cudaErrorMemoryAllocation) {
      VOLUP_RETURN_IF_CUDA_ERROR(error, cat(where(), ", allocation of ", bytes, " bytes"));
      return memory;
    }
    static_cast<void>(cudaGetLastError());
    size_t free = 0;
    size_t total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    return Status(VOLUP_STATUS_OUT_OF_MEMORY,
                  cat(where(), " memory: got ", free, " free of ", total, " bytes, need ", bytes));
  }

  void free(void* memory) override { static_cast<void>(cudaFree(memory)); }

  Status copy_in(void* destination, const void* source, size_t bytes) override {
    if (bytes == 0) return {};
    VOLUP_RETURN_IF_CUDA_ERROR(cudaMemcpy(destination, source, bytes, cudaMemcpyHostToDevice),
                               cat(where(), ", copy of ", bytes, " bytes in"));
    // From pageable memory cudaMemcpy may come back once the source is staged.
    return cuda_status(cudaStreamSynchronize(cudaStreamLegacy), cat(where(), ", copy in"));
  }

  Status copy_out(void* destination, const void* source, size_t bytes) override {
    if (bytes == 0) return {};
    VOLUP_RETURN_IF_ERROR(synchronize());
    return cuda_status(cudaMemcpy(destination, source, bytes, cudaMemcpyDeviceToHost),
                       cat(where(), ", copy of ", bytes, " bytes out"));
  }

  Status synchronize() override { return cuda_status(cudaDeviceSynchronize(), where()); }

  Result<std::vector<double>> time(int iterations,
                                   const std::function<Status(int, void* stream)>& work) override {
    return Timer(iterations).time(work);
  }

 private:
  std::string where() const { return cat("CUDA device ", properties_.index); }

  DeviceProperties properties_;
  CUcontext context_;
};

}  // namespace

CudaContextScope::CudaContextScope(int device_index) : pushed_(false) {
  const auto context = primary_context(device_index);
  pushed_ = context.ok() && driver().push(*context) == CUDA_SUCCESS;
}

CudaContextScope::~CudaContextScope() {
  CUcontext popped = nullptr;
  if (pushed_) static_cast<void>(driver().pop(&popped));
}

Result<std::unique_ptr<Device>> open_cuda_device(int index) {
  VOLUP_ASSIGN_OR_RETURN(const int count, device_count());
  if (index < 0 || index >= count) {
    return unavailable("CUDA device: got index ", index, ", need 0 to ", count - 1);
  }
  VOLUP_ASSIGN_OR_RETURN(const int capability, compute_capability(index));
  if (capability < kOldestCapability) {
    return unavailable("CUDA device ", index, ": got compute capability ", capability / 10, ".",
                       capability % 10, ", need 8.0 or more");
  }
  VOLUP_ASSIGN_OR_RETURN(const CUcontext context, primary_context(index));
  VOLUP_ASSIGN_OR_RETURN(DeviceProperties properties, read_properties(index));
  return std::unique_ptr<Device>(new CudaDevice(std::move(properties), context));
}

int cuda_device_count() {
  const auto count = device_count();
  if (!count.ok()) return 0;
  int usable = 0;
  for (int index = 0; index < *count; ++index) {
    const auto capability = compute_capability(index);
    usable += capability.ok() && *capability >= kOldestCapability;
  }
  return usable;
}

}  // namespace volup
