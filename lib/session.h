// SPDX-License-Identifier: Apache-2.0
//
// A session: a model on a device. It owns the packed weights, the workspace and what was chosen for
// each shape. Memory it has handed to a prepared shape never moves and is never freed before the
// session: CUDA graphs may hold it.
#ifndef VOLUP_SESSION_H_
#define VOLUP_SESSION_H_

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "kernel.h"
#include "model.h"

namespace volup {

struct SessionOptions {
  DeviceType device = DeviceType::kAuto;
  int device_index = 0;
  Precision precision = Precision::kFp32;
  DType io = DType::kFp32;
  int threads = 0;
  size_t workspace_limit = 0;  // 0: none
  volup_allocator allocator = {};
  std::string kernel;  // empty: choose
};

// x, add, out of one call, as the caller described them; null where absent.
struct Tensors {
  const volup_tensor* x;
  const volup_tensor* add;
  const volup_tensor* out;
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const DeviceProperties& device() const { return device_->properties(); }

  Result<size_t> workspace_size(const Shape5& input);
  Status set_workspace(void* memory, size_t bytes);
  Status prepare(const Shape5& input);
  // Valid until the next call.
  Result<const char*> describe(const Shape5& input);
  Status run(const Tensors& tensors);
  Status enqueue(const Tensors& tensors, void* stream);
  Result<volup_timing> time(const Shape5& input, int iterations);

  // Held for the length of a call; a second thread finds it taken.
  bool try_enter() { return !busy_.exchange(true, std::memory_order_acquire); }
  void leave() { busy_.store(false, std::memory_order_release); }

 private:
  struct Block {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  struct Prepared {
    Problem problem;
    const Kernel* kernel = nullptr;
    std::unique_ptr<Launch> launch;  // null where the output has no elements
  };

  Session(std::shared_ptr<const Model> model, SessionOptions options,
          std::unique_ptr<Device> device, std::string device_note);

  Result<Problem> problem_for(const Shape5& input) const;
  size_t workspace_limit() const;
  Result<Choice> choose(const Problem& problem) const;
  Result<std::unique_ptr<Launch>> make_launch(const Kernel& kernel, const Problem& problem);
  void forget(std::list<Prepared>::iterator shape);
  Result<Prepared*> prepared(const Shape5& input);
  Prepared* find(const Shape5& input);
  Result<Block> allocate(size_t bytes);
  void release(const Block& block);
  Result<Block> packed_weights(const Kernel& kernel, const Problem& problem);
  Result<Block> workspace(size_t bytes);
  Status check(const Tensors& tensors, const Problem& problem, DeviceType where) const;
  Status launch(const Prepared& prepared, RunArguments arguments);
  Status run_through_device(const Prepared& prepared, const Tensors& tensors);

  const std::shared_ptr<const Model> model_;
  const SessionOptions options_;
  const std::unique_ptr<Device> device_;
  const std::string device_note_;
  std::atomic<bool> busy_ = false;

  std::vector<Block> owned_;  // all that allocate() gave and release() has not freed
  Block workspace_;           // the largest so far, or the caller's
  bool workspace_is_callers_ = false;
  std::map<std::string, Block> packed_;           // by kernel name and pack key
  std::list<Prepared> shapes_;                    // most recently used first
  std::vector<std::unique_ptr<Launch>> retired_;  // forgotten, but graphs may need them
  // Kernels whose prepare said UNSUPPORTED for a problem, by its string.
  std::map<std::string, std::vector<KernelRefusal>> failed_;
  Block staging_[3];  // device copies of x, add, out for run()
  std::string description_;
};

}  // namespace volup

#endif  // VOLUP_SESSION_H_
