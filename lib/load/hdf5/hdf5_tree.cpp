// SPDX-License-Identifier: Apache-2.0
//
// Walks the groups of an HDF5 file; see hdf5_tree.h.
#include "load/hdf5/hdf5_tree.h"

#include <cstring>
#include <set>
#include <utility>

#include "load/module_support.h"

namespace volup::hdf5 {
namespace {

using module::quoted;
using module::refuse_unsupported;
using module::to_text;

constexpr size_t kDepthLimit = 64;
constexpr size_t kLinkLimit = 100'000;

struct Link {
  std::string name;
  bool is_hard;
};

std::vector<Link> links_of(hid_t group, const std::string& path) {
  std::vector<Link> links;
  const auto keep = [](hid_t, const char* name, const H5L_info_t* info, void* out) -> herr_t {
    auto* list = static_cast<std::vector<Link>*>(out);
    list->push_back({name, info->type == H5L_TYPE_HARD});
    return list->size() > kLinkLimit ? 1 : 0;
  };
  hsize_t index = 0;
  need_ok(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &index, keep, &links), path.c_str());
  return links;
}

// What tells one group of a file from another.
std::string identity_of(hid_t object, const std::string& path) {
#if H5_VERSION_GE(1, 12, 0)
  H5O_info2_t info;
  need_ok(H5Oget_info3(object, &info, H5O_INFO_BASIC), path.c_str());
  return std::string(reinterpret_cast<const char*>(&info.token), sizeof(info.token));
#else
  H5O_info_t info;
  need_ok(H5Oget_info2(object, &info, H5O_INFO_BASIC), path.c_str());
  return std::string(reinterpret_cast<const char*>(&info.addr), sizeof(info.addr));
#endif
}

class Walk {
 public:
  Tree take() { return std::move(tree_); }

  void visit(hid_t group, const std::string& path, size_t depth) {
    if (depth > kDepthLimit) {
      refuse_unsupported("groups: got more than " + to_text(kDepthLimit) +
                         " inside each other, need fewer (" + quoted(path) + ")");
    }
    if (!seen_.insert(identity_of(group, path)).second) {
      refuse_unsupported(
          "group: got one that is in the file twice or inside itself, need a tree (" +
          quoted(path) + ")");
    }
    for (const Link& link : links_of(group, path)) {
      if (++links_ > kLinkLimit) {
        refuse_unsupported("links: got more than " + to_text(kLinkLimit) + ", need fewer");
      }
      add(group, path.empty() ? link.name : path + "/" + link.name, link, depth);
    }
  }

 private:
  void add(hid_t group, const std::string& path, const Link& link, size_t depth) {
    if (!link.is_hard) {
      tree_.others.push_back(path);
      return;
    }
    const Handle object = need(H5Oopen(group, link.name.c_str(), H5P_DEFAULT), path.c_str());
    switch (H5Iget_type(object.get())) {
      case H5I_GROUP:
        visit(object.get(), path, depth + 1);
        break;
      case H5I_DATASET: {
        const Handle space = need(H5Dget_space(object.get()), path.c_str());
        const Handle type = need(H5Dget_type(object.get()), path.c_str());
        tree_.datasets.push_back(
            {path, shape_of(space.get()), H5Tget_class(type.get()) == H5T_FLOAT});
        break;
      }
      default:
        tree_.others.push_back(path);
    }
  }

  Tree tree_;
  std::set<std::string> seen_;
  size_t links_ = 0;
};

}  // namespace

Tree read_tree(const Place& root) {
  Walk walk;
  walk.visit(root.id, "", 0);
  return walk.take();
}

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (!module::multiply_into(&count, size)) return INT64_MAX;
  }
  return count;
}

std::string describe(const std::string& name, const std::vector<int64_t>& shape) {
  return quoted(name).substr(1, quoted(name).size() - 2) + " " + module::list_text(shape);
}

}  // namespace volup::hdf5
