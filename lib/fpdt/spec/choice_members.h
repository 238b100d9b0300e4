// How rows of the table of choices name the members of a strategy. Internal to the table.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/spec/choices.h"

namespace fpdt {

template <HasWords E>
inline constexpr auto kWords = words<E>();

inline Member member_of(std::int64_t& value) { return &value; }
inline Member member_of(bool& value) { return &value; }
inline Member member_of(double& value) { return &value; }
inline Member member_of(std::vector<std::int64_t>& value) { return &value; }
template <HasWords E>
Member member_of(E& value) {
  static_assert(sizeof(E) == 1);
  return Word{kWords<E>, reinterpret_cast<std::uint8_t*>(&value)};
}
inline Member member_of(std::array<double, kStateClasses>& keep) {
  return Fractions{kWords<StateClass>, keep, 1};
}
inline Member member_of(std::array<double, kTensorClasses>& keep) {
  return Fractions{kWords<TensorClass>, keep, 0};
}

using MemberOf = std::function<Member(Strategy&, LayerClass&)>;
template <class T>
MemberOf at(T Strategy::*member) {
  return [member](Strategy& s, LayerClass&) { return member_of(s.*member); };
}
template <class Group, class T>
MemberOf at(Group Strategy::*group, T Group::*member) {
  return [group, member](Strategy& s, LayerClass&) { return member_of(s.*group.*member); };
}
template <class T>
MemberOf at(T LayerClass::*member) {
  return [member](Strategy&, LayerClass& one) { return member_of(one.*member); };
}

template <class T>
std::function<void(Problem&, Strategy&)> set(T Strategy::*member, T value) {
  return [=](Problem&, Strategy& s) { s.*member = value; };
}
template <class Group, class T>
std::function<void(Problem&, Strategy&)> set(Group Strategy::*group, T Group::*member, T value) {
  return [=](Problem&, Strategy& s) { s.*group.*member = value; };
}

// Rows of the table that have a file of their own.
std::vector<Choice> rows_of_tiles();

inline std::string unless(bool effect, std::string_view reason) {
  return effect ? "" : std::string(reason);
}

}  // namespace fpdt
