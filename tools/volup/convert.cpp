// SPDX-License-Identifier: Apache-2.0
//
// volup convert: any model file to volup's HDF5.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "commands.h"
#include "library.h"
#include "progress.h"
#include "words.h"

namespace volup::tool {

ExitCode convert(const Options& options) {
  const std::string& in = options.model;
  const std::string& out = options.second;
  std::error_code error;
  if (std::filesystem::equivalent(in, out, error) && !error) {
    throw Failure(ExitCode::kUsage, "OUT '" + out + "' is the same file as IN");
  }
  nlohmann::json description;
  {
    Progress progress(options.quiet);
    progress.phase("converting");
    const Model model = load_model(in, options.load);
    description = describe(model.get());
    require(volup_model_save(model.get(), out.c_str(), nullptr), About::kModelFile);
  }
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(out, error));
  if (options.json) {
    const nlohmann::json result = {{"command", "convert"},
                                   {"input", in},
                                   {"output", out},
                                   {"bytes", bytes},
                                   {"model", description}};
    std::cout << result.dump() << '\n';
  } else {
    std::cout << "wrote " << out << ": " << description.value("type", "?") << ", "
              << grouped(description.value("parameters", std::int64_t{0})) << " parameters, "
              << grouped(bytes) << " bytes\n";
  }
  return ExitCode::kGood;
}

}  // namespace volup::tool
