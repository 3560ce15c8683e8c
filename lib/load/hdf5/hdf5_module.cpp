// SPDX-License-Identifier: Apache-2.0
//
// The HDF5 loader module's boundary: the one exported symbol, the mutex, the guard. HDF5 as
// distributions build it may be in use by one thread at a time; the mutex sees to it for all that
// goes through volup. It cannot see calls that the program itself makes to the same libhdf5.
#include <mutex>
#include <string>

#include "load/hdf5/foreign_reader.h"
#include "load/hdf5/hdf5_access.h"
#include "load/hdf5/hdf5_image.h"
#include "load/hdf5/hdf5_reader.h"
#include "load/hdf5/hdf5_writer.h"
#include "load/module_support.h"

namespace {

using volup::module::guarded;
using volup::module::Refusal;

std::mutex& hdf5_mutex() {
  static std::mutex* const mutex = new std::mutex;  // never destroyed: exit may race with a load
  return *mutex;
}

volup::module::LoadedModel read_file(const volup_module_source& source,
                                     const volup_load_options& options) {
  using namespace volup::hdf5;
  BorrowedImage image = {source.data};
  const Handle file = open_image(&image, source.size);
  const Handle group = need(H5Gopen2(file.get(), "/", H5P_DEFAULT), "the root group");
  const Place root{group.get(), "/"};
  return is_volup_model(root) ? read_volup_model(root, source.size)
                              : read_foreign(root, source.size, options);
}

int32_t load(const volup_module_source* source, const volup_load_options* options,
             volup_module_model* model, volup_module_text* error) {
  return guarded(error, [&] {
    const std::lock_guard<std::mutex> lock(hdf5_mutex());
    const volup::hdf5::SilentErrors silent;
    *model = volup::module::to_abi(read_file(*source, *options));
  });
}

int32_t save(const volup_module_model* model, const char* path, volup_module_text* error) {
  return guarded(error, [&] {
    if (!model || !model->weight || !path || !*path) {
      throw Refusal(VOLUP_STATUS_INVALID_ARGUMENT, "save: got no weights or no path");
    }
    const std::lock_guard<std::mutex> lock(hdf5_mutex());
    const volup::hdf5::SilentErrors silent;
    volup::hdf5::write_model(*model, path);
  });
}

const char* library_text() {
  static const std::string* const text = [] {
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    using volup::module::to_text;
    return new std::string("HDF5 " + to_text(major) + "." + to_text(minor) + "." +
                           to_text(release));
  }();
  return text->c_str();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int32_t volup_module_open_v2(
    volup_module* module) {
  return guarded(nullptr, [&] {
    const std::lock_guard<std::mutex> lock(hdf5_mutex());
    module->load = load;
    module->save = save;
    module->release = volup::module::free_model;
    module->free_text = volup::module::free_text;
    module->library = library_text();
  });
}
