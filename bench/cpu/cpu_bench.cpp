// SPDX-License-Identifier: Apache-2.0
//
// The CPU kernels on the three models, with one thread and with every CPU this process may use.
// Counters: min_ms and median_ms of single runs; the binding floor, max(multiply-adds of taps that
// exist / FMA rate, bytes / copy rate), with both rates measured just before and after; share, the
// floor as a part of min_ms.
//
//   cpu_bench --benchmark_out=FILE --benchmark_out_format=json
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "device.h"
#include "half.h"
#include "kernel.h"
#include "machine.h"
#include "model.h"
#include "problem.h"

namespace volup::bench {
namespace {

constexpr const char* kShapes[][2] = {
    {"A", "ci3 co16 i16x32x32 k3 s2 p1 fp32"},
    {"B", "ci32 co64 i16x32x32 k3 s2 p1 op1 fp32"},
    {"C", "ci32 co64 i16x16x16 k3 s2 p1 op1 fp32"},
};
constexpr int kBatches[][6] = {{1, 2, 8, 32, 128, 0}, {1, 2, 4, 8, 16, 0}, {1, 4, 16, 64, 128, 0}};

// Memory of the device, freed at the end.
class Buffer {
 public:
  Buffer(Device& device, size_t bytes) : device_(device), bytes_(bytes) {
    auto memory = device.allocate(bytes);
    if (memory.ok()) data_ = *memory;
  }
  ~Buffer() {
    if (data_ != nullptr) device_.free(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  void fill(DType io, std::mt19937& random) const {
    std::normal_distribution<float> normal;
    const auto count = static_cast<int64_t>(bytes_ / element_size(io));
    for (int64_t i = 0; i < count; ++i) {
      // A long period is enough: drawing each value would take longer than the measurement.
      store_element(io, data_, i,
                    i < 100'003 ? normal(random) : load_element(io, data_, i - 100'003));
    }
  }

 private:
  Device& device_;
  size_t bytes_;
  void* data_ = nullptr;
};

// Weights as PyTorch initialises them.
std::shared_ptr<const Model> seeded_model(const Problem& problem, std::mt19937& random) {
  const ConvTranspose3d& g = problem.geometry;
  const double fan_in = static_cast<double>(g.out_per_group() * g.taps());
  std::uniform_real_distribution<float> uniform(static_cast<float>(-1 / std::sqrt(fan_in)),
                                                static_cast<float>(1 / std::sqrt(fan_in)));
  const auto array = [&](int64_t count) {
    float* values = new float[static_cast<size_t>(count)];
    for (int64_t i = 0; i < count; ++i) values[i] = uniform(random);
    return FloatArray(values, std::default_delete<float[]>());
  };
  auto model = Model::create(g, problem.epilogue, array(g.weight_count()), g.weight_count(),
                             array(g.out_channels), g.out_channels, {});
  return model.ok() ? *model : nullptr;
}

size_t bytes_of(const Shape5& shape, DType io) {
  return static_cast<size_t>(shape[0] * shape[1] * shape[2] * shape[3] * shape[4]) *
         element_size(io);
}

void run(benchmark::State& state, const std::string& text, int threads) {
  const auto fail = [&](const Status& status) { state.SkipWithError(status.text().c_str()); };
  auto opened = open_cpu_device(threads);
  if (!opened.ok()) return fail(opened.status());
  Device& device = **opened;
  auto parsed = parse_problem(text);
  if (!parsed.ok()) return fail(parsed.status());
  const Problem& problem = *parsed;
  const auto choice = choose_kernel(problem, device.properties());
  if (!choice.ok()) return fail(choice.status());
  const Kernel& kernel = *choice->kernel;

  std::mt19937 random(1);
  const auto model = seeded_model(problem, random);
  const auto packed = kernel.pack(*model, problem, device.properties());
  if (!packed.ok()) return fail(packed.status());
  const auto workspace_bytes =
      kernel.workspace_bytes(problem, device.properties(), std::numeric_limits<size_t>::max());
  if (!workspace_bytes.ok()) return fail(workspace_bytes.status());
  const Buffer weights(device, packed->size());
  const Buffer workspace(device, *workspace_bytes);
  const Buffer x(device, bytes_of(problem.input, problem.io));
  const Buffer out(device, bytes_of(problem.output, problem.io));
  const bool adds = takes_add(problem.epilogue.kind);
  const Buffer add(device, adds ? bytes_of(problem.output, problem.io) : 0);
  for (const Buffer* buffer : {&weights, &workspace, &x, &out, &add}) {
    if (buffer->data() == nullptr) return state.SkipWithError("out of memory");
  }
  std::memcpy(weights.data(), packed->data(), packed->size());
  x.fill(problem.io, random);
  add.fill(problem.io, random);
  const auto launch = kernel.prepare(problem, device.properties(),
                                     {.packed = weights.data(),
                                      .workspace = workspace.data(),
                                      .workspace_bytes = *workspace_bytes});
  if (!launch.ok()) return fail(launch.status());

  const RunArguments arguments = {.x = x.data(),
                                  .add = adds ? add.data() : nullptr,
                                  .out = out.data(),
                                  .threads = device.threads()};
  // Once unmeasured: the first touch of the output makes its pages.
  if (const Status status = (*launch)->run(arguments); !status.ok()) return fail(status);
  double fma_rate = multiply_add_rate(device);
  double byte_rate = copy_rate(device);
  std::vector<double> milliseconds;
  using Clock = std::chrono::steady_clock;
  for (auto _ : state) {
    const auto begin = Clock::now();
    const Status status = (*launch)->run(arguments);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (!status.ok()) return fail(status);
    state.SetIterationTime(seconds);
    milliseconds.push_back(1e3 * seconds);
  }
  fma_rate = std::max(fma_rate, multiply_add_rate(device));
  byte_rate = std::max(byte_rate, copy_rate(device));

  std::sort(milliseconds.begin(), milliseconds.end());
  const double least = milliseconds.empty() ? 0 : milliseconds.front();
  const auto products = static_cast<double>(multiply_adds(problem.geometry, problem.input));
  const auto bytes = static_cast<double>(bytes_of(problem.input, problem.io) +
                                         (adds ? 2 : 1) * bytes_of(problem.output, problem.io));
  const double floor_ms = 1e3 * std::max(fma_rate > 0 ? products / fma_rate : 0, bytes / byte_rate);
  state.counters["min_ms"] = least;
  state.counters["median_ms"] = milliseconds.empty() ? 0 : milliseconds[milliseconds.size() / 2];
  state.counters["floor_ms"] = floor_ms;
  state.counters["share"] = floor_ms / least;
  state.counters["GFMA_per_s_peak"] = 1e-9 * fma_rate;
  state.counters["GB_per_s_copy"] = 1e-9 * byte_rate;
  state.counters["GFMA_per_s"] = 1e-6 * products / least;
  state.SetLabel(cat(kernel.name(), ": ", kernel.choose(problem, device.properties())));
}

void register_all(int threads) {
  for (size_t model = 0; model < std::size(kShapes); ++model) {
    for (const int batch : kBatches[model]) {
      if (batch == 0) break;
      const std::string text = cat(kShapes[model][0], " n", batch, " ", kShapes[model][1]);
      const std::string name = cat(text, "/threads:", threads);
      benchmark::RegisterBenchmark(
          name.c_str(), [text, threads](benchmark::State& state) { run(state, text, threads); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace
}  // namespace volup::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const auto device = volup::open_cpu_device(0);
  if (!device.ok()) return 1;
  const volup::DeviceProperties& properties = (*device)->properties();
  benchmark::AddCustomContext("cpu", properties.name);
  benchmark::AddCustomContext("last_level_cache_bytes",
                              volup::cat(properties.last_level_cache_bytes));
  benchmark::AddCustomContext("compiler", __VERSION__);
  volup::bench::register_all(1);
  if (properties.threads > 1) volup::bench::register_all(properties.threads);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
