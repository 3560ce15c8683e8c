// SPDX-License-Identifier: Apache-2.0
//
// volup check: runs a model on an HDF5 file's x (and add) and compares with its y.
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bound.h"
#include "commands.h"
#include "compare.h"
#include "compute.h"
#include "progress.h"

namespace volup::tool {
namespace {

// Limits from the file, the precision's bound, or both.
struct Choice {
  bool from_file = false;
  bool from_precision = false;
  double absolute = 0;
  double relative = 0;
  std::string source;
};

// The file's limits are made for fp32; where fewer bits were asked for, the bound of those holds
// for the elements for which it is wider.
Choice choose_limits(const std::string& file, const SessionChoice& session) {
  const volup_precision precision = session.precision.value_or(VOLUP_PRECISION_FP32);
  const volup_dtype io = session.io.value_or(VOLUP_DTYPE_FP32);
  const std::vector<double> tolerance = read_attribute(file, "tolerance");
  const std::vector<double> rtol = read_attribute(file, "rtol");
  const bool reduced = precision != VOLUP_PRECISION_FP32 || io != VOLUP_DTYPE_FP32;

  Choice choice;
  choice.from_file = !tolerance.empty() || !rtol.empty();
  choice.from_precision = tolerance.empty() || reduced;
  if (!tolerance.empty()) {
    choice.absolute = tolerance.front();
    choice.relative = tolerance.back();
  }
  if (!rtol.empty()) choice.relative = rtol.front();
  if (tolerance.size() > 2 || rtol.size() > 1 || !(choice.absolute >= 0) ||
      !(choice.relative >= 0)) {
    throw Failure(ExitCode::kUnsupported,
                  "attributes tolerance and rtol of '" + file +
                      "': need one or two numbers and one number, none of them negative");
  }
  if (choice.from_file) choice.source = "the file";
  if (choice.from_precision) {
    choice.source += std::string(choice.from_file ? ", or where wider " : "") + "the bound of " +
                     precision_name(precision) + " with " + dtype_name(io) + " I/O";
  }
  return choice;
}

struct Range {
  double largest;   // the greatest finite value
  double overflow;  // the least magnitude that rounds to infinity
};

Range range_of(volup_dtype io) {
  if (io == VOLUP_DTYPE_FP16) return {65504.0, 65520.0};
  if (io == VOLUP_DTYPE_BF16) return {0x1.fep127, 0x1.ffp127};
  return {std::numeric_limits<float>::max(), 0x1.ffffffp127};
}

Shape index_of(std::int64_t element, const Shape& shape) {
  Shape index{};
  for (std::size_t axis = 5; axis-- > 0;) {
    index[axis] = element % shape[axis];
    element /= shape[axis];
  }
  return index;
}

Comparison compare(const volup_model* model, const Computed& computed, const DatasetName& y,
                   const Choice& choice, const Options& options, Progress* progress) {
  const volup_dtype io = options.session.io.value_or(VOLUP_DTYPE_FP32);
  const Range range = range_of(io);
  Limits limits{choice.absolute, choice.relative, {}, 0, 0};
  std::vector<float> bounds;
  if (choice.from_precision) {
    bounds = contract_bound(model, options.session, computed.x, computed.add, progress);
    const ResultRounding rounding = result_rounding(io);
    limits.bounds = bounds;
    limits.floor = rounding.floor;
    limits.unit = rounding.unit;
  }
  const std::span<const float> got(computed.out.values);
  Comparer comparer(limits, range.largest, range.overflow, static_cast<std::int64_t>(got.size()));
  std::size_t done = 0;
  progress->phase("comparing");
  read_in_pieces(y, progress, [&](std::span<const double> expected) {
    comparer.add(got.subspan(done, expected.size()), expected);
    done += expected.size();
  });
  return comparer.finish();
}

void print_json(const Options& options, const Computed& computed, const Comparison& comparison,
                const Choice& choice) {
  nlohmann::json result = session_report(computed.session, options.session);
  result["command"] = "check";
  result["model"] = options.model;
  result["file"] = options.second;
  result["passed"] = comparison.passed();
  result["compared"] = comparison.compared;
  result["failed"] = comparison.failed;
  result["non_finite"] = comparison.non_finite;
  result["max_abs_err"] = json_number(comparison.max_abs);
  result["p999_abs_err"] = json_number(comparison.p999_abs);
  result["max_rel_err"] = json_number(comparison.max_rel);
  result["p999_rel_err"] = json_number(comparison.p999_rel);
  result["limits"] = {
      {"absolute", choice.from_file ? nlohmann::json(choice.absolute) : nlohmann::json()},
      {"relative", choice.from_file ? nlohmann::json(choice.relative) : nlohmann::json()},
      {"source", choice.source}};
  if (comparison.worst >= 0) {
    result["worst"] = {{"index", index_of(comparison.worst, computed.out.shape)},
                       {"got", json_number(comparison.worst_got)},
                       {"expected", json_number(comparison.worst_expected)}};
  } else {
    result["worst"] = nullptr;
  }
  result["seconds"] = computed.seconds;
  std::cout << result.dump() << '\n';
}

void print_text(const Computed& computed, const Comparison& comparison, const Choice& choice) {
  std::cout << (comparison.passed() ? "PASSED" : "FAILED") << "   " << grouped(comparison.compared)
            << " values, " << grouped(comparison.failed) << " over the limit, "
            << grouped(comparison.non_finite) << " expected to be NaN or infinite\n"
            << "absolute error  maximum " << number(comparison.max_abs) << "   99.9th percentile "
            << number(comparison.p999_abs) << '\n'
            << "relative error  maximum " << number(comparison.max_rel) << "   99.9th percentile "
            << number(comparison.p999_rel) << '\n'
            << "limits   from " << choice.source;
  if (choice.from_file) {
    std::cout << ": " << number(choice.absolute) << " + " << number(choice.relative) << " * |y|";
  }
  std::cout << '\n';
  if (comparison.worst >= 0) {
    std::cout << "worst    at [" << shape_text(index_of(comparison.worst, computed.out.shape))
              << "]: got " << number(comparison.worst_got, 9) << ", expected "
              << number(comparison.worst_expected, 9) << '\n';
  }
  std::cout << "kernel   " << computed.session.value("kernel", "?") << '\n'
            << "device   " << device_text(computed.session) << '\n'
            << "time     " << number(computed.seconds * 1e3) << " ms\n";
}

[[noreturn]] void fail_on_shape(const DatasetName& y, const Shape& got, const Shape& need) {
  throw Failure(ExitCode::kCheckFailed, "check failed: dataset '" + y.dataset + "' of '" + y.file +
                                            "' has shape " + shape_text(got) +
                                            ", but the model's output has " + shape_text(need));
}

}  // namespace

ExitCode check(const Options& options) {
  const std::string& file = options.second;
  const DatasetName x{file, "x"};
  const DatasetName add{file, "add"};
  const DatasetName y{file, "y"};

  Computed computed;
  Comparison comparison;
  Choice choice;
  bool unused_add = false;
  {
    Progress progress(options.quiet);
    progress.phase("loading the model");
    const Model model = load_model(options.model, options.load);
    choice = choose_limits(file, options.session);
    const Shape expected = read_shape(y);
    const Shape output = output_shape(model.get(), read_shape(x), About::kTensorFile);
    if (expected != output) fail_on_shape(y, expected, output);
    unused_add = !takes_add(model.get()) && has_dataset(add);
    computed = compute(model.get(), options, x, add, &progress);
    comparison = compare(model.get(), computed, y, choice, options, &progress);
  }
  say_choice(computed.session, options);
  if (unused_add && !options.quiet) say("note: the model takes no add; that dataset was not used");
  if (comparison.compared == 0 && !options.quiet) say("note: the output is empty");

  if (options.json) {
    print_json(options, computed, comparison, choice);
  } else {
    print_text(computed, comparison, choice);
  }
  if (comparison.passed()) return ExitCode::kGood;
  throw Failure(ExitCode::kCheckFailed,
                "check failed: " + grouped(comparison.failed) + " of " +
                    grouped(comparison.compared) + " values are over the limit, the worst at [" +
                    shape_text(index_of(comparison.worst, computed.out.shape)) + "]: got " +
                    number(comparison.worst_got, 9) + ", expected " +
                    number(comparison.worst_expected, 9));
}

}  // namespace volup::tool
