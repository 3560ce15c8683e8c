// SPDX-License-Identifier: Apache-2.0
//
// Session::time: how long an enqueue takes, caches cold and warm.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "half.h"
#include "session.h"

namespace volup {
namespace {

constexpr int kDefaultIterations = 50;
constexpr int kWarmUp = 5;
// More sets than this add nothing: even the smallest problems have pushed each other out by then.
constexpr size_t kMostSets = 1024;
constexpr uint32_t kSeed = 20240229;

size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

size_t bytes_of(const Shape5& shape, DType io) {
  return static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3] * shape[4]) *
         element_size(io);
}

// Values near a unit normal, never all alike: zeros run faster than data.
std::vector<std::byte> random_elements(size_t bytes, DType io) {
  std::mt19937 generator(kSeed);
  std::uniform_real_distribution<float> uniform(-1.7f, 1.7f);
  std::vector<std::byte> elements(bytes);
  // A prime number of values repeated: drawing every element of a large tensor would take longer
  // than all the timing.
  std::vector<float> values(65537);
  for (float& value : values) value = uniform(generator);
  const auto count = static_cast<int64_t>(bytes / element_size(io));
  for (int64_t i = 0; i < count; ++i) {
    store_element(io, elements.data(), i, values[static_cast<size_t>(i) % values.size()]);
  }
  return elements;
}

double quantile(std::vector<double> sorted, double q) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * sorted.size()))];
}

double median(const std::vector<double>& sorted) {
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

}  // namespace

Result<volup_timing> Session::time(const Shape5& input, int iterations) {
  if (iterations < 0) return invalid_argument("iterations: got ", iterations, ", need >= 0");
  if (iterations == 0) iterations = kDefaultIterations;
  VOLUP_ASSIGN_OR_RETURN(const Prepared* const ready, prepared(input));
  const Problem& problem = ready->problem;
  if (ready->launch == nullptr) {
    return invalid_argument("time: got an output without elements, need at least one");
  }
  const size_t x_bytes = bytes_of(problem.input, options_.io);
  const size_t out_bytes = bytes_of(problem.output, options_.io);
  const size_t add_bytes = takes_add(problem.epilogue.kind) ? out_bytes : 0;
  const size_t set_bytes = padded(x_bytes) + padded(add_bytes) + padded(out_bytes);
  const size_t cache_bytes = 4 * device().last_level_cache_bytes;
  const size_t sets = std::clamp((cache_bytes + set_bytes - 1) / set_bytes, size_t{2}, kMostSets);

  const DeviceScope scope(*device_);
  VOLUP_ASSIGN_OR_RETURN(const Block slab, allocate(sets * set_bytes));
  const struct Releaser {
    Session& session;
    const Block& block;
    ~Releaser() {
      static_cast<void>(session.device_->synchronize().ok());
      session.release(block);
    }
  } releaser{*this, slab};

  const auto x_at = [&](size_t set) {
    return static_cast<std::byte*>(slab.memory) + set * set_bytes;
  };
  const auto add_at = [&](size_t set) { return x_at(set) + padded(x_bytes); };
  const auto out_at = [&](size_t set) { return add_at(set) + padded(add_bytes); };
  const auto elements = random_elements(std::max(x_bytes, add_bytes), options_.io);
  for (size_t set = 0; set < sets; ++set) {
    VOLUP_RETURN_IF_ERROR(device_->copy_in(x_at(set), elements.data(), x_bytes));
    if (add_bytes != 0) {
      VOLUP_RETURN_IF_ERROR(device_->copy_in(add_at(set), elements.data(), add_bytes));
    }
  }
  const auto series = [&](size_t rotate) {
    return device_->time(kWarmUp + iterations, [&, rotate](int i, void* stream) {
      const size_t set = static_cast<size_t>(i) % rotate;
      return launch(*ready, {.x = x_at(set),
                             .add = add_bytes == 0 ? nullptr : add_at(set),
                             .out = out_at(set),
                             .stream = stream});
    });
  };
  volup_timing timing = {};
  timing.struct_size = sizeof(timing);
  timing.iterations = iterations;
  timing.buffers = static_cast<int32_t>(sets);
  const auto sorted_without_warm_up = [](std::vector<double> times) {
    times.erase(times.begin(), times.begin() + kWarmUp);
    std::sort(times.begin(), times.end());
    return times;
  };
  VOLUP_ASSIGN_OR_RETURN(std::vector<double> cold, series(sets));
  cold = sorted_without_warm_up(std::move(cold));
  timing.median_ms = median(cold);
  timing.min_ms = cold.front();
  timing.p95_ms = quantile(cold, 0.95);
  VOLUP_ASSIGN_OR_RETURN(std::vector<double> warm, series(1));
  warm = sorted_without_warm_up(std::move(warm));
  timing.warm_median_ms = median(warm);
  timing.warm_min_ms = warm.front();
  return timing;
}

}  // namespace volup
