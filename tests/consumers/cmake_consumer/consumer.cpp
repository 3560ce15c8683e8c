// SPDX-License-Identifier: Apache-2.0
//
// consumer FILE.h5: makes a model, saves it, loads it again and computes, through the C++ API.
// consumer --without-hdf5: the same without files, for a volup built without its HDF5 module.
#include <cstdio>
#include <string>
#include <vector>
#include <volup/volup.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string file = argv[1];
  try {
    volup_geometry geometry = volup::geometry();
    geometry.in_channels = geometry.out_channels = 1;
    for (int axis = 0; axis < 3; ++axis) geometry.stride[axis] = 2;
    volup::Model model(geometry, volup::epilogue(VOLUP_EPILOGUE_IDENTITY), {3.0f}, {0.5f});
    if (file != "--without-hdf5") {
      model.save(file);
      model = volup::Model::load(file);
    }
    auto options = volup::defaults<volup_session_options>();
    options.device_type = VOLUP_DEVICE_CPU;
    volup::Session session(model, options);
    const volup::Shape input = {1, 1, 1, 1, 2};
    const volup::Shape output = model.output_shape(input);
    const std::vector<float> x = {1.0f, 2.0f};
    std::vector<float> out(static_cast<std::size_t>(volup::element_count(output)));
    session.run(x.data(), input, nullptr, out.data(), output);
    // Stride 2, kernel 1: the middle position is reached by no tap and holds the bias alone.
    const bool right = out == std::vector<float>{3.5f, 0.5f, 6.5f};
    std::printf("volup %d: %g %g %g\n", volup::version(), out[0], out[1], out[2]);
    return right ? 0 : 1;
  } catch (const volup::Error& error) {
    std::fprintf(stderr, "%s: %s\n", volup_status_name(error.status()), error.what());
    return 1;
  }
}
