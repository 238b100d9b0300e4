// The keys of groups, buffers, feeds, states and cuts in a schedule file, in their order. The
// printer and the loader visit them, so that both know the same keys.
//
// A visitor offers
//   required(key, value)          always there
//   optional(key, value)          always printed; a file of a person's may leave it out
//   sparse(key, value, usual)     left out where it has the usual value
//   extents(key, numbers)         a list of integers
//   buffer(key, index)            a buffer by its name
//   version(key, index, version)  a buffer by its name, with a constant version
//   sparse_group(key, value)      a map with its own keys; left out where it is the default
#pragma once

#include <concepts>

#include "fpdt/schedule/schedule.h"

namespace fpdt {

// Its name is the key of its map.
template <class Self, class Visitor>
requires std::same_as<std::remove_const_t<Self>, Group>
void container_keys(Self& group, Visitor& v) {
  v.required("size", group.size);
  v.sparse("stride", group.stride, std::int64_t{1});
  v.optional("first", group.first);
}

template <class Self, class Visitor>
requires std::same_as<std::remove_const_t<Self>, Buffer>
void container_keys(Self& buffer, Visitor& v) {
  v.required("name", buffer.name);
  v.required("space", buffer.space);
  v.required("role", buffer.role);
  v.required("category", buffer.category);
  v.required("dtype", buffer.dtype);
  v.extents("shape", buffer.shape);
  v.required("slots", buffer.slots);
  v.sparse("offset", buffer.offset, kUnplaced);
}

template <class Self, class Visitor>
requires std::same_as<std::remove_const_t<Self>, Feed>
void container_keys(Self& feed, Visitor& v) {
  v.buffer("buffer", feed.buffer);
  v.required("holds", feed.holds);
  v.sparse("row", feed.row, std::int64_t{0});
  v.required("rows", feed.rows);
  v.required("first", feed.first);
  v.sparse("replica", feed.replica, RankExpression{});
}

template <class Self, class Visitor>
requires std::same_as<std::remove_const_t<Self>, TensorCut>
void container_keys(Self& cut, Visitor& v) {
  v.required("axis", cut.axis);
  v.sparse("first", cut.first, std::int64_t{0});
  v.extents("sections", cut.sections);
  v.required("ways", cut.ways);
  v.required("part", cut.part);
}

template <class Self, class Visitor>
requires std::same_as<std::remove_const_t<Self>, State>
void container_keys(Self& state, Visitor& v) {
  v.required("tensor", state.tensor);
  v.required("kind", state.kind);
  v.extents("shape", state.shape);
  v.version("buffer", state.buffer, state.version);
  v.sparse_group("cut", state.cut);
  v.sparse("shards", state.shards, std::int64_t{1});
  v.sparse("shard", state.shard, RankExpression{});
  v.sparse("replicas", state.replicas, std::int64_t{1});
}

}  // namespace fpdt
