// SPDX-License-Identifier: Apache-2.0
//
// volup run: tensors in, tensor out.
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "compute.h"
#include "progress.h"

namespace volup::tool {

ExitCode run(const Options& options) {
  const DatasetName x = split_dataset_name(options.input, "x");
  const DatasetName out = split_dataset_name(options.output, "y");
  std::optional<DatasetName> add;
  if (!options.add.empty()) add = split_dataset_name(options.add, "add");

  Computed computed;
  {
    Progress progress(options.quiet);
    progress.phase("loading the model");
    const Model model = load_model(options.model, options.load);
    const std::string type = describe(model.get()).value("type", "?");
    if (takes_add(model.get()) && !add) {
      throw Failure(ExitCode::kUsage, "--add is missing: a model of type " + type + " takes one");
    }
    if (!takes_add(model.get()) && add) {
      throw Failure(ExitCode::kUsage,
                    "--add is given, but a model of type " + type + " takes none");
    }
    require_writable(out);
    computed = compute(model.get(), options, x, add, &progress);
    write_tensor(out, computed.out, &progress);
  }
  say_choice(computed.session, options);

  if (options.json) {
    nlohmann::json result = session_report(computed.session, options.session);
    result["command"] = "run";
    result["model"] = options.model;
    result["output"] = {
        {"file", out.file}, {"dataset", out.dataset}, {"shape", computed.out.shape}};
    result["seconds"] = computed.seconds;
    std::cout << result.dump() << '\n';
  } else {
    std::cout << "wrote    " << out.file << " dataset " << out.dataset << ", float32 "
              << shape_text(computed.out.shape) << '\n'
              << "kernel   " << computed.session.value("kernel", "?") << '\n'
              << "device   " << device_text(computed.session) << '\n'
              << "time     " << number(computed.seconds * 1e3) << " ms\n";
  }
  return ExitCode::kGood;
}

}  // namespace volup::tool
