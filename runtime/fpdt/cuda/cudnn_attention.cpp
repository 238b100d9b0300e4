// Lays out the workspace, binds the operands, and runs our kernels before and after cuDNN's.
#include "fpdt/cuda/cudnn_attention.h"

#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/cuda/kernels_tiles.h"

namespace fpdt::cuda {
namespace {

constexpr std::int64_t kPartMultiple = 256;
constexpr std::int64_t kBf16Bytes = 2;
constexpr std::int64_t kF32Bytes = 4;
constexpr std::string_view kAdvice =
    "or plan with the backend's own attention kernels (`attention: own` in the cluster file)";

// Returns the tile if cuDNN can compute it. Throws InputError otherwise.
const AttentionTile& checked(const AttentionTile& tile) {
  const std::string reason = why_not(tile);
  if (reason.empty()) return tile;
  throw InputError(fmt::format("cuDNN cannot compute {}: {}; {}", describe(tile), reason, kAdvice));
}

// Appends a part after `end`, which moves to the end of the part. Returns where the part begins.
std::int64_t part(Bytes& end, std::int64_t bytes) {
  const std::int64_t begin = end.value;
  end.value = add(begin, round_up(bytes, kPartMultiple));
  return begin;
}

void require_bf16(const View& view, std::string_view field) {
  if (view.dtype == Dtype::bf16) return;
  throw InputError(
      fmt::format("cuDNN's attention takes bf16, but {} is {}; plan with `storage: "
                  "bf16`, {}",
                  field, word(view.dtype), kAdvice));
}

void require_room(const View& workspace, Bytes needed) {
  if (workspace.bytes() >= needed.value) return;
  throw InputError(
      fmt::format("cuDNN's attention needs a workspace of {}, but the schedule gives "
                  "{}; plan for this GPU and this cuDNN, {}",
                  format_bytes(needed), format_bytes(Bytes{workspace.bytes()}), kAdvice));
}

float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }

}  // namespace

ForwardPlan::ForwardPlan(const AttentionTile& tile, const PlanTarget& target, Graph&& graph)
    : tensors_(add_forward(graph, checked(tile))),
      plan_(std::move(graph), target, describe(tile), kAdvice) {
  part(workspace_, plan_.workspace().value);
  lse_ = part(workspace_, kF32Bytes * tile.heads * tile.q_rows);
  o_ = part(workspace_, kBf16Bytes * tile.heads * tile.q_rows * tile.head_dim);
}

void ForwardPlan::run(const AttentionForward& op, const Frame& frame, cudnnHandle_t handle) const {
  const View q = frame.view(op, op.q);
  const View kv = frame.view(op, op.kv);
  const View workspace = frame.view(op, op.workspace);
  FPDT_ASSERT(!op.documents.present());
  require_bf16(q, "q");
  require_bf16(kv, "kv");
  require_room(workspace, workspace_);
  std::byte* const o = workspace.data + o_;
  std::byte* const lse = workspace.data + lse_;
  const std::int64_t values = op.kv_heads * op.head_dim * kBf16Bytes;
  plan_.run(handle, frame.stream,
            std::array<Binding, 5>{{{tensors_.q, q.data},
                                    {tensors_.k, kv.data},
                                    {tensors_.v, kv.data + values},
                                    {tensors_.o, o},
                                    {tensors_.lse, lse}}},
            workspace.data);
  merge_tile(op.q_rows, op.heads, op.head_dim, o, floats(lse), frame.view(op, op.o),
             frame.view(op, op.lse), frame.stream);
}

BackwardPlan::Parts::Parts(const AttentionTile& tile, Bytes engine) {
  const std::int64_t heads = tile.kv_heads * tile.members;
  const std::int64_t rows = mul(heads, tile.q_rows);
  part(end, engine.value);
  lse = part(end, mul(kF32Bytes, rows));
  delta = part(end, mul(kF32Bytes, rows));
  o_and_dq = part(end, mul(kBf16Bytes * rows, tile.head_dim));
  dq_sum = part(end, mul(kF32Bytes * rows, tile.head_dim));
  dkv = part(end, mul(mul(kBf16Bytes * 2 * heads, tile.k_rows), tile.head_dim));
}

BackwardPlan::BackwardPlan(const AttentionTile& tile, const PlanTarget& target, Graph&& graph)
    : tensors_(add_backward(graph, checked(tile))),
      plan_(std::move(graph), target, describe(tile), kAdvice),
      members_(tile.members),
      parts_(tile, plan_.workspace()) {}

void BackwardPlan::run(const AttentionBackward& op, const Frame& frame,
                       cudnnHandle_t handle) const {
  FPDT_ASSERT(!op.documents.present());
  require_bf16(frame.view(op, op.q), "q");
  require_bf16(frame.view(op, op.kv), "kv");
  require_bf16(frame.view(op, op.dout), "dout");
  require_room(frame.view(op, op.workspace), workspace());
  for (std::int64_t first = 0; first < op.heads / op.kv_heads; first += members_) {
    run_group(first, op, frame, handle);
  }
}

void BackwardPlan::run_group(std::int64_t first, const AttentionBackward& op, const Frame& frame,
                             cudnnHandle_t handle) const {
  const View dout = frame.view(op, op.dout);
  const View dkv = frame.view(op, op.dkv);
  std::byte* const q = frame.view(op, op.q).data;
  std::byte* const kv = frame.view(op, op.kv).data;
  std::byte* const workspace = frame.view(op, op.workspace).data;
  const HeadGroup group{op.q_rows, op.heads, op.kv_heads, op.head_dim, first, members_};
  const std::int64_t before = first * op.head_dim * kBf16Bytes;  // offset of the group's heads
  const std::int64_t half = op.kv_heads * op.head_dim;           // of a row of kv

  // The engine zeros its sum of dq itself, since cuDNN 9.6.
  split_gradient(group, dout, frame.view(op, op.lse), frame.view(op, op.delta),
                 floats(workspace + parts_.lse), workspace + parts_.o_and_dq, frame.stream);
  plan_.run(handle, frame.stream,
            std::array<Binding, 11>{{{tensors_.q, q + before},
                                     {tensors_.k, kv},
                                     {tensors_.v, kv + half * kBf16Bytes},
                                     {tensors_.dout, dout.data + before},
                                     {tensors_.o, workspace + parts_.o_and_dq},
                                     {tensors_.lse, workspace + parts_.lse},
                                     {tensors_.delta, workspace + parts_.delta},
                                     {tensors_.dq_sum, workspace + parts_.dq_sum},
                                     {tensors_.dq, workspace + parts_.o_and_dq},
                                     {tensors_.dk, workspace + parts_.dkv},
                                     {tensors_.dv, workspace + parts_.dkv + half * kBf16Bytes}}},
            workspace);
  join_gradient(group, workspace + parts_.o_and_dq, frame.view(op, op.dq), frame.stream);
  add_members(op.k_rows * 2 * half, members_, workspace + parts_.dkv, dkv,
              first > 0 || accumulates(dkv), frame.stream);
}

AttentionPlans::AttentionPlans() : handle_(make_cudnn_handle()) {}

Bytes AttentionPlans::prepare(const AttentionTile& tile) {
  const PlanTarget here{handle_.get(), {}};
  if (tile.direction == Direction::forward) {
    return forward_.try_emplace(tile, tile, here).first->second.workspace();
  }
  return backward_.try_emplace(tile, tile, here).first->second.workspace();
}

std::int64_t AttentionPlans::members_within(Bytes room, AttentionTile tile) {
  const std::int64_t all = div_exact(tile.heads, tile.kv_heads);
  for (tile.members = all; tile.members > 1; --tile.members) {
    if (all % tile.members != 0) continue;
    // Making a plan is slow, so skip plans that cannot fit.
    if (BackwardPlan::least_workspace(tile) <= room && prepare(tile) <= room) break;
  }
  return tile.members;
}

void AttentionPlans::execute(const AttentionForward& op, const Frame& frame) {
  const auto found = forward_.find(tile_of(op, frame.rank));
  FPDT_ASSERT(found != forward_.end());
  found->second.run(op, frame, handle_.get());
}

void AttentionPlans::execute(const AttentionBackward& op, std::int64_t members,
                             const Frame& frame) {
  const auto found = backward_.find(tile_of(op, frame.rank, members));
  FPDT_ASSERT(found != backward_.end());
  found->second.run(op, frame, handle_.get());
}

}  // namespace fpdt::cuda
