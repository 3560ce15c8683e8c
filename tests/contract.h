// SPDX-License-Identifier: Apache-2.0
//
// The precision contract, for tests of any kernel on any device: data sets, the float64 truth by
// the definition of a transposed convolution, and the plain arithmetic that a kernel's errors are
// measured against. Shares no code with a kernel but epilogue.h. Everything random has a seed.
//
// Per output, on the logits: r = |error| / (2^-24 * (sum |x||w| + |b|)). A kernel's maximum and
// 99.9th percentile of r are at most contract_factor() times those of a chain of fp32 FMAs over
// operands rounded as the precision permits, run here on the same data.
#ifndef VOLUP_TESTS_CONTRACT_H_
#define VOLUP_TESTS_CONTRACT_H_

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "epilogue.h"
#include "half.h"
#include "model.h"
#include "problem.h"

namespace volup::test {

inline int64_t count_of(const Shape5& shape) {
  return shape[0] * shape[1] * shape[2] * shape[3] * shape[4];
}

// Calls work(i) for 0 <= i < count on every CPU there is.
inline void for_each_index(int64_t count, const std::function<void(int64_t)>& work) {
  const int64_t workers =
      std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, std::max<int64_t>(count, 1));
  std::atomic<int64_t> next = 0;
  std::vector<std::thread> threads;
  for (int64_t worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&] {
      for (int64_t i = next++; i < count; i = next++) work(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- Data ---------------------------------------------------------------------------------------

// A problem with everything it is computed from. x and add hold values of the I/O dtype.
struct Case {
  Problem problem;
  std::vector<float> x;       // [N, Cin, D, H, W]
  std::vector<float> weight;  // [Cin, Cout / groups, kD, kH, kW]
  std::vector<float> bias;    // [Cout]
  std::vector<float> add;     // as the output; empty unless the epilogue takes it
  std::string name;           // problem, data set and seed: what reruns it

  // The model of weight and bias as they are now; sets problem.weights.
  std::shared_ptr<const Model> model() {
    auto result = Model::create(problem.geometry, problem.epilogue, copy(weight),
                                static_cast<int64_t>(weight.size()), copy(bias),
                                static_cast<int64_t>(bias.size()), {});
    if (!result.ok()) return nullptr;
    problem.weights = (*result)->weight_facts();
    return *result;
  }

 private:
  static FloatArray copy(const std::vector<float>& values) {
    FloatArray array(new float[values.size()], std::default_delete<float[]>());
    std::copy(values.begin(), values.end(), const_cast<float*>(array.get()));
    return array;
  }
};

// A value as memory of the I/O dtype keeps it.
inline float rounded_to(DType io, double value) {
  unsigned char memory[4];
  store_element(io, memory, 0, value);
  return static_cast<float>(load_element(io, memory, 0));
}

inline Case empty_case(const Problem& problem, std::string_view data) {
  Case c;
  c.problem = problem;
  c.x.resize(static_cast<size_t>(count_of(problem.input)));
  c.weight.resize(static_cast<size_t>(problem.geometry.weight_count()));
  c.bias.resize(static_cast<size_t>(problem.geometry.out_channels));
  if (takes_add(problem.epilogue.kind)) c.add.resize(static_cast<size_t>(count_of(problem.output)));
  c.name = cat("'", print(problem), "' ", data);
  return c;
}

// Integers up to 8 in size, exact in every format, so thin that sums stay below 2^24: every kernel
// at every precision must give the same bits.
inline Case integer_case(const Problem& problem, uint32_t seed) {
  Case c = empty_case(problem, cat("integers, seed ", seed));
  std::mt19937 random(seed);
  const auto fill = [&](std::vector<float>& values, double density) {
    std::uniform_int_distribution<int> value(-8, 8);
    std::bernoulli_distribution present(density);
    for (float& v : values) v = present(random) ? static_cast<float>(value(random)) : 0.0f;
  };
  // At most 64 a product: even with no thinning 2^18 of them are needed to pass 2^24.
  const double products =
      static_cast<double>(problem.geometry.in_per_group() * problem.geometry.taps());
  fill(c.x, std::min(1.0, 0x1p17 / products));
  fill(c.weight, 1.0);
  fill(c.bias, 1.0);
  fill(c.add, 1.0);
  return c;
}

enum class DataSet {
  kZeroMean,
  kPositive,
  kWideExponents,
  kLargeVoxel,          // one voxel of 1e6 among 1e-3
  kLargeChannel,        // one input channel of 1e6, whose weights are 0
  kLargeChannelTiny,    // one input channel of 1e6, whose weights are tiny
  kTinyOutputChannels,  // every other output channel has weights of 1e-6
};
inline constexpr DataSet kDataSets[] = {DataSet::kZeroMean,          DataSet::kPositive,
                                        DataSet::kWideExponents,     DataSet::kLargeVoxel,
                                        DataSet::kLargeChannel,      DataSet::kLargeChannelTiny,
                                        DataSet::kTinyOutputChannels};

inline const char* name_of(DataSet set) {
  static constexpr const char* kNames[] = {
      "zero-mean",     "positive",           "wide exponents",      "large voxel",
      "large channel", "large channel tiny", "tiny output channels"};
  return kNames[static_cast<int>(set)];
}

// scale multiplies the weights: the logits of zero-mean data have about that standard deviation
// where a voxel has all of its taps.
inline Case random_case(const Problem& problem, DataSet set, uint32_t seed, double scale = 1.0) {
  Case c = empty_case(problem, cat(name_of(set), ", seed ", seed));
  const ConvTranspose3d& g = problem.geometry;
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> exponent(-12.0, 12.0);
  const bool positive = set == DataSet::kPositive;
  const auto draw = [&] { return positive ? std::abs(normal(random)) : normal(random); };
  // fp16 ends at 65504.
  const double large = problem.io == DType::kFp16 ? 2e3 : 1e6;

  const int64_t plane = problem.input[2] * problem.input[3] * problem.input[4];
  for (size_t i = 0; i < c.x.size(); ++i) {
    double value = draw();
    const int64_t channel = static_cast<int64_t>(i) / plane % g.in_channels;
    if (set == DataSet::kWideExponents) value *= std::exp2(exponent(random));
    if (set == DataSet::kLargeVoxel) value *= 1e-3;
    if ((set == DataSet::kLargeChannel || set == DataSet::kLargeChannelTiny) && channel == 0) {
      value *= large;
    }
    c.x[i] = rounded_to(problem.io, value);
  }
  if (set == DataSet::kLargeVoxel) c.x[c.x.size() / 2] = rounded_to(problem.io, large);

  const double taps_per_voxel =
      static_cast<double>(g.taps()) / static_cast<double>(g.stride[0] * g.stride[1] * g.stride[2]);
  const double spread =
      scale / std::sqrt(std::max(1.0, taps_per_voxel * static_cast<double>(g.in_per_group())));
  const int64_t per_input = g.out_per_group() * g.taps();
  for (size_t i = 0; i < c.weight.size(); ++i) {
    double value = draw() * spread;
    const int64_t ci = static_cast<int64_t>(i) / per_input;
    const int64_t co = static_cast<int64_t>(i) / g.taps() % g.out_per_group();
    if (set == DataSet::kWideExponents) value *= std::exp2(exponent(random));
    if (set == DataSet::kLargeChannel && ci == 0) value = 0;
    if (set == DataSet::kLargeChannelTiny && ci == 0) value *= 1e-6;
    if (set == DataSet::kTinyOutputChannels && co % 2 == 1) value *= 1e-6;
    c.weight[i] = static_cast<float>(value);
  }
  for (float& value : c.bias) value = static_cast<float>(draw() * 0.5);
  if (set == DataSet::kTinyOutputChannels) {
    for (size_t co = 1; co < c.bias.size(); co += 2) c.bias[co] *= 1e-6f;
  }
  for (float& value : c.add) value = rounded_to(problem.io, normal(random));
  return c;
}

// ---- Arithmetic ---------------------------------------------------------------------------------

// An operand as products of a precision may round it.
inline float rounded_operand(Precision precision, float value) {
  switch (precision) {
    case Precision::kTf32: {
      const auto bits = std::bit_cast<uint32_t>(value);
      if ((bits & 0x7f800000u) == 0x7f800000u) return value;
      return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
    }
    case Precision::kBf16:
      return float_from_bf16(bf16_from(value));
    case Precision::kFp16:
      return float_from_fp16(fp16_from(value));
    case Precision::kFp32:
      break;
  }
  return value;
}

// x and weights as the products of the case's precision may take them.
struct Operands {
  std::vector<float> x;
  std::vector<float> weight;
};

inline Operands operands_of(const Case& c) {
  Operands operands{c.x, c.weight};
  for (float& value : operands.x) value = rounded_operand(c.problem.precision, value);
  for (float& value : operands.weight) value = rounded_operand(c.problem.precision, value);
  return operands;
}

inline double contract_factor(Precision precision) {
  return precision == Precision::kFp32 ? 4.0 : 2.0;
}

// The logits of one voxel (n, d, h, w of the convolution's output), all channels.
struct VoxelLogits {
  std::vector<double> exact;
  std::vector<double> magnitude;  // sum |x||w| + |b|
  std::vector<float> chain;       // fp32 FMAs over rounded operands, bias first, taps then channels
};

inline VoxelLogits logits_at(const Case& c, const Operands& operands,
                             const std::array<int64_t, 4>& voxel) {
  const ConvTranspose3d& g = c.problem.geometry;
  const Shape5& in = c.problem.input;
  const auto channels = static_cast<size_t>(g.out_channels);
  VoxelLogits logits;
  logits.chain = c.bias;
  logits.exact.assign(c.bias.begin(), c.bias.end());
  logits.magnitude.resize(channels);
  for (size_t co = 0; co < channels; ++co) logits.magnitude[co] = std::abs(logits.exact[co]);

  // o = i * stride - padding + k * dilation
  const auto source = [&](size_t axis, int64_t k, int64_t* i) {
    const int64_t scaled = voxel[1 + axis] + g.padding_begin[axis] - k * g.dilation[axis];
    *i = scaled / g.stride[axis];
    return scaled >= 0 && scaled % g.stride[axis] == 0 && *i < in[2 + axis];
  };
  int64_t id;
  int64_t ih;
  int64_t iw;
  for (int64_t kd = 0; kd < g.kernel[0]; ++kd) {
    if (!source(0, kd, &id)) continue;
    for (int64_t kh = 0; kh < g.kernel[1]; ++kh) {
      if (!source(1, kh, &ih)) continue;
      for (int64_t kw = 0; kw < g.kernel[2]; ++kw) {
        if (!source(2, kw, &iw)) continue;
        const int64_t tap = (kd * g.kernel[1] + kh) * g.kernel[2] + kw;
        for (int64_t ci = 0; ci < g.in_channels; ++ci) {
          const auto at = static_cast<size_t>(
              (((voxel[0] * in[1] + ci) * in[2] + id) * in[3] + ih) * in[4] + iw);
          const int64_t first = ci / g.in_per_group() * g.out_per_group();
          for (int64_t co = 0; co < g.out_per_group(); ++co) {
            const auto w = static_cast<size_t>((ci * g.out_per_group() + co) * g.taps() + tap);
            const auto out = static_cast<size_t>(first + co);
            const double product = double{c.x[at]} * double{c.weight[w]};
            logits.exact[out] += product;
            logits.magnitude[out] += std::abs(product);
            logits.chain[out] = std::fma(operands.x[at], operands.weight[w], logits.chain[out]);
          }
        }
      }
    }
  }
  return logits;
}

// The voxels of the convolution's output: all of them, or about count spread evenly.
inline std::vector<std::array<int64_t, 4>> voxels_of(const Shape5& shape, int64_t count) {
  const int64_t all = shape[0] * shape[2] * shape[3] * shape[4];
  // Odd steps reach every phase of even strides.
  const int64_t step = all <= count ? 1 : all / count | 1;
  std::vector<std::array<int64_t, 4>> voxels;
  for (int64_t i = 0; i < all; i += step) {
    voxels.push_back({i / (shape[2] * shape[3] * shape[4]), i / (shape[3] * shape[4]) % shape[2],
                      i / shape[4] % shape[3], i % shape[4]});
  }
  return voxels;
}

// Element of a tensor of this shape at a voxel and channel.
inline size_t element_at(const Shape5& shape, const std::array<int64_t, 4>& voxel,
                         int64_t channel) {
  return static_cast<size_t>(
      (((voxel[0] * shape[1] + channel) * shape[2] + voxel[1]) * shape[3] + voxel[2]) * shape[4] +
      voxel[3]);
}

// ---- The contract -------------------------------------------------------------------------------

struct Ratios {
  double maximum = 0;
  double percentile = 0;  // the 99.9th
};

inline Ratios ratios_of(std::vector<double> r) {
  if (r.empty()) return {};
  std::sort(r.begin(), r.end());
  return {r.back(), r[(r.size() - 1) * 999 / 1000]};
}

// r of one logit; infinity where an error has no excuse.
inline double ratio(double value, double exact, double magnitude) {
  const double error = std::abs(value - exact);
  if (error == 0) return 0;
  const double r = error / (0x1p-24 * magnitude);
  return r >= 0 ? r : INFINITY;
}

struct LogitReport {
  Ratios kernel;
  Ratios chain;
  Ratios limit;  // on the kernel's
  bool ok = false;
  std::string text;  // one line with both
};

// Judges an identity output, [N, Cout, D, H, W]. With 16-bit I/O both sides round what they store.
inline LogitReport check_logits(const Case& c, const std::vector<float>& out,
                                int64_t voxel_count = int64_t{1} << 40) {
  const auto voxels = voxels_of(c.problem.conv_output, voxel_count);
  const Operands operands = operands_of(c);
  const auto channels = static_cast<size_t>(c.problem.geometry.out_channels);
  std::vector<double> kernel(voxels.size() * channels);
  std::vector<double> chain(voxels.size() * channels);
  for_each_index(static_cast<int64_t>(voxels.size()), [&](int64_t index) {
    const auto v = static_cast<size_t>(index);
    const VoxelLogits logits = logits_at(c, operands, voxels[v]);
    for (size_t co = 0; co < channels; ++co) {
      const float value =
          out[element_at(c.problem.conv_output, voxels[v], static_cast<int64_t>(co))];
      const float plain = rounded_to(c.problem.io, logits.chain[co]);
      if (std::isinf(plain) && value == plain) continue;  // past the I/O dtype on both sides
      kernel[v * channels + co] = ratio(value, logits.exact[co], logits.magnitude[co]);
      chain[v * channels + co] = ratio(plain, logits.exact[co], logits.magnitude[co]);
    }
  });
  LogitReport report;
  report.kernel = ratios_of(std::move(kernel));
  report.chain = ratios_of(std::move(chain));
  const double factor = contract_factor(c.problem.precision);
  // A chain of one or no product can be exact; a last bit is no fault even then.
  constexpr double kLastBit = 2;
  report.limit = {std::max(factor * report.chain.maximum, kLastBit),
                  std::max(factor * report.chain.percentile, kLastBit)};
  report.ok = report.kernel.maximum <= report.limit.maximum &&
              report.kernel.percentile <= report.limit.percentile;
  report.text = cat("r max ", report.kernel.maximum, " (chain ", report.chain.maximum, "), p99.9 ",
                    report.kernel.percentile, " (chain ", report.chain.percentile, ")");
  return report;
}

// What rounding a result to the I/O dtype may cost.
inline double storage_error(DType io, double value) {
  switch (io) {
    case DType::kFp16:
      return std::abs(value) * 0x1p-11 + 0x1p-25;
    case DType::kBf16:
      return std::abs(value) * 0x1p-8;
    case DType::kFp32:
      break;
  }
  return 0;  // within the contract's own 8 * 2^-24
}

// A voxel's outputs in float64, and how far each may be off: sum over channels of
// |d out / d logit| * (that logit's bound) + 8 * 2^-24 * max(1, |out|).
struct VoxelOutput {
  std::vector<double> value;
  std::vector<double> bound;
};

// add(c): the added tensor's value; logit_bound: absolute, a channel.
inline VoxelOutput output_of(const Problem& problem, const std::vector<double>& logits,
                             const std::vector<double>& logit_bound,
                             const std::function<double(int64_t)>& add) {
  const Epilogue& e = problem.epilogue;
  const auto channels = static_cast<int64_t>(logits.size());
  const auto logit = [&](int64_t c) { return logits[static_cast<size_t>(c)]; };
  const auto bound = [&](int64_t c) { return logit_bound[static_cast<size_t>(c)]; };
  double widest = 0;
  for (const double b : logit_bound) widest = std::max(widest, b);
  // Probabilities move by this factor at most while logits move within their bounds.
  const double growth = std::exp(2 * widest);
  VoxelOutput out;
  switch (e.kind) {
    case EpilogueKind::kIdentity:
      out = {logits, logit_bound};
      break;
    case EpilogueKind::kLogsumexpSwishClamp: {
      const double l = logsumexp<double>(channels, logit);
      double moved = 0;
      for (int64_t c = 0; c < channels; ++c) moved += std::exp(logit(c) - l) * bound(c) * growth;
      // |d/dl (l * sigmoid(l + shift))| <= sigmoid + |l| * sigmoid * (1 - sigmoid)
      const double gate = sigmoid(l + double{e.shift});
      const double slope =
          (gate + std::abs(l) * gate * (1 - gate)) / std::abs(double{e.divisor}) * growth;
      out.value = {swish_clamp(l, e)};
      out.bound = {slope * moved};
      break;
    }
    case EpilogueKind::kSoftmaxSigmoid: {
      const double l = logsumexp<double>(channels, logit);
      double mean = 0;  // bounds weighed by probability
      for (int64_t c = 0; c < channels; ++c) mean += std::exp(logit(c) - l) * bound(c);
      for (int64_t c = 0; c < channels; ++c) {
        const double p = std::exp(logit(c) - l);
        // |dp/dl_c| = p (1 - p), |dp/dl_k| = p p_k, and sigmoid' <= 1/4
        out.bound.push_back(0.25 * p * growth * growth * ((1 - 2 * p) * bound(c) + mean));
      }
      softmax_sigmoid<double>(channels, logit, [&](int64_t, double v) { out.value.push_back(v); });
      break;
    }
    case EpilogueKind::kAddHardswish:
      for (int64_t c = 0; c < channels; ++c) {
        const double t = logit(c) + add(c);
        // Slope of (t * gate) * t, at its steepest within the bound.
        const bool gate_moves =
            t + bound(c) + e.shift >= e.clamp_min && t - bound(c) + e.shift <= e.clamp_max;
        double slope = 0;
        for (const double at : {t - bound(c), t, t + bound(c)}) {
          const double gate =
              clamp_keeping_nan(at + double{e.shift}, double{e.clamp_min}, double{e.clamp_max}) /
              double{e.divisor};
          const double gate_slope = gate_moves ? 1 / std::abs(double{e.divisor}) : 0;
          slope = std::max(slope, std::abs(2 * at * gate) + at * at * gate_slope);
        }
        out.value.push_back(hardswish_product(t, e));
        out.bound.push_back(slope * bound(c));
      }
      break;
  }
  for (size_t c = 0; c < out.value.size(); ++c) {
    out.bound[c] += 8 * 0x1p-24 * std::max(1.0, std::abs(out.value[c])) +
                    storage_error(problem.io, out.value[c]);
  }
  return out;
}

struct OutputReport {
  double worst = 0;  // largest share of its bound that an output uses; infinity for a wrong NaN
  size_t at = 0;     // that output's element
  std::string text;
  bool ok() const { return worst <= 1; }
};

// Judges final outputs of a case. chain_maximum: the largest r of the plain chain on this data (as
// check_logits reports), which makes a logit's bound.
inline OutputReport check_outputs(const Case& c, const std::vector<float>& out,
                                  double chain_maximum, int64_t voxel_count = int64_t{1} << 40) {
  const auto voxels = voxels_of(c.problem.conv_output, voxel_count);
  const Operands operands = operands_of(c);
  const double unit = contract_factor(c.problem.precision) * chain_maximum * 0x1p-24;
  std::vector<std::pair<double, size_t>> worst(voxels.size());
  for_each_index(static_cast<int64_t>(voxels.size()), [&](int64_t index) {
    const auto v = static_cast<size_t>(index);
    const VoxelLogits logits = logits_at(c, operands, voxels[v]);
    std::vector<double> bound;
    for (const double magnitude : logits.magnitude) bound.push_back(unit * magnitude);
    const VoxelOutput wanted = output_of(c.problem, logits.exact, bound, [&](int64_t channel) {
      return double{c.add[element_at(c.problem.output, voxels[v], channel)]};
    });
    for (size_t channel = 0; channel < wanted.value.size(); ++channel) {
      const size_t at = element_at(c.problem.output, voxels[v], static_cast<int64_t>(channel));
      const double share = std::abs(out[at] - wanted.value[channel]) / wanted.bound[channel];
      worst[v] = std::max(worst[v], {share >= 0 ? share : INFINITY, at});
    }
  });
  OutputReport report;
  for (const auto& [share, at] : worst) {
    if (share > report.worst) {
      report.worst = share;
      report.at = at;
    }
  }
  report.text = cat("largest share of the bound ", report.worst, " at element ", report.at);
  return report;
}

// Largest r of the plain chain, without a kernel.
inline double chain_maximum(const Case& c, int64_t voxel_count = int64_t{1} << 40) {
  const auto voxels = voxels_of(c.problem.conv_output, voxel_count);
  const Operands operands = operands_of(c);
  std::vector<double> largest(voxels.size());
  for_each_index(static_cast<int64_t>(voxels.size()), [&](int64_t index) {
    const auto v = static_cast<size_t>(index);
    const VoxelLogits logits = logits_at(c, operands, voxels[v]);
    for (size_t co = 0; co < logits.exact.size(); ++co) {
      largest[v] =
          std::max(largest[v], ratio(logits.chain[co], logits.exact[co], logits.magnitude[co]));
    }
  });
  return largest.empty() ? 0 : *std::max_element(largest.begin(), largest.end());
}

}  // namespace volup::test

#endif  // VOLUP_TESTS_CONTRACT_H_
