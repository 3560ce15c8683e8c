// SPDX-License-Identifier: Apache-2.0
//
// What a kernel is to the rest of volup. kernel_list.cpp holds the list of them; the session walks
// it. refuse, defer_to, choose and workspace_bytes are pure functions of the problem and the
// device's properties, so that tests can ask what an H200 would run on a machine without one.
#ifndef VOLUP_KERNEL_H_
#define VOLUP_KERNEL_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model.h"
#include "problem.h"
#include "status.h"
#include "tensor.h"

namespace volup {

class ThreadPool;

// Instruction sets a CPU kernel may ask for, best last.
enum class CpuIsa : int32_t { kPortable = 0, kAvx2 = 1, kAvx512 = 2 };

// All that a choice may depend on besides the problem.
struct DeviceProperties {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  std::string name;

  // CPU
  CpuIsa isa = CpuIsa::kPortable;
  int threads = 1;

  // CUDA
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  size_t shared_memory_bytes = 0;  // that one block may ask for
  // cudnnGetVersion() as loaded, 91900 for example; 0 where cuDNN is absent.
  int64_t cudnn_version = 0;
  std::string cudnn_missing;  // why, where it is absent

  size_t last_level_cache_bytes = 0;
};

// One enqueue. Pointers are on the kernel's device and as aligned as their elements, no more.
struct RunArguments {
  const void* x = nullptr;    // [N, Cin, D, H, W] in the problem's I/O dtype
  const void* add = nullptr;  // as out; null unless the epilogue takes it
  void* out = nullptr;
  void* stream = nullptr;         // cudaStream_t
  ThreadPool* threads = nullptr;  // CPU
};

// A problem ready to run: everything that depends on sizes is worked out. Owns no device memory.
class Launch {
 public:
  virtual ~Launch() = default;
  // Launches only: no allocation, lock or synchronisation on a CUDA device. Never called for an
  // output without elements.
  virtual Status run(const RunArguments& arguments) const = 0;
  // Whether a CUDA graph captured from run needs this object (a library's handle, say): such a one
  // stays until its session goes, even when its shape is forgotten.
  virtual bool graphs_need_it() const { return false; }
};

// What prepare may use; both pointers stay valid and in place as long as the session lives.
struct PrepareArguments {
  const void* packed = nullptr;  // pack()'s bytes, on the device, aligned to 256
  void* workspace = nullptr;     // workspace_bytes() bytes, aligned to 256; may hold anything
  size_t workspace_bytes = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;

  // "cpu/reference", "cuda/simt": device, then what it is.
  virtual std::string_view name() const = 0;
  virtual DeviceType device() const = 0;

  // Why it cannot, in words; its first lines refuse every feature it does not know.
  virtual Refusal refuse(const Problem& problem, const DeviceProperties& device) const = 0;

  // Name of a kernel that a measured rule prefers for this problem, though this one could; empty
  // otherwise. Counts only where that kernel accepts.
  virtual std::string_view defer_to(const Problem&, const DeviceProperties&) const { return {}; }

  // The configuration it would run, for people and for golden tables: "tile 32x4, 8 warps".
  virtual std::string choose(const Problem& problem, const DeviceProperties& device) const = 0;

  // Exact bytes of workspace, at most limit; fails where the smallest piece needs more.
  virtual Result<size_t> workspace_bytes(const Problem&, const DeviceProperties&,
                                         size_t /*limit*/) const {
    return size_t{0};
  }

  // Problems of one model with the same key share packed weights.
  virtual std::string pack_key(const Problem&, const DeviceProperties&) const { return {}; }

  // Weights, bias and tables in the kernel's own layout, as bytes to be put on the device.
  virtual Result<std::vector<std::byte>> pack(const Model& model, const Problem& problem,
                                              const DeviceProperties& device) const = 0;

  virtual Result<std::unique_ptr<Launch>> prepare(const Problem& problem,
                                                  const DeviceProperties& device,
                                                  const PrepareArguments& arguments) const = 0;
};

// Every kernel that was built, best first, the reference last; never changes.
std::span<const Kernel* const> kernel_list();

struct KernelRefusal {
  std::string_view kernel;
  std::string why;
};

struct Choice {
  const Kernel* kernel = nullptr;
  std::vector<KernelRefusal> refused;  // every other kernel of this device type, and why not
};

// The first kernel of the list that neither refuses nor defers; or the one named by forced, unless
// it refuses (deferral is overruled). failed: kernels whose prepare said UNSUPPORTED, with its
// words; they count as refusing.
Result<Choice> choose_kernel(const Problem& problem, const DeviceProperties& device,
                             std::string_view forced = {},
                             std::span<const KernelRefusal> failed = {});

}  // namespace volup

#endif  // VOLUP_KERNEL_H_
