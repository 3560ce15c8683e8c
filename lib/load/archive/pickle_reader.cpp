// SPDX-License-Identifier: Apache-2.0
//
// Walks a pickle of protocol 2; see pickle_reader.h. The codes are those that PyTorch's writers and
// Python's pickler use.
#include "load/archive/pickle_reader.h"

#include <algorithm>
#include <unordered_map>

#include "load/module_support.h"

namespace volup::archive {
namespace {

using module::to_text;
using Kind = PickleValue::Kind;

constexpr int kDepthLimit = 500;
constexpr size_t kValueLimit = size_t{1} << 21;

// A fault on the way; caught by read_pickle.
struct Fault {
  std::string text;
};

class Walker {
 public:
  Walker(std::string_view bytes, PickleWriter writer, Pickle* out)
      : bytes_(bytes), writer_(writer), values_(out->values) {}

  uint32_t walk() {
    while (step()) {
    }
    if (stack_.size() != 1) throw Fault{"it leaves " + to_text(stack_.size()) + " values"};
    if (values_[stack_[0]].kind == Kind::kMark) throw Fault{"it leaves a list open"};
    check_depth();
    return stack_[0];
  }

 private:
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) throw Fault{"it ends inside a value"};
    const std::string_view piece = bytes_.substr(at_, count);
    at_ += count;
    return piece;
  }
  uint64_t take_unsigned(size_t count) {
    uint64_t value = 0;
    const std::string_view piece = take(count);
    for (size_t i = 0; i < count; ++i) {
      value |= static_cast<uint64_t>(static_cast<unsigned char>(piece[i])) << (8 * i);
    }
    return value;
  }
  std::string_view take_line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) throw Fault{"it ends inside a name"};
    const std::string_view line = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  // Everything that a value holds, by number; kNoValue past the last.
  static uint32_t held(const PickleValue& value, size_t number) {
    if (number < value.members.size()) return value.members[number];
    const uint32_t others[] = {value.callee, value.arguments, value.state};
    size_t left = number - value.members.size();
    for (const uint32_t other : others) {
      if (other != kNoValue && left-- == 0) return other;
    }
    return kNoValue;
  }

  // Values within values are freed by recursion elsewhere, and a value within itself never is.
  void check_depth() const {
    struct Visit {
      uint32_t value;
      size_t next;
      int deepest;
    };
    constexpr int kOpen = -1;
    std::vector<int> depth(values_.size(), 0);  // 0: not seen; kOpen: on the path
    for (uint32_t root = 0; root < values_.size(); ++root) {
      if (depth[root] != 0) continue;
      std::vector<Visit> path = {{root, 0, 0}};
      depth[root] = kOpen;
      while (!path.empty()) {
        Visit& visit = path.back();
        const uint32_t inner = held(values_[visit.value], visit.next);
        if (inner != kNoValue) {
          if (depth[inner] == kOpen) throw Fault{"a value holds itself"};
          if (depth[inner] == 0) {
            depth[inner] = kOpen;
            path.push_back({inner, 0, 0});
            continue;
          }
          visit.deepest = std::max(visit.deepest, depth[inner]);
          ++visit.next;
          continue;
        }
        if (visit.deepest >= kDepthLimit) throw Fault{"it nests values too deeply"};
        depth[visit.value] = visit.deepest + 1;
        path.pop_back();
      }
    }
  }

  PickleValue& push(Kind kind) {
    if (values_.size() == kValueLimit) {
      throw Fault{"it holds more than " + to_text(kValueLimit) + " values"};
    }
    stack_.push_back(static_cast<uint32_t>(values_.size()));
    values_.emplace_back().kind = kind;
    return values_.back();
  }
  void push_integer(int64_t value) { push(Kind::kInteger).integer = value; }
  uint32_t pop() {
    need_top();
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<uint32_t> pop_to_mark() {
    size_t mark = stack_.size();
    while (mark > 0 && values_[stack_[mark - 1]].kind != Kind::kMark) --mark;
    if (mark == 0) throw Fault{"it closes a list that is not open"};
    std::vector<uint32_t> items(stack_.begin() + static_cast<ptrdiff_t>(mark), stack_.end());
    stack_.resize(mark - 1);
    return items;
  }
  void need_top() const {
    if (stack_.empty() || values_[stack_.back()].kind == Kind::kMark) {
      throw Fault{"it takes a value that is not there"};
    }
  }
  void push_tuple(std::vector<uint32_t> members) {
    push(Kind::kTuple).members = std::move(members);
  }
  void push_popped(size_t count) {
    std::vector<uint32_t> members(count);
    for (size_t i = count; i-- > 0;) members[i] = pop();
    push_tuple(std::move(members));
  }
  void append_to_top(const std::vector<uint32_t>& items) {
    need_top();
    PickleValue& top = values_[stack_.back()];
    const bool is_call = top.kind == Kind::kCall && (top.is_appended || top.members.empty());
    if (top.kind != Kind::kList && !is_call)
      throw Fault{"it appends to something else than a list"};
    top.is_appended = true;
    top.members.insert(top.members.end(), items.begin(), items.end());
  }
  void set_in_top(const std::vector<uint32_t>& items) {
    need_top();
    PickleValue& top = values_[stack_.back()];
    const bool is_call = top.kind == Kind::kCall && !top.is_appended;
    if (top.kind != Kind::kDictionary && !is_call) {
      throw Fault{"it sets a key of something else than a dictionary"};
    }
    if (items.size() % 2 != 0) throw Fault{"a dictionary has a key without a value"};
    top.members.insert(top.members.end(), items.begin(), items.end());
  }

  void remember(uint64_t slot) {
    need_top();
    // A slot is the next one or an old one: libtorch indexes an array with it.
    if (slot > memo_.size()) throw Fault{"it numbers a value out of order"};
    if (slot == memo_.size()) memo_.push_back(0);
    memo_[slot] = stack_.back();
  }
  void recall(uint64_t slot) {
    if (slot >= memo_.size()) throw Fault{"it recalls a value that it never kept"};
    stack_.push_back(memo_[slot]);
  }

  // ("storage", torch.FloatStorage, key, device, elements)
  void take_persistent() {
    const uint32_t id = pop();
    if (values_[id].kind != Kind::kTuple || values_[id].members.size() < 5) {
      throw Fault{"a storage has no description"};
    }
    const auto member = [&](size_t i) -> const PickleValue& {
      return values_[values_[id].members[i]];
    };
    const PickleValue &type = member(1), &key = member(2), &elements = member(4);
    if (member(0).kind != Kind::kText || member(0).text != "storage" ||
        type.kind != Kind::kGlobal || key.kind != Kind::kText || elements.kind != Kind::kInteger ||
        elements.integer < 0) {
      throw Fault{"a storage has a description of another form"};
    }
    const std::string_view type_name = type.text, key_text = key.text;
    const int64_t count = elements.integer;
    PickleValue& storage = push(Kind::kStorage);
    storage.text = type_name;
    storage.second = key_text;
    storage.integer = count;
    storage.members = {id};
  }

  void take_call() {
    const uint32_t arguments = pop();
    const uint32_t callee = pop();
    if (values_[arguments].kind != Kind::kTuple || values_[callee].kind != Kind::kGlobal) {
      throw Fault{"it calls something that is not a name"};
    }
    PickleValue& call = push(Kind::kCall);
    call.callee = callee;
    call.arguments = arguments;
  }

  void take_state() {
    const uint32_t state = pop();
    need_top();
    PickleValue& top = values_[stack_.back()];
    if (top.kind != Kind::kCall || top.state != kNoValue) {
      throw Fault{"it fills something else than a new object"};
    }
    top.state = state;
  }

  void take_long() {
    const uint64_t count = take_unsigned(1);
    if (count > 8) {
      if (writer_ == PickleWriter::kTorchScript) {
        throw Fault{"it holds an integer of more than 64 bits"};
      }
      take(count);
      push(Kind::kOther);
      return;
    }
    uint64_t value = take_unsigned(count);
    if (count > 0 && count < 8 && (value >> (8 * count - 1)) != 0) {
      value |= ~uint64_t{0} << (8 * count);
    }
    push_integer(static_cast<int64_t>(value));
  }

  bool step() {
    const unsigned char code = static_cast<unsigned char>(take(1)[0]);
    switch (code) {
      case 0x80: {  // PROTO
        const uint64_t protocol = take_unsigned(1);
        if (protocol != 2) throw Fault{"it is of protocol " + to_text(protocol) + ", not 2"};
        return true;
      }
      case '.':  // STOP
        return false;
      case '(':  // MARK
        push(Kind::kMark);
        return true;
      case 'N':  // NONE
        push(Kind::kNone);
        return true;
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        push(Kind::kBoolean).integer = code == 0x88;
        return true;
      case '}':  // EMPTY_DICT
        push(Kind::kDictionary);
        return true;
      case ']':  // EMPTY_LIST
        push(Kind::kList);
        return true;
      case 'K':  // BININT1
        push_integer(static_cast<int64_t>(take_unsigned(1)));
        return true;
      case 'M':  // BININT2
        push_integer(static_cast<int64_t>(take_unsigned(2)));
        return true;
      case 'J':  // BININT
        push_integer(static_cast<int32_t>(take_unsigned(4)));
        return true;
      case 0x8a:  // LONG1
        take_long();
        return true;
      case 'G':  // BINFLOAT
        take(8);
        push(Kind::kOther);
        return true;
      case 'X': {  // BINUNICODE
        const std::string_view text = take(take_unsigned(4));
        push(Kind::kText).text = text;
        return true;
      }
      case ')':  // EMPTY_TUPLE
        push_tuple({});
        return true;
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        push_popped(code - 0x84u);
        return true;
      case 't':  // TUPLE
        push_tuple(pop_to_mark());
        return true;
      case 'q':  // BINPUT
        remember(take_unsigned(1));
        return true;
      case 'r':  // LONG_BINPUT
        remember(take_unsigned(4));
        return true;
      case 'h':  // BINGET
        recall(take_unsigned(1));
        return true;
      case 'j':  // LONG_BINGET
        recall(take_unsigned(4));
        return true;
      case 'c': {  // GLOBAL
        PickleValue& global = push(Kind::kGlobal);
        global.second = take_line();
        global.text = take_line();
        return true;
      }
      case 'Q':  // BINPERSID
        take_persistent();
        return true;
      case 'a':  // APPEND
        append_to_top({pop()});
        return true;
      case 'e':  // APPENDS
        append_to_top(pop_to_mark());
        return true;
      case 's': {  // SETITEM
        const uint32_t value = pop();
        const uint32_t key = pop();
        set_in_top({key, value});
        return true;
      }
      case 'u':  // SETITEMS
        set_in_top(pop_to_mark());
        return true;
      case 'R':   // REDUCE
      case 0x81:  // NEWOBJ
        take_call();
        return true;
      case 'b':  // BUILD
        take_state();
        return true;
      default:
        throw Fault{"it holds the code " + to_text(static_cast<int>(code)) +
                    ", which PyTorch does not write"};
    }
  }

  std::string_view bytes_;
  const PickleWriter writer_;
  size_t at_ = 0;
  std::vector<PickleValue>& values_;
  std::vector<uint32_t> stack_;
  std::vector<uint32_t> memo_;
};

}  // namespace

Pickle read_pickle(std::string_view bytes, PickleWriter writer) {
  Pickle pickle;
  try {
    pickle.root = Walker(bytes, writer, &pickle).walk();
  } catch (const Fault& fault) {
    pickle.fault = fault.text;
  }
  return pickle;
}

int64_t storage_element_size(std::string_view type) {
  static const std::unordered_map<std::string_view, int64_t> kSizes = {
      {"FloatStorage", 4},    {"DoubleStorage", 8},       {"HalfStorage", 2},
      {"BFloat16Storage", 2}, {"LongStorage", 8},         {"IntStorage", 4},
      {"ShortStorage", 2},    {"CharStorage", 1},         {"ByteStorage", 1},
      {"BoolStorage", 1},     {"ComplexFloatStorage", 8}, {"ComplexDoubleStorage", 16},
  };
  const auto found = kSizes.find(type);
  return found == kSizes.end() ? 0 : found->second;
}

}  // namespace volup::archive
