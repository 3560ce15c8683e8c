// SPDX-License-Identifier: Apache-2.0
//
// What loading a model costs, against reading the same file and taking its CRC-32 and SHA-256:
// time, memory, and the cost of opening the libraries that a kind of file needs. Each file is
// measured in a process of its own, so that neither memory nor open libraries are another's.
//
//   make_files.py FOLDER path/to/volup
//   load_bench FOLDER [--rounds N] [--out FILE.json]
#include <malloc.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "load/module_memory.h"
#include "load/sha256.h"
#include "volup/volup.hpp"

namespace volup::bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

double milliseconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Of all the process' threads: what other processes do to the clock does not count here.
double cpu_milliseconds_of(const std::function<void()>& body) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
  };
  const double start = now();
  body();
  return now() - start;
}

struct Series {
  std::vector<double> values;
  void add(double value) { values.push_back(value); }
  double minimum() const { return *std::min_element(values.begin(), values.end()); }
  double median() const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const size_t middle = sorted.size() / 2;
    return sorted.size() % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }
  Json json() const { return {{"median", median()}, {"min", minimum()}}; }
};

// ---- What is compared with ---------------------------------------------------------------------

// Two programs that end with the bytes at hand and both sums known. lean: memory in large pages,
// each piece hashed while the caches hold it, as volup itself reads. plain: malloc, one call to
// read, each sum over all of the bytes afterwards.
struct Baseline {
  Series lean, lean_cpu, plain, read, crc32, sha256;
};

void read_piece(std::FILE* file, std::byte* at, size_t size) {
  if (std::fread(at, 1, size, file) != size) throw std::runtime_error("cannot read the file");
}

struct OpenFile {
  explicit OpenFile(const fs::path& path) : file(std::fopen(path.c_str(), "rb")) {
    if (!file) throw std::runtime_error("cannot open " + path.string());
    std::setvbuf(file, nullptr, _IONBF, 0);
  }
  ~OpenFile() { std::fclose(file); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  std::FILE* file;
};

uint32_t crc_of(const std::byte* bytes, size_t size) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes), size));
}

void measure_baseline(const fs::path& path, Baseline* baseline) {
  const size_t size = fs::file_size(path);
  uint32_t lean_crc = 0, plain_crc = 0;
  std::string lean_sha, plain_sha;
  const auto lean = [&] {
    constexpr size_t kPiece = size_t{1} << 18;
    const auto memory = module::allocate_block(size);
    auto* const bytes = static_cast<std::byte*>(memory.get());
    const OpenFile open(path);
    Sha256 sha;
    for (size_t done = 0; done < size; done += kPiece) {
      const size_t count = std::min(kPiece, size - done);
      read_piece(open.file, bytes + done, count);
      sha.update({bytes + done, count});
      lean_crc = static_cast<uint32_t>(
          crc32_z(lean_crc, reinterpret_cast<const Bytef*>(bytes + done), count));
    }
    lean_sha = sha.finish_hex();
  };
  baseline->lean_cpu.add(cpu_milliseconds_of([&] { baseline->lean.add(milliseconds_of(lean)); }));
  baseline->plain.add(milliseconds_of([&] {
    const std::unique_ptr<void, decltype(&std::free)> memory(std::malloc(size), std::free);
    auto* const bytes = static_cast<std::byte*>(memory.get());
    if (!bytes) throw std::bad_alloc();
    baseline->read.add(milliseconds_of([&] { read_piece(OpenFile(path).file, bytes, size); }));
    baseline->crc32.add(milliseconds_of([&] { plain_crc = crc_of(bytes, size); }));
    baseline->sha256.add(milliseconds_of([&] { plain_sha = sha256_hex({bytes, size}); }));
  }));
  if (lean_crc != plain_crc || lean_sha != plain_sha) throw std::runtime_error("the sums differ");
}

// ---- Loading -----------------------------------------------------------------------------------

Model load(const fs::path& path) {
  const auto block = epilogue(VOLUP_EPILOGUE_SOFTMAX_SIGMOID);
  auto shape = geometry();
  for (int axis = 0; axis < 3; ++axis) {
    shape.kernel[axis] = 0;  // the file's
    shape.stride[axis] = 2;
    shape.padding_begin[axis] = shape.padding_end[axis] = shape.output_padding[axis] = 1;
  }
  auto options = defaults<volup_load_options>();
  options.epilogue = &block;
  options.geometry = &shape;
  return Model::load(path.string(), options);
}

// A line "NAME: N kB" of /proc/self/status, in bytes.
int64_t memory_of_process(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(name + ":")) continue;
    const size_t digit = line.find_first_of("0123456789");
    int64_t kilobytes = 0;
    std::from_chars(line.data() + digit, line.data() + line.size(), kilobytes);
    return kilobytes * 1024;
  }
  throw std::runtime_error("no " + name + " in /proc/self/status");
}

// The most memory that body has at once, beyond what the process has before.
int64_t growth_during(const std::function<void()>& body) {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << '5';  // the peak begins here
  const int64_t before = memory_of_process("VmRSS");
  if (memory_of_process("VmHWM") > before + (1 << 20)) {
    throw std::runtime_error("the kernel does not let the peak of memory be set back");
  }
  body();
  return memory_of_process("VmHWM") - before;
}

Json measure(const fs::path& folder, const std::string& name, int rounds) {
  const fs::path large = folder / "large" / name, small = folder / "small" / name;
  const auto load_small = [&small] { load(small); };
  const double first = milliseconds_of(load_small);
  Series again;
  for (int i = 0; i < 5; ++i) again.add(milliseconds_of(load_small));

  int64_t weights = 0;
  Json source;
  const int64_t growth = growth_during([&] {
    const Model model = load(large);
    const auto g = model.geometry();
    weights = g.in_channels * g.out_channels * g.kernel[0] * g.kernel[1] * g.kernel[2] * 4;
    source = Json::parse(model.describe())["source"];
  });

  Baseline baseline;
  Series loads, loads_cpu, ratios;
  measure_baseline(large, &baseline);  // the file is in the page cache from here on
  baseline = {};
  for (int round = 0; round < rounds; ++round) {
    measure_baseline(large, &baseline);
    loads_cpu.add(cpu_milliseconds_of([&] { loads.add(milliseconds_of([&] { load(large); })); }));
    ratios.add(loads.values.back() / baseline.lean.values.back());
  }
  return {{"file", name},
          {"kind", source["kind"]},
          {"file_bytes", fs::file_size(large)},
          {"weight_bytes", weights},
          {"load_ms", loads.json()},
          {"load_cpu_ms", loads_cpu.json()},
          {"baseline_ms", baseline.lean.json()},
          {"baseline_cpu_ms", baseline.lean_cpu.json()},
          {"plain_baseline_ms", baseline.plain.json()},
          {"plain_baseline_parts_ms",
           {{"read", baseline.read.json()},
            {"crc32", baseline.crc32.json()},
            {"sha256", baseline.sha256.json()}}},
          {"load_over_baseline", ratios.json()},
          {"peak_memory_bytes", growth},
          {"peak_memory_over_weights", static_cast<double>(growth) / static_cast<double>(weights)},
          {"first_small_load_ms", first},
          {"later_small_load_ms", again.json()},
          {"opening_ms", first - again.median()}};
}

// ---- Program -----------------------------------------------------------------------------------

// What body returns, computed in a child process.
Json in_a_child(const std::function<Json()>& body) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    close(ends[0]);
    std::string text;
    try {
      text = body().dump();
    } catch (const std::exception& error) {
      text = Json{{"error", error.what()}}.dump();
    }
    for (size_t done = 0; done < text.size();) {
      const ssize_t count = write(ends[1], text.data() + done, text.size() - done);
      if (count <= 0) break;
      done += static_cast<size_t>(count);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (text.empty()) return {{"error", "the process ended with " + std::to_string(status)}};
  return Json::parse(text);
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

int run(int argc, char** argv) {
  std::string folder, out;
  int rounds = 11;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--rounds" && has_value) {
      const std::string value = argv[++i];
      std::from_chars(value.data(), value.data() + value.size(), rounds);
    } else if (word == "--out" && has_value) {
      out = argv[++i];
    } else {
      folder = word;
    }
  }
  if (!fs::is_directory(fs::path(folder) / "large") || rounds < 1) {
    std::fprintf(stderr, "usage: load_bench FOLDER [--rounds N] [--out FILE.json]\n");
    return 2;
  }
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(fs::path(folder) / "large")) {
    names.push_back(file.path().filename());
  }
  std::sort(names.begin(), names.end());
  double load_average = 0;
  getloadavg(&load_average, 1);
  Json report = {{"cpu", processor()},           {"cpus", sysconf(_SC_NPROCESSORS_ONLN)},
                 {"load_average", load_average}, {"zlib", zlibVersion()},
                 {"sha256", best_sha256().name}, {"rounds", rounds},
                 {"files", Json::array()}};
  int failed = 0;
  std::printf("%-20s %9s %9s %7s %7s %8s %9s\n", "file", "load ms", "base ms", "ratio", "cpu",
              "memory", "open ms");
  for (const std::string& name : names) {
    const Json row = in_a_child([&] { return measure(folder, name, rounds); });
    report["files"].push_back(row);
    if (row.contains("error")) {
      std::printf("%-20s %s\n", name.c_str(), row["error"].get<std::string>().c_str());
      failed = 1;
      continue;
    }
    const auto median = [&row](const char* key) { return row[key]["median"].get<double>(); };
    std::printf("%-20s %9.1f %9.1f %7.2f %7.2f %8.2f %9.1f\n", name.c_str(), median("load_ms"),
                median("baseline_ms"), median("load_over_baseline"),
                median("load_cpu_ms") / median("baseline_cpu_ms"),
                row["peak_memory_over_weights"].get<double>(), row["opening_ms"].get<double>());
    std::fflush(stdout);
  }
  if (!out.empty()) std::ofstream(out) << report.dump(2) << '\n';
  return failed;
}

}  // namespace
}  // namespace volup::bench

int main(int argc, char** argv) {
  try {
    return volup::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "load_bench: %s\n", error.what());
    return 1;
  }
}
