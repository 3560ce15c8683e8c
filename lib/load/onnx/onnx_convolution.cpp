// SPDX-License-Identifier: Apache-2.0
//
// Resolves ConvTranspose's attributes; see onnx_convolution.h.
#include "load/onnx/onnx_convolution.h"

#include <algorithm>

#include "load/module_support.h"

namespace volup::onnx_file {
namespace {

using module::list_text;
using module::to_text;

constexpr int64_t kSizeLimit = int64_t{1} << 31;

class Resolver {
 public:
  Resolver(const onnx::NodeProto& node, const std::vector<int64_t>& weight,
           const std::vector<int64_t>& input)
      : node_(node), weight_(weight), input_(input) {}

  ResolvedGeometry run() {
    volup_geometry& g = out_.geometry;
    g.groups = integer_attribute(node_, "group", 1);
    if (g.groups < 1 || g.groups >= kSizeLimit) {
      fault("group: got " + to_text(g.groups) + ", need 1 or more");
      return out_;
    }
    g.in_channels = weight_[0];
    g.out_channels = weight_[1];
    if (!module::multiply_into(&g.out_channels, g.groups)) {
      fault("weight: got " + list_text(weight_) + ", need fewer channels");
    }
    read_axes("strides", 1, 1, g.stride);
    read_axes("dilations", 1, 1, g.dilation);
    read_axes("output_padding", 0, 0, g.output_padding);
    std::copy(weight_.begin() + 2, weight_.end(), g.kernel);
    const std::vector<int64_t> kernel = integers("kernel_shape");
    if (!kernel.empty() && !std::equal(kernel.begin(), kernel.end(), g.kernel, g.kernel + 3)) {
      fault("kernel_shape: got " + list_text(kernel) + ", need that of the weight " +
            list_text(weight_));
    }
    if (out_.fault.empty()) read_padding();
    return out_;
  }

 private:
  void fault(const std::string& text) {
    if (out_.fault.empty()) out_.fault = text;
  }

  std::vector<int64_t> integers(const char* name) const {
    const onnx::AttributeProto* const attribute = find_attribute(node_, name);
    if (!attribute) return {};
    return {attribute->ints().begin(), attribute->ints().end()};
  }

  void read_axes(const char* name, int64_t otherwise, int64_t least, int64_t (&axes)[3]) {
    std::fill(axes, axes + 3, otherwise);
    const std::vector<int64_t> values = integers(name);
    if (values.empty()) return;
    const bool fits = values.size() == 3 && std::all_of(values.begin(), values.end(), [&](auto v) {
                        return v >= least && v < kSizeLimit;
                      });
    if (!fits) {
      fault(std::string(name) + ": got " + list_text(values) + ", need three of " + to_text(least) +
            " or more");
      return;
    }
    std::copy(values.begin(), values.end(), axes);
  }

  void read_padding() {
    volup_geometry& g = out_.geometry;
    const onnx::AttributeProto* const attribute = find_attribute(node_, "auto_pad");
    const std::string mode = attribute && !attribute->s().empty() ? attribute->s() : "NOTSET";
    const bool upper = mode == "SAME_UPPER", lower = mode == "SAME_LOWER";
    if (!upper && !lower && mode != "NOTSET" && mode != "VALID") {
      fault("auto_pad: got " + module::quoted(mode) +
            ", need NOTSET, VALID, SAME_UPPER or SAME_LOWER");
      return;
    }
    const std::vector<int64_t> sizes = integers("output_shape");
    const std::vector<int64_t> pads = integers("pads");
    if (mode != "NOTSET" && std::any_of(pads.begin(), pads.end(), [](auto pad) { return pad; })) {
      fault("pads: got " + list_text(pads) + " beside auto_pad " + mode + ", need one of them");
      return;
    }
    if (!sizes.empty()) {
      read_output_shape(sizes, upper);
      return;
    }
    if (upper || lower) {
      for (size_t i = 0; i < 3; ++i) cut(i, reach(i) + g.output_padding[i] - g.stride[i], upper);
      return;
    }
    if (mode == "VALID" || pads.empty()) return;
    const bool fits = pads.size() == 6 && std::all_of(pads.begin(), pads.end(), [](int64_t pad) {
                        return pad >= 0 && pad < kSizeLimit;
                      });
    if (!fits) {
      fault("pads: got " + list_text(pads) + ", need six of 0 or more");
      return;
    }
    std::copy(pads.begin(), pads.begin() + 3, g.padding_begin);
    std::copy(pads.begin() + 3, pads.end(), g.padding_end);
  }

  // The size of the output at one size of the input: what is cut follows.
  void read_output_shape(const std::vector<int64_t>& sizes, bool upper) {
    volup_geometry& g = out_.geometry;
    const bool input_known =
        input_.size() == 5 && std::all_of(input_.begin() + 2, input_.end(), [](int64_t size) {
          return size > 0 && size < kSizeLimit;
        });
    if (sizes.size() != 3 || !input_known) {
      fault("output_shape: got " + list_text(sizes) + " for an input of " + list_text(input_) +
            ", need three sizes, and an input whose D, H and W the file says");
      return;
    }
    for (size_t i = 0; i < 3; ++i) {
      if (sizes[i] < 1 || sizes[i] >= kSizeLimit) {
        fault("output_shape: got " + list_text(sizes) + ", need sizes of 1 or more");
        return;
      }
      const int64_t whole = (input_[i + 2] - 1) * g.stride[i] + reach(i) + g.output_padding[i];
      // A larger output than the taps reach has more at its end.
      g.output_padding[i] += std::max<int64_t>(sizes[i] - whole, 0);
      cut(i, std::max<int64_t>(whole - sizes[i], 0), upper);
    }
    out_.notes.push_back("output_shape " + list_text(sizes) +
                         " became the padding that gives it for an input of " + list_text(input_));
  }

  int64_t reach(size_t axis) const {
    const volup_geometry& g = out_.geometry;
    return (g.kernel[axis] - 1) * g.dilation[axis] + 1;
  }

  // Distributes what is to be cut: the odd voxel at the end for SAME_UPPER, else at the beginning.
  void cut(size_t axis, int64_t total, bool upper) {
    if (total < 0) {
      fault("padding: got " + to_text(total) + " in all on axis " + "DHW"[axis] +
            ", need 0 or more: say output_padding instead");
      return;
    }
    const int64_t smaller = total / 2;
    out_.geometry.padding_begin[axis] = upper ? smaller : total - smaller;
    out_.geometry.padding_end[axis] = upper ? total - smaller : smaller;
  }

  const onnx::NodeProto& node_;
  const std::vector<int64_t>& weight_;
  const std::vector<int64_t>& input_;
  ResolvedGeometry out_;
};

}  // namespace

const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, const char* name) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

int64_t integer_attribute(const onnx::NodeProto& node, const char* name, int64_t otherwise) {
  const onnx::AttributeProto* const attribute = find_attribute(node, name);
  return attribute ? attribute->i() : otherwise;
}

ResolvedGeometry resolve_geometry(const onnx::NodeProto& node, const std::vector<int64_t>& weight,
                                  const std::vector<int64_t>& input) {
  return Resolver(node, weight, input).run();
}

}  // namespace volup::onnx_file
