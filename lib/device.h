// SPDX-License-Identifier: Apache-2.0
//
// A device as a session sees it: memory, copies, timing. Two kinds: the CPU and a CUDA device.
#ifndef VOLUP_DEVICE_H_
#define VOLUP_DEVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel.h"
#include "status.h"

namespace volup {

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceProperties& properties() const = 0;
  // Null on a CUDA device.
  virtual ThreadPool* threads() const { return nullptr; }

  // Makes this the calling thread's current device; leave(enter()) restores what was.
  virtual int enter() const { return 0; }
  virtual void leave(int /*previous*/) const {}

  // Below here the caller holds a DeviceScope.
  virtual Result<void*> allocate(size_t bytes) = 0;  // aligned to 256
  virtual void free(void* memory) = 0;
  virtual Status copy_in(void* destination, const void* source, size_t bytes) = 0;  // from the host
  virtual Status copy_out(void* destination, const void* source, size_t bytes) = 0;  // to the host
  virtual Status synchronize() = 0;
  // Milliseconds of each of iterations calls of work(i, stream).
  virtual Result<std::vector<double>> time(
      int iterations, const std::function<Status(int, void* stream)>& work) = 0;
};

// Current on the calling thread while it lives.
class DeviceScope {
 public:
  explicit DeviceScope(const Device& device) : device_(device), previous_(device.enter()) {}
  ~DeviceScope() { device_.leave(previous_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const Device& device_;
  int previous_;
};

// threads 0: every CPU this process may use.
Result<std::unique_ptr<Device>> open_cpu_device(int threads);

// Fails with the reason: no driver, too old, no such index, compute capability below 8.0, or built
// without CUDA.
Result<std::unique_ptr<Device>> open_cuda_device(int index);

// CUDA devices of compute capability 8.0 or more; 0 with no driver.
int cuda_device_count();

}  // namespace volup

#endif  // VOLUP_DEVICE_H_
