// SPDX-License-Identifier: Apache-2.0
//
// Walks a pickle of protocol 2; see pickle_scan.h. The codes are those that PyTorch's writers use.
#include "load/torchscript/pickle_scan.h"

#include <algorithm>
#include <unordered_map>

#include "load/module_support.h"

namespace volup::torchscript {
namespace {

using module::to_text;

constexpr int kDepthLimit = 500;

struct Item {
  enum Kind { kMark, kInteger, kText, kGlobal, kTuple, kOther } kind = kOther;
  int64_t integer = 0;
  std::string_view text;          // kText, kGlobal: the name; the module is in module_name
  std::string_view module_name;   // kGlobal
  std::vector<uint32_t> members;  // indices into the arena of what it holds; a tuple's, in order
};

// A fault on the way; caught by scan_pickle.
struct Fault {
  std::string text;
};

class Walker {
 public:
  Walker(std::string_view bytes, PickleScan* out) : bytes_(bytes), out_(out) {}

  void walk() {
    while (step()) {
    }
    if (stack_.size() != 1) throw Fault{"it leaves " + to_text(stack_.size()) + " values"};
    check_depth();
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

  // Values within values are freed by recursion, and a value within itself never is.
  void check_depth() const {
    struct Visit {
      uint32_t item;
      size_t next;
    };
    constexpr int kOpen = -1;
    std::vector<int> depth(arena_.size(), 0);  // 0: not seen; kOpen: on the path
    for (uint32_t root = 0; root < arena_.size(); ++root) {
      if (depth[root] != 0) continue;
      std::vector<Visit> path = {{root, 0}};
      depth[root] = kOpen;
      while (!path.empty()) {
        Visit& visit = path.back();
        const std::vector<uint32_t>& members = arena_[visit.item].members;
        if (visit.next < members.size()) {
          const uint32_t member = members[visit.next++];
          if (depth[member] == kOpen) throw Fault{"a value holds itself"};
          if (depth[member] == 0) {
            depth[member] = kOpen;
            path.push_back({member, 0});
          }
          continue;
        }
        int deepest = 0;
        for (const uint32_t member : members) deepest = std::max(deepest, depth[member]);
        if (deepest >= kDepthLimit) throw Fault{"it nests values too deeply"};
        depth[visit.item] = deepest + 1;
        path.pop_back();
      }
    }
  }

  void push(Item item) {
    arena_.push_back(std::move(item));
    stack_.push_back(static_cast<uint32_t>(arena_.size() - 1));
  }
  void push_other() { push(Item()); }
  void push_integer(int64_t value) {
    Item item;
    item.kind = Item::kInteger;
    item.integer = value;
    push(std::move(item));
  }
  void push_text(std::string_view text) {
    Item item;
    item.kind = Item::kText;
    item.text = text;
    push(std::move(item));
  }
  uint32_t pop() {
    if (stack_.empty() || arena_[stack_.back()].kind == Item::kMark) {
      throw Fault{"it takes a value that is not there"};
    }
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<uint32_t> pop_to_mark() {
    size_t mark = stack_.size();
    while (mark > 0 && arena_[stack_[mark - 1]].kind != Item::kMark) --mark;
    if (mark == 0) throw Fault{"it closes a list that is not open"};
    std::vector<uint32_t> items(stack_.begin() + static_cast<ptrdiff_t>(mark), stack_.end());
    stack_.resize(mark - 1);
    return items;
  }
  void need_top() {
    if (stack_.empty() || arena_[stack_.back()].kind == Item::kMark) {
      throw Fault{"it fills an object that is not there"};
    }
  }
  // Makes the value on top hold others too.
  void put_in_top(const std::vector<uint32_t>& inner) {
    need_top();
    std::vector<uint32_t>& members = arena_[stack_.back()].members;
    members.insert(members.end(), inner.begin(), inner.end());
  }
  void push_tuple(std::vector<uint32_t> members) {
    Item item;
    item.kind = Item::kTuple;
    item.members = std::move(members);
    push(std::move(item));
  }
  void push_popped(size_t count) {
    std::vector<uint32_t> members(count);
    for (size_t i = count; i-- > 0;) members[i] = pop();
    push_tuple(std::move(members));
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

  void take_global() {
    Item item;
    item.kind = Item::kGlobal;
    item.module_name = take_line();
    item.text = take_line();
    const std::string name = std::string(item.module_name) + " " + std::string(item.text);
    if (std::find(out_->globals.begin(), out_->globals.end(), name) == out_->globals.end()) {
      out_->globals.push_back(name);
    }
    push(std::move(item));
  }

  // ("storage", torch.FloatStorage, key, device, elements)
  void take_persistent() {
    const Item& id = arena_[pop()];
    if (id.kind != Item::kTuple || id.members.size() < 5)
      throw Fault{"a storage has no description"};
    const Item& word = arena_[id.members[0]];
    const Item& type = arena_[id.members[1]];
    const Item& key = arena_[id.members[2]];
    const Item& elements = arena_[id.members[4]];
    if (word.kind != Item::kText || word.text != "storage" || type.kind != Item::kGlobal ||
        key.kind != Item::kText || elements.kind != Item::kInteger || elements.integer < 0) {
      throw Fault{"a storage has a description of another form"};
    }
    out_->storages.push_back({std::string(type.text), std::string(key.text), elements.integer});
    push_other();
  }

  bool step() {
    const unsigned char code = static_cast<unsigned char>(take(1)[0]);
    switch (code) {
      case 0x80:  // PROTO
        if (take_unsigned(1) != 2) throw Fault{"it is of another protocol than 2"};
        return true;
      case '.':  // STOP
        return false;
      case '(': {  // MARK
        Item item;
        item.kind = Item::kMark;
        push(std::move(item));
        return true;
      }
      case 'N':   // NONE
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
      case '}':   // EMPTY_DICT
      case ']':   // EMPTY_LIST
        push_other();
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
      case 0x8a: {  // LONG1
        const uint64_t count = take_unsigned(1);
        if (count > 8) throw Fault{"it holds an integer of more than 64 bits"};
        uint64_t value = take_unsigned(count);
        if (count > 0 && count < 8 && (value >> (8 * count - 1)) != 0) {
          value |= ~uint64_t{0} << (8 * count);
        }
        push_integer(static_cast<int64_t>(value));
        return true;
      }
      case 'G':  // BINFLOAT
        take(8);
        push_other();
        return true;
      case 'X':  // BINUNICODE
        push_text(take(take_unsigned(4)));
        return true;
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
      case 'c':  // GLOBAL
        take_global();
        return true;
      case 'Q':  // BINPERSID
        take_persistent();
        return true;
      case 'a':  // APPEND
        put_in_top({pop()});
        return true;
      case 'e':  // APPENDS
        put_in_top(pop_to_mark());
        return true;
      case 's': {  // SETITEM
        const uint32_t value = pop();
        const uint32_t key = pop();
        put_in_top({key, value});
        return true;
      }
      case 'u': {  // SETITEMS
        const std::vector<uint32_t> items = pop_to_mark();
        if (items.size() % 2 != 0) throw Fault{"a dictionary has a key without a value"};
        put_in_top(items);
        return true;
      }
      case 'R':     // REDUCE
      case 0x81: {  // NEWOBJ
        const uint32_t arguments = pop();
        const uint32_t callee = pop();
        if (arena_[arguments].kind != Item::kTuple || arena_[callee].kind != Item::kGlobal) {
          throw Fault{"it calls something that is not a name"};
        }
        push_other();
        put_in_top({arguments});
        return true;
      }
      case 'b':  // BUILD
        put_in_top({pop()});
        return true;
      default:
        throw Fault{"it holds the code " + to_text(static_cast<int>(code)) +
                    ", which PyTorch does not write"};
    }
  }

  std::string_view bytes_;
  size_t at_ = 0;
  PickleScan* out_;
  std::vector<Item> arena_;
  std::vector<uint32_t> stack_;
  std::vector<uint32_t> memo_;
};

}  // namespace

PickleScan scan_pickle(std::string_view bytes) {
  PickleScan scan;
  try {
    Walker(bytes, &scan).walk();
  } catch (const Fault& fault) {
    scan.fault = fault.text;
  }
  return scan;
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

}  // namespace volup::torchscript
