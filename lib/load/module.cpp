// SPDX-License-Identifier: Apache-2.0
#include "load/module.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "log.h"

namespace volup {
namespace {

std::string default_directory() {
  if (const char* wanted = std::getenv("VOLUP_MODULE_DIR"); wanted != nullptr && *wanted != '\0') {
    return wanted;
  }
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&default_directory), &info) == 0 ||
      info.dli_fname == nullptr) {
    return "volup";
  }
  const std::string library = info.dli_fname;
  const size_t slash = library.rfind('/');
  return slash == std::string::npos ? "volup" : library.substr(0, slash) + "/volup";
}

struct OpenModules {
  std::mutex mutex;
  std::map<std::string, volup_module> by_path;
};

OpenModules& open_modules() {
  static OpenModules* const modules = new OpenModules;
  return *modules;
}

}  // namespace

Result<volup_module> open_module(const FileKind& kind, const std::string& directory) {
  const std::string path =
      cat(directory.empty() ? default_directory() : directory, "/", kind.module);
  OpenModules& modules = open_modules();
  const std::lock_guard lock(modules.mutex);
  if (const auto found = modules.by_path.find(path); found != modules.by_path.end()) {
    return found->second;
  }
  // Local scope: nothing of HDF5 or libtorch may meet the program's own copies.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    if (access(path.c_str(), F_OK) != 0) {
      return unavailable(kind.name, " files need the loader module ", path,
                         ", which is not there: install it, or set VOLUP_MODULE_DIR to the "
                         "directory that holds it");
    }
    return unavailable(kind.name, " files need the loader module ", path,
                       ", which cannot be opened: ", reason == nullptr ? "no reason" : reason);
  }
  const auto open = reinterpret_cast<volup_module_open_fn>(dlsym(handle, VOLUP_MODULE_OPEN_SYMBOL));
  volup_module module = {};
  if (open == nullptr || open(&module) != VOLUP_STATUS_OK) {
    dlclose(handle);
    return unavailable("loader module ", path, ": got one without a working ",
                       VOLUP_MODULE_OPEN_SYMBOL, ", need one of this version of volup");
  }
  log(VOLUP_LOG_DEBUG, "opened ", path, " (", module.library, ")");
  modules.by_path[path] = module;
  return module;
}

}  // namespace volup
