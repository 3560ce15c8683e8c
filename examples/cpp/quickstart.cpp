// SPDX-License-Identifier: Apache-2.0
//
// The C++ example of README.md: what follows this comment is there word for word, and a test
// compares the two. It expects a logsumexp_swish_clamp model of 3 input channels in model.h5.
#include <cstdio>
#include <vector>
#include <volup/volup.hpp>

int main() try {
  const auto model = volup::Model::load("model.h5");  // HDF5 or TorchScript
  const volup::Shape in = {1, 3, 1, 1, 2};            // N, C, D, H, W
  const volup::Shape out = model.output_shape(in);    // 1, 1, 1, 1, 3
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};    // dense, channels before positions
  std::vector<float> y(volup::element_count(out));    // filled by run
  volup::Session session(model);                      // on a GPU if there is one
  session.run(x.data(), in, nullptr, y.data(), out);
  std::printf("%g %g %g\n", y[0], y[1], y[2]);
} catch (const volup::Error& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
