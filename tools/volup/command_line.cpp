// SPDX-License-Identifier: Apache-2.0
//
// See command_line.h. CLI11 splits the line; every value is taken as text and parsed here, so that
// each usage error has volup's words and none depends on the locale.
#include "command_line.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <limits>
#include <vector>

#include "failure.h"
#include "load_flags.h"
#include "words.h"

namespace volup::tool {
namespace {

template <typename Value>
struct Word {
  const char* name;
  Value value;
};

constexpr Word<Command> kCommands[] = {{"inspect", Command::kInspect},
                                       {"convert", Command::kConvert},
                                       {"run", Command::kRun},
                                       {"check", Command::kCheck},
                                       {"bench", Command::kBench}};
constexpr Word<volup_precision> kPrecisions[] = {{"fp32", VOLUP_PRECISION_FP32},
                                                 {"tf32", VOLUP_PRECISION_TF32},
                                                 {"bf16", VOLUP_PRECISION_BF16},
                                                 {"fp16", VOLUP_PRECISION_FP16}};
constexpr Word<volup_dtype> kDtypes[] = {
    {"fp32", VOLUP_DTYPE_FP32}, {"fp16", VOLUP_DTYPE_FP16}, {"bf16", VOLUP_DTYPE_BF16}};

template <typename Value, std::size_t kCount>
std::vector<std::string> names_of(const Word<Value> (&words)[kCount]) {
  std::vector<std::string> names;
  for (const auto& word : words) names.emplace_back(word.name);
  return names;
}

[[noreturn]] void usage(const std::string& sentence) { throw Failure(ExitCode::kUsage, sentence); }

template <typename Value, std::size_t kCount>
Value parse_word(const char* option, const std::string& text, const Word<Value> (&words)[kCount]) {
  for (const auto& word : words) {
    if (text == word.name) return word.value;
  }
  usage(std::string(option) + ": unknown word '" + text + "'" + suggestion(text, names_of(words)));
}

std::int32_t parse_count(const char* option, const std::string& text, std::int32_t least) {
  const auto value = parse_integer(text);
  if (!value || *value < least || *value > std::numeric_limits<std::int32_t>::max()) {
    usage(std::string(option) + ": got '" + text + "', need a whole number of at least " +
          std::to_string(least));
  }
  return static_cast<std::int32_t>(*value);
}

void parse_device(const std::string& text, SessionChoice* session) {
  if (text == "auto") return;
  if (text == "cpu") {
    session->device_type = VOLUP_DEVICE_CPU;
    return;
  }
  const std::size_t colon = text.find(':');
  if (text.substr(0, colon) != "cuda") {
    usage("--device: unknown word '" + text + "'" + suggestion(text, {"auto", "cpu", "cuda"}));
  }
  session->device_type = VOLUP_DEVICE_CUDA;
  if (colon == std::string::npos) return;
  const auto index = parse_integer(text.substr(colon + 1));
  if (!index || *index < 0 || *index > std::numeric_limits<std::int32_t>::max()) {
    usage("--device: got '" + text + "', need cuda:N with a device number N, for example cuda:0");
  }
  session->device_index = static_cast<std::int32_t>(*index);
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    usage("--seed: got '" + text + "', need a whole number from 0 to 2^64 - 1");
  }
  return seed;
}

// The text of each option that is more than text, before it is parsed.
struct RawText {
  std::string device, precision, io, threads, shape, iterations, seed;
  LoadTexts load;
};

void add_text(CLI::App* app, const std::string& name, std::string* text, const char* type,
              const std::string& help) {
  app->add_option(name, *text, help)
      ->type_name(type)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void add_common(CLI::App* app, Options* options) {
  app->set_help_flag("-h,--help", "Print this help and an example");
  app->add_flag("-v,--verbose", options->verbosity,
                "Say more on stderr: the library's log; twice: its debug log too");
  app->add_flag("-q,--quiet", options->quiet, "No notes and no progress bar on stderr");
}

void add_json(CLI::App* app, Options* options) {
  app->add_flag("--json", options->json, "Print one JSON object on stdout instead of text");
}

void add_load(CLI::App* app, LoadTexts* load) {
  constexpr const char* kGroup = "How to load MODEL";
  const auto text = [&](const char* name, std::string* to, const char* type, const char* help) {
    add_text(app, name, to, type, help);
    app->get_option(name)->group(kGroup);
  };
  text("--submodule", &load->submodule, "NAME", "Block to pick out of a file that holds more");
  app->add_flag("--ignore-crc", load->ignore_crc, "Load although stored CRC-32 do not fit")
      ->group(kGroup);
  app->add_flag("--allow-nonfinite", load->allow_nonfinite, "Load weights that are NaN or infinite")
      ->group(kGroup);
  text("--type", &load->type, "TYPE",
       "A logsumexp_swish_clamp, B softmax_sigmoid or C add_hardswish: for a file of weights "
       "alone (state_dict, safetensors, flat HDF5); a file that says it is checked");
  text("--stride", &load->stride, "N|DxHxW", "Geometry of such a file: this one is always needed");
  text("--padding", &load->padding, "N|DxHxW", "Default 0; an axis may be BEGIN:END");
  text("--output-padding", &load->output_padding, "N|DxHxW", "Default 0");
  text("--dilation", &load->dilation, "N|DxHxW", "Default 1");
  text("--groups", &load->groups, "N", "Default 1");
  text("--kernel-size", &load->kernel_size, "N|DxHxW",
       "The weight's shape says it; given, it is checked");
  text("--shift", &load->shift, "X", "Constant of types A and C (default 3)");
  text("--divisor", &load->divisor, "X", "Constant of types A and C (default 6)");
  text("--subtract", &load->subtract, "X", "Constant of type A (default: the file's, else 0)");
  text("--clamp-min", &load->clamp_min, "X", "Constant of types A (default -1) and C (0)");
  text("--clamp-max", &load->clamp_max, "X", "Constant of types A (default 1) and C (6)");
}

void add_session(CLI::App* app, Options* options, RawText* raw) {
  add_text(app, "--device", &raw->device, "DEVICE",
           "auto (default: a CUDA device, else the CPU), cpu, cuda or cuda:N");
  add_text(app, "--precision", &raw->precision, "PRECISION",
           "Precision of the products: fp32 (default), tf32, bf16 or fp16");
  add_text(app, "--io", &raw->io, "DTYPE",
           "Element type of the tensors: fp32 (default), fp16, bf16");
  add_text(app, "--kernel", &options->session.kernel, "NAME",
           "Force this kernel; one that refuses the problem is an error");
  add_text(app, "--threads", &raw->threads, "N", "CPU threads (default: every CPU available)");
}

CLI::App* add_command(CLI::App* app, Command command, const char* help, const char* example,
                      Options* options) {
  CLI::App* sub = app->add_subcommand(command_name(command), help);
  sub->callback([options, command] { options->command = command; });
  sub->footer(std::string("Example:\n  ") + example);
  add_common(sub, options);
  add_json(sub, options);
  return sub;
}

constexpr const char* kDatasetHelp =
    "FILE:DATASET of an HDF5 file. A path that exists as a whole is the file; FILE: takes the "
    "default dataset";

constexpr const char* kModelHelp =
    "Model: volup's HDF5, TorchScript, ONNX, Keras, or weights alone (state_dict, safetensors, "
    "HDF5)";

void add_commands(CLI::App* app, Options* options, RawText* raw) {
  CLI::App* inspect = add_command(app, Command::kInspect, "Say what a model file holds",
                                  "volup inspect model.pt", options);
  inspect->add_option("FILE", options->model, kModelHelp)->required();
  add_load(inspect, &raw->load);

  CLI::App* convert = add_command(app, Command::kConvert, "Write a model as volup's HDF5",
                                  "volup convert model.pt model.h5", options);
  convert->add_option("IN", options->model, kModelHelp)->required();
  add_load(convert, &raw->load);
  convert->add_option("OUT", options->second, "HDF5 file to write; replaced if it exists")
      ->required();

  CLI::App* run = add_command(
      app, Command::kRun, "Compute a model's output for an input tensor",
      "volup run model.h5 --input data.h5:x --output result.h5:y --device cpu", options);
  run->add_option("MODEL", options->model, kModelHelp)->required();
  add_load(run, &raw->load);
  add_text(run, "--input", &options->input, "FILE[:DATASET]",
           std::string("Input [N,C,D,H,W], default dataset x: ") + kDatasetHelp);
  add_text(run, "--add", &options->add, "FILE[:DATASET]",
           "Tensor that add_hardswish adds, default dataset add");
  add_text(run, "--output", &options->output, "FILE[:DATASET]",
           "Where the result goes as float32, default dataset y; the file's other datasets stay");
  add_session(run, options, raw);

  CLI::App* check = add_command(app, Command::kCheck,
                                "Compare a model's output with the expected one in an HDF5 file",
                                "volup check model.h5 io.h5 --device cpu", options);
  check->add_option("MODEL", options->model, kModelHelp)->required();
  add_load(check, &raw->load);
  check
      ->add_option("FILE", options->second,
                   "HDF5 file with datasets x, y, and add if the model takes it; its attributes "
                   "tolerance and rtol are the limits")
      ->required();
  add_session(check, options, raw);

  CLI::App* bench = add_command(
      app, Command::kBench, "Time a model, or a problem with seeded weights",
      "volup bench model.h5 --shape 16,32,16,32,32\n"
      "  volup bench 'C n128 ci32 co64 i16x16x16 k3 s2 p1 op1' --device cuda --precision tf32",
      options);
  bench->add_option("MODEL", options->model, "Model with --shape, else a problem string")
      ->required();
  add_load(bench, &raw->load);
  add_text(bench, "--shape", &raw->shape, "N,C,D,H,W", "Input shape; needed with a model file");
  add_text(bench, "--iterations", &raw->iterations, "N",
           "Timed runs in each series (default: the library's)");
  add_text(bench, "--seed", &raw->seed, "N", "Seed of a problem's weights (default: 1)");
  add_session(bench, options, raw);
}

std::string version_text() {
  const std::int32_t loaded = volup_version();
  return "volup " + std::to_string(loaded / 10000) + "." + std::to_string(loaded / 100 % 100) +
         "." + std::to_string(loaded % 100) + "\n";
}

void finish(const RawText& raw, Options* options) {
  SessionChoice& session = options->session;
  options->load = parse_load_texts(raw.load);
  if (!raw.device.empty()) parse_device(raw.device, &session);
  if (!raw.precision.empty()) {
    session.precision = parse_word("--precision", raw.precision, kPrecisions);
  }
  if (!raw.io.empty()) session.io = parse_word("--io", raw.io, kDtypes);
  if (!raw.threads.empty()) session.threads = parse_count("--threads", raw.threads, 1);
  if (!raw.iterations.empty()) options->iterations = parse_count("--iterations", raw.iterations, 1);
  if (!raw.seed.empty()) options->seed = parse_seed(raw.seed);
  if (!raw.shape.empty()) {
    options->shape = parse_shape(raw.shape);
    if (!options->shape) {
      usage("--shape: got '" + raw.shape +
            "', need five sizes N,C,D,H,W, for example 16,32,16,32,32");
    }
  }
  if (options->command == Command::kRun) {
    if (options->input.empty()) usage("--input is missing: need FILE[:DATASET] of the input");
    if (options->output.empty()) usage("--output is missing: need FILE[:DATASET] for the result");
  }
  std::error_code ignored;
  if (options->command == Command::kBench && !options->shape &&
      std::filesystem::exists(options->model, ignored)) {
    usage("--shape is missing: '" + options->model + "' is a file, need --shape N,C,D,H,W with it");
  }
  if (options->command == Command::kBench && !options->shape && !options->load.is_default()) {
    usage("--type, --stride and the like are for model files: a problem string says them itself");
  }
}

// Words that the chosen command would have understood.
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

[[noreturn]] void fail_on_extra(const CLI::App& app, const CLI::App& chosen) {
  std::string word = "?";
  for (const std::string& left : app.remaining(true)) {
    if (left == "--") continue;
    word = left;
    break;
  }
  if (word.starts_with("-")) {
    const std::string name = word.substr(0, word.find('='));
    const std::string near = nearest(name, option_names(chosen));
    usage("unknown option '" + name + "'" +
          (near.empty() ? "; see " + chosen.get_display_name() + " --help"
                        : "; did you mean '" + near + "'?"));
  }
  std::string sentence = "unexpected word '" + word + "'";
  const std::string near = nearest("--" + word, option_names(chosen));
  if (!near.empty()) sentence += "; did you mean '" + near + "'?";
  usage(sentence);
}

// CLI11 would report a mistyped command as a missing one.
void require_known_command(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "-h" || word == "--help" || word == "-V" || word == "--version") return;
    if (word.starts_with("-")) continue;
    parse_word("command", word, kCommands);
    return;
  }
}

}  // namespace

const char* command_name(Command command) {
  for (const auto& word : kCommands) {
    if (word.value == command) return word.name;
  }
  return "";
}

const char* precision_name(volup_precision precision) {
  for (const auto& word : kPrecisions) {
    if (word.value == precision) return word.name;
  }
  return "";
}

const char* dtype_name(volup_dtype dtype) {
  for (const auto& word : kDtypes) {
    if (word.value == dtype) return word.name;
  }
  return "";
}

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  RawText raw;
  CLI::App app{"Inference of fused blocks built on a 3-D transposed convolution.", "volup"};
  app.footer(
      "Exit: 0 good, 1 check failed, 2 usage, 3 unsupported model or file, 4 unreadable input,\n"
      "5 device. Results go to stdout, the rest to stderr.\n"
      "Example:\n  volup convert model.pt model.h5 && volup check model.h5 io.h5");
  app.require_subcommand(1);
  add_common(&app, &line.options);
  app.set_version_flag("-V,--version", version_text, "Print the library's version");
  add_commands(&app, &line.options, &raw);

  require_known_command(argc, argv);
  if (argc < 2) usage("a command is missing; need one of " + join(names_of(kCommands), ", "));
  const auto chosen = [&app]() -> const CLI::App& {
    const auto parsed = app.get_subcommands();
    return parsed.empty() ? app : *parsed.front();
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.answer = app.help();
    return line;
  } catch (const CLI::CallForVersion&) {
    line.answer = version_text();
    return line;
  } catch (const CLI::ExtrasError&) {
    fail_on_extra(app, chosen());
  } catch (const CLI::ParseError& error) {
    // A wrong word often shows as a missing one; the wrong word is the better thing to name.
    const auto left = app.remaining(true);
    if (!left.empty() && left.front().starts_with("-")) fail_on_extra(app, chosen());
    usage(one_sentence(std::string(error.what()) + "; see " + app.get_name() +
                       (&chosen() == &app ? "" : " " + chosen().get_name()) + " --help"));
  }
  finish(raw, &line.options);
  return line;
}

}  // namespace volup::tool
