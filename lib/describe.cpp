// SPDX-License-Identifier: Apache-2.0
#include "describe.h"

#include <nlohmann/json.hpp>

namespace volup {
namespace {

using Json = nlohmann::ordered_json;

// Names in files are bytes of any kind; JSON is UTF-8, so what is not becomes U+FFFD.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const ConvTranspose3d& g) {
  return {{"in_channels", g.in_channels}, {"out_channels", g.out_channels},
          {"groups", g.groups},           {"kernel", g.kernel},
          {"stride", g.stride},           {"padding_begin", g.padding_begin},
          {"padding_end", g.padding_end}, {"output_padding", g.output_padding},
          {"dilation", g.dilation}};
}

Json to_json(const Epilogue& e) {
  Json json = {{"kind", name_of(e.kind)}};
  if (e.kind == EpilogueKind::kLogsumexpSwishClamp || e.kind == EpilogueKind::kAddHardswish) {
    json["shift"] = e.shift;
    json["divisor"] = e.divisor;
    if (e.kind == EpilogueKind::kLogsumexpSwishClamp) json["subtract"] = e.subtract;
    json["clamp_min"] = e.clamp_min;
    json["clamp_max"] = e.clamp_max;
  }
  return json;
}

Json to_json(const ModelSource& s) {
  Json json = {{"kind", s.kind},         {"path", s.path},       {"bytes", s.bytes},
               {"producer", s.producer}, {"library", s.library}, {"weight_dtype", s.weight_dtype},
               {"sha256", s.sha256}};
  if (s.origin_kind.empty()) {
    json["origin"] = nullptr;
  } else {
    json["origin"] = {
        {"kind", s.origin_kind}, {"producer", s.origin_producer}, {"sha256", s.origin_sha256}};
  }
  return json;
}

}  // namespace

std::string describe(const Model& model) {
  const ConvTranspose3d& g = model.geometry();
  const bool has_bias = model.bias() != nullptr;
  return dump({{"type", name_of(model.epilogue().kind)},
               {"geometry", to_json(g)},
               {"epilogue", to_json(model.epilogue())},
               {"bias", has_bias},
               {"parameters", g.weight_count() + (has_bias ? g.out_channels : 0)},
               {"source", to_json(model.source())},
               {"unused", model.source().unused},
               {"notes", model.source().notes}});
}

std::string describe(const SessionDescription& s) {
  Json refused = Json::array();
  for (const KernelRefusal& refusal : s.choice.refused) {
    refused.push_back({{"kernel", refusal.kernel}, {"why", refusal.why}});
  }
  return dump(
      {{"problem", print(s.problem)},
       {"device",
        {{"type", name_of(s.device.type)}, {"index", s.device.index}, {"name", s.device.name}}},
       {"device_note", s.device_note},
       {"kernel", s.choice.kernel->name()},
       {"tile", s.choice.kernel->choose(s.problem, s.device)},
       {"workspace_bytes", s.workspace_bytes},
       {"packed_bytes", s.packed_bytes},
       {"refused", refused}});
}

}  // namespace volup
