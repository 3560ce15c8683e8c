// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "describe.h"
#include "log.h"

namespace volup {
namespace {

constexpr size_t kAlignment = 256;
// Prepared shapes kept; the least recently used goes first and must be prepared again.
constexpr size_t kShapeLimit = 64;

bool is_aligned(const void* pointer, size_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

// Dense: each axis longer than one steps over all that lies below it.
bool is_dense(const volup_tensor& tensor) {
  if (std::all_of(tensor.strides, tensor.strides + 5, [](int64_t s) { return s == 0; })) {
    return true;
  }
  int64_t expected = 1;
  for (int axis = 4; axis >= 0; --axis) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

Shape5 to_array(const int64_t (&values)[5]) {
  return {values[0], values[1], values[2], values[3], values[4]};
}

int64_t count_of(const Shape5& shape) {
  return shape[0] * shape[1] * shape[2] * shape[3] * shape[4];
}

Status check_tensor(const char* what, const volup_tensor* tensor, const Shape5& shape, DType io,
                    DeviceType device, int device_index) {
  if (tensor == nullptr) return invalid_argument(what, ": got NULL, need a tensor");
  if (tensor->rank != 5) {
    return invalid_argument(what, " rank: got ", tensor->rank, ", need 5 (N, C, D, H, W)");
  }
  const Shape5 given = to_array(tensor->shape);
  if (given != shape) {
    return invalid_argument(what, " shape: got ", given, ", need ", shape);
  }
  if (tensor->dtype != static_cast<int32_t>(io)) {
    return invalid_argument(what, " dtype: got ", tensor->dtype, ", need ",
                            static_cast<int32_t>(io), " (", name_of(io), ")");
  }
  const bool on_cuda = device == DeviceType::kCuda;
  if (tensor->device_type != static_cast<int32_t>(device) ||
      (on_cuda && tensor->device_index != device_index)) {
    return invalid_argument(what, " device: got type ", tensor->device_type, " index ",
                            tensor->device_index, ", need type ", static_cast<int32_t>(device),
                            " index ", device_index, " (", name_of(device), ")");
  }
  if (!is_dense(*tensor)) {
    return invalid_argument(what, " strides: got ", to_array(tensor->strides),
                            ", need dense N, C, D, H, W for shape ", given);
  }
  if (count_of(shape) == 0) return {};
  if (tensor->data == nullptr) return invalid_argument(what, " data: got NULL, need a pointer");
  if (!is_aligned(tensor->data, element_size(io))) {
    return invalid_argument(what, " data: got an address ending in ",
                            reinterpret_cast<uintptr_t>(tensor->data) % element_size(io),
                            ", need a multiple of the element size ", element_size(io));
  }
  return {};
}

bool overlap(const volup_tensor& a, const volup_tensor& b, size_t element) {
  const auto begin = [](const volup_tensor& t) { return reinterpret_cast<uintptr_t>(t.data); };
  const auto end = [&](const volup_tensor& t) {
    return begin(t) + static_cast<uintptr_t>(count_of(to_array(t.shape))) * element;
  };
  return begin(a) < end(b) && begin(b) < end(a);
}

Result<std::unique_ptr<Device>> open_device(const SessionOptions& options, std::string* note) {
  if (options.device == DeviceType::kCpu) return open_cpu_device(options.threads);
  auto cuda = open_cuda_device(options.device_index);
  if (cuda.ok() || options.device == DeviceType::kCuda) return cuda;
  *note = cuda.status().text();
  return open_cpu_device(options.threads);
}

}  // namespace

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options) {
  if ((options.allocator.allocate == nullptr) != (options.allocator.free == nullptr)) {
    return invalid_argument("allocator: got one function, need both allocate and free or neither");
  }
  if (options.precision == Precision::kFp16 && options.io != DType::kFp16) {
    return invalid_argument("precision fp16: got I/O dtype ", name_of(options.io),
                            ", need fp16 (values past 65504 would overflow: choose tf32 or bf16)");
  }
  std::string note;
  VOLUP_ASSIGN_OR_RETURN(auto device, open_device(options, &note));
  if (!note.empty()) log(VOLUP_LOG_INFO, "device auto: cpu, because ", note);
  std::unique_ptr<Session> session(
      new Session(std::move(model), options, std::move(device), std::move(note)));
  if (!options.kernel.empty()) {
    const auto kernels = kernel_list();
    const bool known = std::any_of(kernels.begin(), kernels.end(), [&](const Kernel* kernel) {
      return kernel->name() == options.kernel && kernel->device() == session->device().type;
    });
    if (!known) {
      std::string names;
      for (const Kernel* kernel : kernels) {
        if (kernel->device() == session->device().type) {
          names += cat(names.empty() ? "" : ", ", kernel->name());
        }
      }
      return invalid_argument("kernel: got '", options.kernel, "', need one of ", names, " on ",
                              name_of(session->device().type));
    }
  }
  return session;
}

Session::Session(std::shared_ptr<const Model> model, SessionOptions options,
                 std::unique_ptr<Device> device, std::string device_note)
    : model_(std::move(model)),
      options_(std::move(options)),
      device_(std::move(device)),
      device_note_(std::move(device_note)) {}

Session::~Session() {
  const DeviceScope scope(*device_);
  // A device fault cannot be reported from here; the memory is given back either way.
  static_cast<void>(device_->synchronize().ok());
  shapes_.clear();
  retired_.clear();
  while (!owned_.empty()) release(owned_.back());
}

Result<Problem> Session::problem_for(const Shape5& input) const {
  auto problem =
      make_problem(model_->geometry(), model_->epilogue(), input, options_.precision, options_.io);
  if (problem.ok()) problem->weights = model_->weight_facts();
  return problem;
}

size_t Session::workspace_limit() const {
  const size_t limit =
      options_.workspace_limit == 0 ? std::numeric_limits<size_t>::max() : options_.workspace_limit;
  return workspace_is_callers_ ? std::min(limit, workspace_.bytes) : limit;
}

Result<Choice> Session::choose(const Problem& problem) const {
  const auto failed = failed_.find(print(problem));
  return choose_kernel(problem, device(), options_.kernel,
                       failed == failed_.end() ? std::span<const KernelRefusal>()
                                               : std::span<const KernelRefusal>(failed->second));
}

Result<size_t> Session::workspace_size(const Shape5& input) {
  VOLUP_ASSIGN_OR_RETURN(const Problem problem, problem_for(input));
  VOLUP_ASSIGN_OR_RETURN(const Choice choice, choose(problem));
  if (count_of(problem.output) == 0) return size_t{0};
  const DeviceScope scope(*device_);
  return choice.kernel->workspace_bytes(problem, device(), workspace_limit());
}

Status Session::set_workspace(void* memory, size_t bytes) {
  if ((memory == nullptr) != (bytes == 0)) {
    return invalid_argument("workspace: got ", memory == nullptr ? "NULL" : "memory", " with ",
                            bytes, " bytes, need both or neither");
  }
  if (!is_aligned(memory, kAlignment)) {
    return invalid_argument("workspace: got an address that is not a multiple of ", kAlignment);
  }
  workspace_ = {memory, bytes};
  workspace_is_callers_ = memory != nullptr;
  // They were prepared with another workspace.
  while (!shapes_.empty()) forget(shapes_.begin());
  return {};
}

Result<Session::Block> Session::allocate(size_t bytes) {
  Block block{nullptr, bytes};
  if (options_.allocator.allocate != nullptr) {
    block.memory = options_.allocator.allocate(options_.allocator.context, bytes);
    if (block.memory == nullptr) {
      return Status(VOLUP_STATUS_OUT_OF_MEMORY,
                    cat("the caller's allocator: got NULL for ", bytes, " bytes"));
    }
    if (!is_aligned(block.memory, kAlignment)) {
      options_.allocator.free(options_.allocator.context, block.memory, bytes);
      return invalid_argument("the caller's allocator: got memory not aligned to ", kAlignment);
    }
  } else {
    VOLUP_ASSIGN_OR_RETURN(block.memory, device_->allocate(bytes));
  }
  owned_.push_back(block);
  log(VOLUP_LOG_DEBUG, "allocated ", bytes, " bytes on ", name_of(device().type));
  return block;
}

void Session::release(const Block& block) {
  const Block released = block;
  std::erase_if(owned_, [&](const Block& owned) { return owned.memory == released.memory; });
  if (options_.allocator.free != nullptr) {
    options_.allocator.free(options_.allocator.context, released.memory, released.bytes);
  } else {
    device_->free(released.memory);
  }
}

Result<Session::Block> Session::packed_weights(const Kernel& kernel, const Problem& problem) {
  const std::string key = cat(kernel.name(), " ", kernel.pack_key(problem, device()));
  if (const auto found = packed_.find(key); found != packed_.end()) return found->second;
  VOLUP_ASSIGN_OR_RETURN(const auto bytes, kernel.pack(*model_, problem, device()));
  Block block;
  if (!bytes.empty()) {
    VOLUP_ASSIGN_OR_RETURN(block, allocate(bytes.size()));
    VOLUP_RETURN_IF_ERROR(device_->copy_in(block.memory, bytes.data(), bytes.size()));
  }
  packed_[key] = block;
  return block;
}

Result<Session::Block> Session::workspace(size_t bytes) {
  if (bytes <= workspace_.bytes) return workspace_;
  // Graphs may hold the smaller one: it stays until the session goes.
  VOLUP_ASSIGN_OR_RETURN(workspace_, allocate(bytes));
  return workspace_;
}

Session::Prepared* Session::find(const Shape5& input) {
  const auto found = std::find_if(shapes_.begin(), shapes_.end(), [&](const Prepared& prepared) {
    return prepared.problem.input == input;
  });
  if (found == shapes_.end()) return nullptr;
  shapes_.splice(shapes_.begin(), shapes_, found);
  return &shapes_.front();
}

Result<Session::Prepared*> Session::prepared(const Shape5& input) {
  if (Prepared* known = find(input)) return known;
  VOLUP_ASSIGN_OR_RETURN(const Problem problem, problem_for(input));
  Prepared fresh{problem, nullptr, nullptr};
  while (true) {
    VOLUP_ASSIGN_OR_RETURN(const Choice choice, choose(problem));
    fresh.kernel = choice.kernel;
    if (log_enabled(VOLUP_LOG_DEBUG)) {
      for (const KernelRefusal& refusal : choice.refused) {
        log(VOLUP_LOG_DEBUG, "'", print(problem), "' not ", refusal.kernel, ": ", refusal.why);
      }
    }
    if (count_of(problem.output) == 0) break;
    auto launch = make_launch(*choice.kernel, problem);
    if (launch.ok()) {
      fresh.launch = std::move(*launch);
      break;
    }
    // Only the device itself could tell; the list goes on, unless the caller forced this kernel.
    const Status& status = launch.status();
    if (status.code() != VOLUP_STATUS_UNSUPPORTED || !options_.kernel.empty()) return status;
    failed_[print(problem)].push_back({choice.kernel->name(), status.text()});
  }
  log(VOLUP_LOG_INFO, "prepared '", print(problem), "' on ", name_of(device().type), " ",
      device().index, ": ", fresh.kernel->name(), ", ", fresh.kernel->choose(problem, device()));
  shapes_.push_front(std::move(fresh));
  if (shapes_.size() > kShapeLimit) forget(std::prev(shapes_.end()));
  return &shapes_.front();
}

Result<std::unique_ptr<Launch>> Session::make_launch(const Kernel& kernel, const Problem& problem) {
  const DeviceScope scope(*device_);
  PrepareArguments arguments;
  VOLUP_ASSIGN_OR_RETURN(arguments.workspace_bytes,
                         kernel.workspace_bytes(problem, device(), workspace_limit()));
  VOLUP_ASSIGN_OR_RETURN(const Block packed, packed_weights(kernel, problem));
  VOLUP_ASSIGN_OR_RETURN(const Block scratch, workspace(arguments.workspace_bytes));
  arguments.packed = packed.memory;
  arguments.workspace = scratch.memory;
  return kernel.prepare(problem, device(), arguments);
}

void Session::forget(std::list<Prepared>::iterator shape) {
  const DeviceScope scope(*device_);
  if (shape->launch != nullptr && shape->launch->graphs_need_it()) {
    retired_.push_back(std::move(shape->launch));
  }
  shapes_.erase(shape);
}

Status Session::prepare(const Shape5& input) {
  const auto result = prepared(input);
  return result.ok() ? Status() : result.status();
}

Result<const char*> Session::describe(const Shape5& input) {
  VOLUP_ASSIGN_OR_RETURN(const Problem problem, problem_for(input));
  VOLUP_ASSIGN_OR_RETURN(const Choice choice, choose(problem));
  size_t workspace_bytes = 0;
  if (count_of(problem.output) != 0) {
    const DeviceScope scope(*device_);
    VOLUP_ASSIGN_OR_RETURN(workspace_bytes,
                           choice.kernel->workspace_bytes(problem, device(), workspace_limit()));
  }
  const auto packed =
      packed_.find(cat(choice.kernel->name(), " ", choice.kernel->pack_key(problem, device())));
  description_ = volup::describe({problem, device(), device_note_, choice, workspace_bytes,
                                  packed == packed_.end() ? 0 : packed->second.bytes});
  return description_.c_str();
}

Status Session::check(const Tensors& tensors, const Problem& problem, DeviceType where) const {
  const auto check_one = [&](const char* what, const volup_tensor* tensor, const Shape5& shape) {
    return check_tensor(what, tensor, shape, options_.io, where, device().index);
  };
  VOLUP_RETURN_IF_ERROR(check_one("x", tensors.x, problem.input));
  VOLUP_RETURN_IF_ERROR(check_one("out", tensors.out, problem.output));
  const bool wants_add = takes_add(problem.epilogue.kind);
  if (wants_add) {
    VOLUP_RETURN_IF_ERROR(check_one("add", tensors.add, problem.output));
  } else if (tensors.add != nullptr) {
    return invalid_argument("add: got a tensor, need NULL for ", name_of(problem.epilogue.kind));
  }
  const size_t element = element_size(options_.io);
  if (overlap(*tensors.out, *tensors.x, element) ||
      (wants_add && overlap(*tensors.out, *tensors.add, element))) {
    return invalid_argument("out: got memory that overlaps an input, need memory of its own");
  }
  return {};
}

namespace {

// The shape that x claims, once it is known to have five sizes.
Result<Shape5> input_shape(const volup_tensor* x) {
  if (x == nullptr) return invalid_argument("x: got NULL, need a tensor");
  if (x->rank != 5) {
    return invalid_argument("x rank: got ", x->rank, ", need 5 (N, C, D, H, W)");
  }
  return to_array(x->shape);
}

}  // namespace

Status Session::launch(const Prepared& prepared, RunArguments arguments) {
  if (prepared.launch == nullptr) return {};
  arguments.threads = device_->threads();
  return prepared.launch->run(arguments);
}

Status Session::enqueue(const Tensors& tensors, void* stream) {
  VOLUP_ASSIGN_OR_RETURN(const Shape5 input, input_shape(tensors.x));
  const Prepared* prepared = find(input);
  if (prepared == nullptr) {
    // Say what is wrong with the shape before asking for it to be prepared.
    if (const auto problem = problem_for(input); !problem.ok()) return problem.status();
    return {VOLUP_STATUS_NOT_PREPARED,
            cat("enqueue: got x of shape ", input, ", need volup_session_prepare with it first")};
  }
  VOLUP_RETURN_IF_ERROR(check(tensors, prepared->problem, device().type));
  if (device().type == DeviceType::kCpu && stream != nullptr) {
    return invalid_argument("stream: got a stream, need NULL on a CPU session");
  }
  const DeviceScope scope(*device_);
  return launch(*prepared, {.x = tensors.x->data,
                            .add = tensors.add == nullptr ? nullptr : tensors.add->data,
                            .out = tensors.out->data,
                            .stream = stream});
}

Status Session::run(const Tensors& tensors) {
  VOLUP_ASSIGN_OR_RETURN(const Shape5 input, input_shape(tensors.x));
  VOLUP_ASSIGN_OR_RETURN(const Problem problem, problem_for(input));
  VOLUP_RETURN_IF_ERROR(check(tensors, problem, DeviceType::kCpu));
  VOLUP_ASSIGN_OR_RETURN(const Prepared* const ready, prepared(input));
  const DeviceScope scope(*device_);
  if (device().type != DeviceType::kCpu) return run_through_device(*ready, tensors);
  return launch(*ready, {.x = tensors.x->data,
                         .add = tensors.add == nullptr ? nullptr : tensors.add->data,
                         .out = tensors.out->data});
}

Status Session::run_through_device(const Prepared& prepared, const Tensors& tensors) {
  const Problem& problem = prepared.problem;
  if (prepared.launch == nullptr) return {};
  const size_t element = element_size(options_.io);
  const size_t in_bytes = static_cast<size_t>(count_of(problem.input)) * element;
  const size_t out_bytes = static_cast<size_t>(count_of(problem.output)) * element;
  const bool wants_add = tensors.add != nullptr;
  const size_t wanted[3] = {in_bytes, wants_add ? out_bytes : 0, out_bytes};
  for (int i = 0; i < 3; ++i) {
    if (staging_[i].bytes < wanted[i]) {
      // No graph can hold it: run() is the only user.
      if (staging_[i].memory != nullptr) release(std::exchange(staging_[i], Block{}));
      VOLUP_ASSIGN_OR_RETURN(staging_[i], allocate(wanted[i]));
    }
  }
  VOLUP_RETURN_IF_ERROR(device_->copy_in(staging_[0].memory, tensors.x->data, in_bytes));
  if (wants_add) {
    VOLUP_RETURN_IF_ERROR(device_->copy_in(staging_[1].memory, tensors.add->data, out_bytes));
  }
  VOLUP_RETURN_IF_ERROR(launch(prepared, {.x = staging_[0].memory,
                                          .add = wants_add ? staging_[1].memory : nullptr,
                                          .out = staging_[2].memory}));
  VOLUP_RETURN_IF_ERROR(device_->synchronize());
  return device_->copy_out(tensors.out->data, staging_[2].memory, out_bytes);
}

}  // namespace volup
