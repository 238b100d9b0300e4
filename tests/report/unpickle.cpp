// A stack machine with the opcodes that Python's pickletools defines.
#include "unpickle.h"

#include <stdexcept>
#include <string>
#include <vector>

namespace fpdt::test {
namespace {

using Json = nlohmann::json;

class Machine {
 public:
  explicit Machine(std::string_view bytes) : bytes_(bytes) {}

  Json run() {
    if (take(2) != "\x80\x02") throw std::runtime_error("not protocol 2");
    while (true) {
      const char opcode = take(1).front();
      if (opcode == '.') break;
      step(opcode);
    }
    if (stack_.size() != 1 || !bytes_.empty()) throw std::runtime_error("something is left");
    return stack_.back();
  }

 private:
  std::string_view take(std::size_t count) {
    if (bytes_.size() < count) throw std::runtime_error("ends early");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  // A little-endian number; the last byte has the sign.
  std::int64_t number(std::size_t count, bool is_signed) {
    const std::string_view taken = take(count);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      const bool negative = is_signed && (taken.back() & '\x80') != 0;
      const auto byte = i < count ? static_cast<unsigned char>(taken[i])
                                  : static_cast<unsigned char>(negative ? 0xFF : 0);
      value |= static_cast<std::uint64_t>(byte) << (8 * i);
    }
    return static_cast<std::int64_t>(value);
  }
  std::vector<Json> since_mark() {
    const auto mark = static_cast<std::ptrdiff_t>(marks_.back());
    marks_.pop_back();
    std::vector<Json> values(stack_.begin() + mark, stack_.end());
    stack_.resize(static_cast<std::size_t>(mark));
    return values;
  }

  void step(char opcode) {
    switch (opcode) {
      case '}':
        return stack_.push_back(Json::object());
      case ']':
        return stack_.push_back(Json::array());
      case '(':
        return marks_.push_back(stack_.size());
      case 'u': {
        const std::vector<Json> items = since_mark();
        for (std::size_t i = 0; i + 1 < items.size(); i += 2)
          stack_.back()[items[i]] = items[i + 1];
        return;
      }
      case 'e':
        for (const Json& value : since_mark()) stack_.back().push_back(value);
        return;
      case 'K':
        return stack_.push_back(number(1, false));
      case 'J':
        return stack_.push_back(number(4, true));
      case '\x8a':
        return stack_.push_back(number(static_cast<std::size_t>(number(1, false)), true));
      case '\x88':
        return stack_.push_back(true);
      case '\x89':
        return stack_.push_back(false);
      case '\x86': {
        Json pair{stack_[stack_.size() - 2], stack_.back()};
        stack_.resize(stack_.size() - 2);
        return stack_.push_back(pair);
      }
      case 'X':
        return stack_.push_back(std::string(take(static_cast<std::size_t>(number(4, false)))));
      case 'r':
        if (number(4, false) != static_cast<std::int64_t>(memo_.size())) {
          throw std::runtime_error("memo out of order");
        }
        return memo_.push_back(stack_.back());
      case 'j':
        return stack_.push_back(memo_.at(static_cast<std::size_t>(number(4, false))));
      default:
        throw std::runtime_error("unknown opcode");
    }
  }

  std::string_view bytes_;
  std::vector<Json> stack_;
  std::vector<std::size_t> marks_;
  std::vector<Json> memo_;
};

}  // namespace

nlohmann::json unpickle(std::string_view bytes) { return Machine(bytes).run(); }

}  // namespace fpdt::test
