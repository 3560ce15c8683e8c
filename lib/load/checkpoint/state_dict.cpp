// SPDX-License-Identifier: Apache-2.0
//
// See state_dict.h. Layout of the archive: data.pkl, data/<key> for each storage, version,
// byteorder.
#include "load/checkpoint/state_dict.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "load/archive/folder.h"
#include "load/archive/pickle_reader.h"
#include "load/module_support.h"

namespace volup::checkpoint {
namespace {

using archive::Folder;
using archive::Pickle;
using archive::PickleValue;
using archive::ZipArchive;
using archive::ZipEntry;
using Kind = PickleValue::Kind;
using module::quoted;
using module::refuse_unreadable;
using module::refuse_unsupported;
using module::to_text;

constexpr uint64_t kPickleLimit = uint64_t{64} << 20;
constexpr int kRankLimit = 16;

[[noreturn]] void damaged(const std::string& text) {
  refuse_unreadable("damaged PyTorch archive: " + text);
}

// What a name of the pickle stands for.
enum class Meaning { kUnknown, kHarmless, kOrderedDict, kTensor, kParameter, kSpecialTensor };

// "module name" as the pickle has them.
Meaning meaning_of(std::string_view name) {
  struct Row {
    std::string_view name;
    Meaning meaning;
  };
  static constexpr Row kRows[] = {
      {"collections OrderedDict", Meaning::kOrderedDict},
      {"torch._utils _rebuild_tensor_v2", Meaning::kTensor},
      {"torch._utils _rebuild_parameter", Meaning::kParameter},
      {"torch._utils _rebuild_parameter_with_state", Meaning::kParameter},
      {"torch._utils _rebuild_tensor_v3", Meaning::kSpecialTensor},
      {"torch._utils _rebuild_qtensor", Meaning::kSpecialTensor},
      {"torch._utils _rebuild_sparse_tensor", Meaning::kSpecialTensor},
      {"torch._utils _rebuild_nested_tensor", Meaning::kSpecialTensor},
      {"torch._utils _rebuild_meta_tensor_no_storage", Meaning::kSpecialTensor},
      {"torch._tensor _rebuild_from_type_v2", Meaning::kSpecialTensor},
      {"torch._tensor Tensor", Meaning::kHarmless},
      {"torch.nn.parameter Parameter", Meaning::kHarmless},
      {"torch.nn.parameter Buffer", Meaning::kHarmless},
      {"torch.storage UntypedStorage", Meaning::kHarmless},
      {"torch.storage TypedStorage", Meaning::kHarmless},
      {"torch.serialization _get_layout", Meaning::kHarmless},
      {"torch Size", Meaning::kHarmless},
      {"torch device", Meaning::kHarmless},
      {"collections defaultdict", Meaning::kHarmless},
      {"collections Counter", Meaning::kHarmless},
      {"builtins set", Meaning::kHarmless},
      {"builtins dict", Meaning::kHarmless},
      {"builtins list", Meaning::kHarmless},
      {"builtins int", Meaning::kHarmless},
      {"builtins float", Meaning::kHarmless},
      {"builtins complex", Meaning::kHarmless},
      {"builtins bytearray", Meaning::kHarmless},
      {"__builtin__ set", Meaning::kHarmless},
      {"__builtin__ dict", Meaning::kHarmless},
      {"__builtin__ list", Meaning::kHarmless},
      {"__builtin__ complex", Meaning::kHarmless},
      {"__builtin__ bytearray", Meaning::kHarmless},
      {"_codecs encode", Meaning::kHarmless},
      {"argparse Namespace", Meaning::kHarmless},
      {"pathlib Path", Meaning::kHarmless},
      {"pathlib PosixPath", Meaning::kHarmless},
      {"pathlib PurePosixPath", Meaning::kHarmless},
      {"numpy dtype", Meaning::kHarmless},
      {"numpy ndarray", Meaning::kHarmless},
      {"numpy.core.multiarray scalar", Meaning::kHarmless},
      {"numpy.core.multiarray _reconstruct", Meaning::kHarmless},
      {"numpy._core.multiarray scalar", Meaning::kHarmless},
      {"numpy._core.multiarray _reconstruct", Meaning::kHarmless},
  };
  const auto* found = std::find_if(std::begin(kRows), std::end(kRows),
                                   [name](const Row& row) { return row.name == name; });
  if (found != std::end(kRows)) return found->meaning;
  // torch.float32 and torch.FloatStorage: types, which hold nothing.
  static constexpr std::string_view kTypes[] = {"float32",
                                                "float64",
                                                "float16",
                                                "bfloat16",
                                                "int8",
                                                "int16",
                                                "int32",
                                                "int64",
                                                "uint8",
                                                "uint16",
                                                "uint32",
                                                "uint64",
                                                "bool",
                                                "half",
                                                "float",
                                                "double",
                                                "complex64",
                                                "complex128",
                                                "float8_e4m3fn",
                                                "float8_e5m2",
                                                "strided",
                                                "preserve_format",
                                                "contiguous_format",
                                                "channels_last_3d"};
  if (name.substr(0, 6) != "torch ") return Meaning::kUnknown;
  const std::string_view type = name.substr(6);
  const bool known = archive::storage_element_size(type) != 0 ||
                     std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
  return known ? Meaning::kHarmless : Meaning::kUnknown;
}

std::string dtype_of(std::string_view storage) {
  if (storage == "FloatStorage") return "float32";
  if (storage == "DoubleStorage") return "float64";
  if (storage == "HalfStorage") return "float16";
  if (storage == "BFloat16Storage") return "bfloat16";
  if (storage == "LongStorage") return "int64";
  if (storage == "IntStorage") return "int32";
  if (storage == "ShortStorage") return "int16";
  if (storage == "CharStorage") return "int8";
  if (storage == "ByteStorage") return "uint8";
  if (storage == "BoolStorage") return "bool";
  return "complex";
}

class Reader {
 public:
  Reader(const ZipArchive& archive, const Folder& folder, const Pickle& pickle, TensorFile* out)
      : archive_(archive), folder_(folder), pickle_(pickle), out_(out) {}

  // Refuses every name that is not on the list, all at once.
  void check_names() const {
    std::set<std::string> unknown;
    for (const PickleValue& value : pickle_.values) {
      if (value.kind != Kind::kGlobal || meaning(value) != Meaning::kUnknown) continue;
      std::string dotted = std::string(value.second) + "." + std::string(value.text);
      unknown.insert(quoted(dotted));
    }
    if (unknown.empty()) return;
    std::vector<std::string> names(unknown.begin(), unknown.end());
    constexpr size_t kNamed = 6;
    const size_t count = names.size();
    if (count > kNamed) {
      names.resize(kNamed);
      names.push_back("... (" + to_text(count) + ")");
    }
    refuse_unsupported("pickled Python objects: got " + module::join(names, ", ") +
                       ", whose code volup does not run, need tensors in dictionaries alone "
                       "(torch.save(model.state_dict(), path))");
  }

  void read(std::string_view submodule) {
    const PickleValue& root = value(pickle_.root);
    if (is_tensor(root)) {
      refuse_unsupported("content: got a single tensor, need a dictionary of named tensors");
    }
    uint32_t taken = pickle_.root;
    if (is_dictionary(root)) taken = choose_container(root, submodule);
    collect(taken, "", 0);
    if (!faults_.empty()) damaged(module::join(faults_, "; "));
    if (out_->tensors.empty()) {
      refuse_unsupported("content: got no tensors, need a dictionary of named tensors");
    }
  }

 private:
  const PickleValue& value(uint32_t index) const { return pickle_.values[index]; }
  static Meaning meaning(const PickleValue& global) {
    return meaning_of(std::string(global.second) + " " + std::string(global.text));
  }
  Meaning call_meaning(const PickleValue& call) const {
    return call.kind == Kind::kCall ? meaning(value(call.callee)) : Meaning::kUnknown;
  }
  bool is_dictionary(const PickleValue& v) const {
    return v.kind == Kind::kDictionary ||
           (call_meaning(v) == Meaning::kOrderedDict && !v.is_appended);
  }
  bool is_tensor(const PickleValue& v) const {
    const Meaning m = call_meaning(v);
    return m == Meaning::kTensor || m == Meaning::kParameter || m == Meaning::kSpecialTensor;
  }
  bool holds_tensors(uint32_t index, int depth = 0) const {
    const PickleValue& v = value(index);
    if (is_tensor(v)) return true;
    if (!is_dictionary(v) || depth > 1) return false;
    for (size_t i = 1; i < v.members.size(); i += 2) {
      if (holds_tensors(v.members[i], depth + 1)) return true;
    }
    return false;
  }

  // A checkpoint has its state_dict under one of a few keys, beside an optimizer's and others.
  uint32_t choose_container(const PickleValue& root, std::string_view submodule) {
    static constexpr std::string_view kKeys[] = {"state_dict", "model_state_dict", "model"};
    std::vector<std::string> found, others;
    uint32_t chosen = pickle_.root;
    for (size_t i = 0; i + 1 < root.members.size(); i += 2) {
      const PickleValue& key = value(root.members[i]);
      if (key.kind != Kind::kText) continue;
      const bool is_container =
          std::find(std::begin(kKeys), std::end(kKeys), key.text) != std::end(kKeys) &&
          is_dictionary(value(root.members[i + 1])) && holds_tensors(root.members[i + 1]);
      if (is_container) {
        chosen = root.members[i + 1];
        found.emplace_back(key.text);
      } else {
        others.push_back(quoted(key.text, 40));
      }
    }
    // With several, the names begin with the keys and the user picks.
    if (found.size() != 1) return pickle_.root;
    const std::string start = found[0] + ".";
    const bool user_names_it = submodule.substr(0, start.size()) == start;
    if (user_names_it) return pickle_.root;
    std::string note = "weights are those of the checkpoint's " + quoted(found[0]);
    constexpr size_t kNamed = 8;
    if (others.size() > kNamed) {
      others.resize(kNamed);
      others.emplace_back("...");
    }
    if (!others.empty()) note += ", which holds " + module::join(others, ", ") + " too";
    out_->notes.push_back(note);
    return chosen;
  }

  static std::string joined(const std::string& prefix, std::string_view part) {
    return prefix.empty() ? std::string(part) : prefix + "." + std::string(part);
  }

  void collect(uint32_t index, const std::string& name, int depth) {
    constexpr int kDepthLimit = 32;
    constexpr size_t kTensorLimit = 1 << 20;
    const PickleValue& v = value(index);
    if (is_tensor(v)) {
      // A memo makes few bytes of many references.
      if (out_->tensors.size() >= kTensorLimit) damaged("more than 2^20 tensors");
      add_tensor(v, name);
      return;
    }
    if (depth > kDepthLimit) return;
    if (is_dictionary(v)) {
      std::set<std::string> keys;
      for (size_t i = 0; i + 1 < v.members.size(); i += 2) {
        const PickleValue& key = value(v.members[i]);
        std::string part;
        if (key.kind == Kind::kText) {
          part = key.text;
        } else if (key.kind == Kind::kInteger) {
          part = to_text(key.integer);
        } else {
          continue;
        }
        if (++visits_ > kVisitLimit)
          damaged("more than 2^22 values, counted as often as they occur");
        if (!keys.insert(part).second) damaged("the key " + quoted(part) + " is there twice");
        collect(v.members[i + 1], joined(name, part), depth + 1);
      }
    } else if (v.kind == Kind::kList || v.kind == Kind::kTuple) {
      for (size_t i = 0; i < v.members.size(); ++i) {
        if (++visits_ > kVisitLimit)
          damaged("more than 2^22 values, counted as often as they occur");
        collect(v.members[i], joined(name, to_text(i)), depth + 1);
      }
    }
  }

  // Integers of a tuple (or of a torch.Size); false if it holds anything else.
  bool integers(uint32_t index, std::vector<int64_t>* out) const {
    const PickleValue* v = &value(index);
    if (v->kind == Kind::kCall && value(v->arguments).members.size() == 1) {
      v = &value(value(v->arguments).members[0]);
    }
    if (v->kind != Kind::kTuple && v->kind != Kind::kList) return false;
    if (v->members.size() > kRankLimit) return false;
    for (const uint32_t member : v->members) {
      const PickleValue& number = value(member);
      if (number.kind != Kind::kInteger || number.integer < 0) return false;
      out->push_back(number.integer);
    }
    return true;
  }

  void add_tensor(const PickleValue& given, const std::string& name) {
    StoredTensor tensor;
    tensor.name = name;
    const PickleValue* call = &given;
    for (int i = 0; i < 2 && call_meaning(*call) == Meaning::kParameter; ++i) {
      const PickleValue& arguments = value(call->arguments);
      if (arguments.members.empty()) break;
      call = &value(arguments.members[0]);
    }
    if (call_meaning(*call) == Meaning::kSpecialTensor) {
      tensor.special = std::string(value(call->callee).text);
      out_->tensors.push_back(std::move(tensor));
      return;
    }
    const std::string fault = call_meaning(*call) == Meaning::kTensor
                                  ? read_tensor(value(call->arguments), &tensor)
                                  : "something else than a tensor in a parameter";
    if (!fault.empty()) {
      if (faults_.size() < 8) faults_.push_back("got " + fault + " (" + quoted(name) + ")");
      return;
    }
    out_->tensors.push_back(std::move(tensor));
  }

  // (storage, offset, sizes, strides, requires_grad, hooks); the words are empty where it is sound.
  std::string read_tensor(const PickleValue& arguments, StoredTensor* tensor) const {
    if (arguments.members.size() < 4) return "a tensor without a description";
    const PickleValue& storage = value(arguments.members[0]);
    const PickleValue& offset = value(arguments.members[1]);
    if (storage.kind != Kind::kStorage || offset.kind != Kind::kInteger || offset.integer < 0 ||
        !integers(arguments.members[2], &tensor->shape) ||
        !integers(arguments.members[3], &tensor->strides) ||
        tensor->shape.size() != tensor->strides.size()) {
      return "a tensor with a description of another form";
    }
    tensor->element_size = archive::storage_element_size(storage.text);
    if (tensor->element_size == 0) {
      tensor->special = "a storage of type " + std::string(storage.text);
      return "";
    }
    tensor->dtype = dtype_of(storage.text);
    tensor->offset = offset.integer;

    int64_t bytes = tensor->element_size;
    const std::string key = "data/" + std::string(storage.second);
    const ZipEntry* const entry = folder_.find(key);
    if (!module::multiply_into(&bytes, storage.integer) ||
        (storage.integer > 0 && (!entry || static_cast<uint64_t>(bytes) > entry->size))) {
      return (entry ? to_text(entry->size) + " bytes" : std::string("nothing")) + " for " +
             to_text(storage.integer) + " elements of " + tensor->dtype + " in " + quoted(key);
    }
    if (entry && entry->deflated) {
      const ZipArchive* const archive = &archive_;
      tensor->unpack = [archive, entry] { return archive->read(*entry); };
    } else if (entry) {
      tensor->storage = archive_.stored(*entry);
    }
    return extent_fault(*tensor, storage.integer);
  }

  static std::string extent_fault(const StoredTensor& tensor, int64_t elements) {
    const int64_t count = product(tensor.shape);
    int64_t last = tensor.offset;
    bool fits = count >= 0;
    for (size_t axis = 0; axis < tensor.shape.size() && count > 0; ++axis) {
      int64_t reach = tensor.shape[axis] - 1;
      fits = fits && module::multiply_into(&reach, tensor.strides[axis]) &&
             !__builtin_add_overflow(last, reach, &last);
    }
    if (fits && (count == 0 || last < elements)) return "";
    return "a shape of " + module::list_text(tensor.shape) + " and strides of " +
           module::list_text(tensor.strides) + " from " + to_text(tensor.offset) +
           " that reach outside a storage of " + to_text(elements) + " elements";
  }

  static constexpr int64_t kVisitLimit = int64_t{1} << 22;

  const ZipArchive& archive_;
  const Folder& folder_;
  const Pickle& pickle_;
  TensorFile* out_;
  std::vector<std::string> faults_;
  int64_t visits_ = 0;
};

// What a zip without TorchScript's code may be, if it is not a file of torch.save.
[[noreturn]] void refuse_other(const std::string& what) {
  refuse_unreadable("file kind: got " + what +
                    ", need an archive of torch.save (a folder with data.pkl)");
}

}  // namespace

TensorFile read_state_dict(const ZipArchive& archive, std::string_view submodule) {
  const Folder folder(archive);
  if (!folder.fault().empty()) refuse_other(folder.fault());
  if (folder.has_under("code/")) refuse_other("a TorchScript archive");
  const ZipEntry* const entry = folder.find("data.pkl");
  if (!entry) refuse_other("a zip archive without data.pkl");
  if (const std::string order = folder.read("byteorder"); !order.empty() && order != "little") {
    refuse_unsupported("byte order: got " + quoted(order) + ", need 'little' (byteorder)");
  }
  if (entry->size > kPickleLimit) {
    refuse_unsupported("data.pkl: got " + to_text(entry->size) + " bytes, need at most " +
                       to_text(kPickleLimit));
  }
  const std::string bytes = archive.read(*entry);
  const Pickle pickle = archive::read_pickle(bytes, archive::PickleWriter::kPython);
  if (!pickle.fault.empty()) damaged("the pickle data.pkl is not sound: " + pickle.fault);

  TensorFile file;
  file.kind = "state_dict";
  std::string version = folder.read("version");
  while (!version.empty() && (version.back() == '\n' || version.back() == ' ')) version.pop_back();
  file.producer = "PyTorch (torch.save" +
                  (version.empty() ? std::string() : ", file version " + version.substr(0, 9)) +
                  ")";
  Reader reader(archive, folder, pickle, &file);
  reader.check_names();
  reader.read(submodule);
  return file;
}

}  // namespace volup::checkpoint
