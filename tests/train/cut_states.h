// State tables written by hand, with tensors that are cut between ranks, in schedules that compute
// nothing. What a rank holds follows here from loops over the whole tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fpdt/schedule/schedule.h"
#include "fpdt/spec/model.h"

namespace fpdt {

// (r / m) mod n
inline RankExpression every(std::int64_t m, std::int64_t n) { return {0, {1, 0, m, n}, {}}; }

// A tensor for six ranks, and how its entries cut it.
struct CutTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<State> entries;  // cut, shards, shard and replicas
};
// Cuts along each axis, with several sections and entries, with shards that divide them or not,
// and with replicas.
std::vector<CutTensor> cut_tensors();

// Adds entries of a tensor with a buffer for each: slots of 256 bytes.
void add_states(Schedule& schedule, const CutTensor& tensor, const std::string& kind, Dtype dtype);

// Places all buffers, one after the other.
Schedule placed(Schedule schedule);

// Six ranks that hold cut_tensors(), each as an f32 master and a bf16 parameter.
Schedule table_of_cuts();

// What training asks of a schedule for six ranks, without a layer: its loss is 0. Two matrices out
// of three are cut, and all masters and moments are sharded.
Schedule cut_model(const ModelSpec& model);
// Tokens of a sequence of it.
inline constexpr std::int64_t kCutTokens = 12;

// The elements of the tensor that a rank holds of an entry, in order.
std::vector<std::int64_t> held_elements(const State& state, std::int64_t rank);

// The bytes that a rank holds of an entry: the elements value_of(i), and zeros after them. The
// values are exact in bf16.
std::vector<std::byte> held_bytes(const Schedule& schedule, const State& state, std::int64_t rank);
float value_of(std::int64_t element);
std::vector<float> values_of(std::int64_t elements);

}  // namespace fpdt
