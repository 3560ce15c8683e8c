// SPDX-License-Identifier: Apache-2.0
//
// volup bench: times a model from a file, or a problem string with seeded weights, by
// volup_session_time, and turns milliseconds into GB/s and TFLOP/s.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "commands.h"
#include "library.h"
#include "progress.h"
#include "words.h"

namespace volup::tool {
namespace {

using nlohmann::json;

constexpr double kMaxWeightBytes = 0x1p33;  // far above any real block; below it memory decides

// SplitMix64 (Steele, Lea, Flood 2014): the same weights for a seed on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  float uniform(float limit) {  // in [-limit, limit)
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
    return (static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f) * limit;
  }

 private:
  std::uint64_t state_;
};

double per_axis_product(const std::int64_t* sizes) {
  return static_cast<double>(sizes[0]) * static_cast<double>(sizes[1]) *
         static_cast<double>(sizes[2]);
}

Model make_seeded_model(const volup_geometry& geometry, volup_epilogue_kind kind,
                        std::uint64_t seed) {
  const double taps = per_axis_product(geometry.kernel);
  const double in_per_group =
      static_cast<double>(geometry.in_channels) / static_cast<double>(geometry.groups);
  const double count = taps * in_per_group * static_cast<double>(geometry.out_channels);
  if (count * sizeof(float) > kMaxWeightBytes) {
    throw Failure(ExitCode::kUsage,
                  "the problem's weights: got " + number(count) + " of them, need at most 2^31");
  }
  // Taps that meet in one output voxel, so that the outputs spread like the unit inputs do.
  const double meeting = std::max(1.0, taps / per_axis_product(geometry.stride)) * in_per_group;
  const float limit = static_cast<float>(std::sqrt(3.0 / meeting));
  Random random(seed);
  std::vector<float> weight(static_cast<std::size_t>(count));
  std::vector<float> bias(static_cast<std::size_t>(geometry.out_channels));
  for (float& value : weight) value = random.uniform(limit);
  for (float& value : bias) value = random.uniform(limit);

  volup_epilogue epilogue{};
  epilogue.struct_size = sizeof epilogue;
  require(volup_epilogue_init(kind, &epilogue), About::kCommandLine);
  return create_model(geometry, epilogue, weight, bias);
}

// Input-output pairs along one axis that a tap joins: edges are cut off.
double existing_taps(const volup_geometry& g, int axis, std::int64_t in, std::int64_t out) {
  double pairs = 0;
  for (std::int64_t tap = 0; tap < g.kernel[axis]; ++tap) {
    // Outputs o = i * stride + offset must lie in [0, out).
    const std::int64_t offset = tap * g.dilation[axis] - g.padding_begin[axis];
    const std::int64_t stride = g.stride[axis];
    const std::int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
    if (offset >= out) break;
    const std::int64_t last = std::min(in - 1, (out - 1 - offset) / stride);
    if (last >= first) pairs += static_cast<double>(last - first + 1);
  }
  return pairs;
}

double multiply_adds(const volup_geometry& g, const Shape& in, const Shape& out) {
  double pairs = static_cast<double>(in[0]);
  for (int axis = 0; axis < 3; ++axis) {
    pairs *= existing_taps(g, axis, in[static_cast<std::size_t>(axis) + 2],
                           out[static_cast<std::size_t>(axis) + 2]);
  }
  return pairs * static_cast<double>(g.in_channels) * static_cast<double>(g.out_channels) /
         static_cast<double>(g.groups);
}

struct Subject {
  Model model;
  Shape shape{};
  SessionChoice session;
  bool seeded = false;
};

Subject from_problem(const Options& options) {
  volup_geometry geometry{};
  geometry.struct_size = sizeof geometry;
  volup_problem problem{};
  problem.struct_size = sizeof problem;
  problem.geometry = &geometry;
  require(volup_problem_parse(options.model.c_str(), &problem), About::kCommandLine);
  Subject subject;
  subject.seeded = true;
  subject.session = options.session;
  if (!subject.session.precision) {
    subject.session.precision = static_cast<volup_precision>(problem.precision);
  }
  if (!subject.session.io) subject.session.io = static_cast<volup_dtype>(problem.io_dtype);
  std::copy(std::begin(problem.input), std::end(problem.input), subject.shape.begin());
  subject.model =
      make_seeded_model(geometry, static_cast<volup_epilogue_kind>(problem.epilogue), options.seed);
  return subject;
}

Subject from_file(const Options& options) {
  return {load_model(options.model, options.load), *options.shape, options.session, false};
}

// Bytes that must move: x once, add once where there is one, the output once.
double moved_bytes(const Subject& subject, const Shape& out) {
  const double element = subject.session.io == VOLUP_DTYPE_FP32 || !subject.session.io ? 4 : 2;
  const double x_count = static_cast<double>(element_count(subject.shape).value_or(0));
  const double out_count = static_cast<double>(element_count(out).value_or(0));
  const bool add = epilogue_of(subject.model.get()).kind == VOLUP_EPILOGUE_ADD_HARDSWISH;
  return element * (x_count + out_count * (add ? 2 : 1));
}

}  // namespace

ExitCode bench(const Options& options) {
  Subject subject;
  json session_json;
  Shape out{};
  volup_timing timing{};
  timing.struct_size = sizeof timing;
  {
    Progress progress(options.quiet);
    progress.phase("loading the model");
    subject = options.shape ? from_file(options) : from_problem(options);
    out = output_shape(subject.model.get(), subject.shape, About::kCommandLine);
    const Session session = make_session(subject.model.get(), subject.session, subject.shape);
    progress.phase("timing");
    require(volup_session_time(session.get(), subject.shape.data(), options.iterations, &timing),
            About::kCommandLine);
    session_json = describe(session.get(), subject.shape);
  }
  say_choice(session_json, options);

  const double bytes = moved_bytes(subject, out);
  const double flops = 2 * multiply_adds(geometry_of(subject.model.get()), subject.shape, out);
  const double seconds = timing.median_ms * 1e-3;
  const double gb_per_s = seconds > 0 ? bytes / seconds * 1e-9 : 0;
  const double tflop_per_s = seconds > 0 ? flops / seconds * 1e-12 : 0;
  if (options.json) {
    json result = session_report(session_json, subject.session);
    result["command"] = "bench";
    result["model"] = subject.seeded ? json() : json(options.model);
    result["seed"] = subject.seeded ? json(options.seed) : json();
    result["shape"] = subject.shape;
    result["output_shape"] = out;
    result["iterations"] = timing.iterations;
    result["buffers"] = timing.buffers;
    result["cold"] = {
        {"median_ms", timing.median_ms}, {"min_ms", timing.min_ms}, {"p95_ms", timing.p95_ms}};
    result["warm"] = {{"median_ms", timing.warm_median_ms}, {"min_ms", timing.warm_min_ms}};
    result["bytes"] = static_cast<std::int64_t>(bytes);
    result["flops"] = static_cast<std::int64_t>(flops);
    result["gb_per_s"] = gb_per_s;
    result["tflop_per_s"] = tflop_per_s;
    std::cout << result.dump() << '\n';
    return ExitCode::kGood;
  }
  std::cout << "problem  " << session_json.value("problem", "?");
  if (subject.seeded) std::cout << "   weights of seed " << options.seed;
  std::cout << "\nkernel   " << session_json.value("kernel", "?") << "   "
            << session_json.value("tile", "") << "\ndevice   " << device_text(session_json)
            << "\ncold     median " << number(timing.median_ms) << " ms   min "
            << number(timing.min_ms) << " ms   p95 " << number(timing.p95_ms) << " ms   ("
            << timing.iterations << " runs over " << timing.buffers << " sets of tensors)"
            << "\nwarm     median " << number(timing.warm_median_ms) << " ms   min "
            << number(timing.warm_min_ms) << " ms\nrate     " << number(gb_per_s) << " GB/s   "
            << number(tflop_per_s) << " TFLOP/s   (of the cold median)\n";
  return ExitCode::kGood;
}

}  // namespace volup::tool
