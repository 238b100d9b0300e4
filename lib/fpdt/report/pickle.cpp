// Opcodes, named by the letters that the format gives them.
#include "fpdt/report/pickle.h"

#include <limits>

namespace fpdt {
namespace {

constexpr char kProtocol = '\x80';
constexpr char kMark = '(';
constexpr char kEmptyDictionary = '}';
constexpr char kSetItems = 'u';
constexpr char kEmptyList = ']';
constexpr char kAppends = 'e';
constexpr char kByte = 'K';     // one byte, unsigned
constexpr char kInt = 'J';      // four bytes, signed
constexpr char kLong = '\x8a';  // a count, then as many bytes, signed
constexpr char kTrue = '\x88';
constexpr char kFalse = '\x89';
constexpr char kTuple2 = '\x86';
constexpr char kUnicode = 'X';  // four bytes of length, then UTF-8
constexpr char kPut = 'r';      // stores the top of the stack under four bytes
constexpr char kGet = 'j';
constexpr char kStop = '.';

}  // namespace

Pickle::Pickle() : bytes_{kProtocol, '\x02'} {}

void Pickle::append(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>((value >> (8 * i)) & 0xFF);
}

void Pickle::integer(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (value >= 0 && value < 256) {
    bytes_ += kByte;
    append(bits, 1);
  } else if (value >= std::numeric_limits<std::int32_t>::min() &&
             value <= std::numeric_limits<std::int32_t>::max()) {
    bytes_ += kInt;
    append(bits, 4);
  } else {
    bytes_ += kLong;
    bytes_ += '\x08';
    append(bits, 8);
  }
}

void Pickle::boolean(bool value) { bytes_ += value ? kTrue : kFalse; }

void Pickle::text(std::string_view value) {
  const auto known = memo_.find(value);
  if (known != memo_.end()) {
    bytes_ += kGet;
    append(known->second, 4);
    return;
  }
  bytes_ += kUnicode;
  append(value.size(), 4);
  bytes_ += value;
  const auto number = static_cast<std::uint32_t>(memo_.size());
  memo_.emplace(value, number);
  bytes_ += kPut;
  append(number, 4);
}

void Pickle::begin_dictionary() {
  bytes_ += kEmptyDictionary;
  bytes_ += kMark;
}
void Pickle::end_dictionary() { bytes_ += kSetItems; }

void Pickle::begin_list() {
  bytes_ += kEmptyList;
  bytes_ += kMark;
}
void Pickle::end_list() { bytes_ += kAppends; }

void Pickle::next_batch() {
  bytes_ += kAppends;
  bytes_ += kMark;
}

void Pickle::tuple(std::int64_t first, std::int64_t second) {
  integer(first);
  integer(second);
  bytes_ += kTuple2;
}

std::string Pickle::finish() const { return bytes_ + kStop; }

}  // namespace fpdt
