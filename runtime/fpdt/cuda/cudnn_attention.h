// Attention tiles by cuDNN: the ops AttentionForward and AttentionBackward that have a workspace.
//
// cuDNN cannot add to what is there, so a tile goes to the workspace, and kernels of ours
// (kernels_tiles.h) merge or add it. Backward runs as h/g launches of g heads each (cudnn_tile.h),
// with every sum over tiles and heads in f32, in a fixed order; within a launch cuDNN adds up dq by
// atomics, so dq is not the same bits on every run. A schedule that wants that has no workspace,
// and runs the backend's own kernels.
//
// cuDNN knows no documents either: ops with documents have no workspace.
//
// A workspace is divided so, each part from a multiple of 256 bytes on, E bytes for the engine:
//   forward   E | lse f32 [h, q_rows] | o f32 [q_rows, h*D]
//   backward  E | lse f32 [g, q_rows] | delta f32 [g, q_rows] | o bf16 [q_rows, g*D]
//               | dq f32 [g, q_rows, D] | dkv f32 [k_rows, 2*g*D]
// E is 256 on sm_90; on sm_80 it is 0 in forward, and 4*g*q_rows*D + 128 in backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "fpdt/base/units.h"
#include "fpdt/cuda/cudnn_plan.h"
#include "fpdt/cuda/cudnn_tile.h"
#include "fpdt/cuda/frame.h"

namespace fpdt::cuda {

class ForwardPlan {
 public:
  // InputError, with the nearest remedy, when cuDNN cannot compute the tile on that device.
  ForwardPlan(const AttentionTile& tile, const PlanTarget& target)
      : ForwardPlan(tile, target, Graph()) {}
  // All that the op needs.
  [[nodiscard]] Bytes workspace() const { return workspace_; }
  // Puts the op's kernels on the frame's stream. q and kv are bf16, o is f32 or bf16. InputError
  // when the op's workspace is too small, or q or kv is not bf16.
  void run(const AttentionForward& op, const Frame& frame, cudnnHandle_t handle) const;

 private:
  ForwardPlan(const AttentionTile& tile, const PlanTarget& target, Graph&& graph);

  ForwardTensors tensors_;
  GraphPlan plan_;
  std::int64_t lse_ = 0, o_ = 0;  // offsets of parts of the workspace
  Bytes workspace_{};
};

class BackwardPlan {
 public:
  BackwardPlan(const AttentionTile& tile, const PlanTarget& target)
      : BackwardPlan(tile, target, Graph()) {}
  [[nodiscard]] Bytes workspace() const { return workspace_; }
  // q, kv and dout are bf16.
  void run(const AttentionBackward& op, const Frame& frame, cudnnHandle_t handle) const;

 private:
  BackwardPlan(const AttentionTile& tile, const PlanTarget& target, Graph&& graph);
  void run_group(std::int64_t member, const AttentionBackward& op, const Frame& frame,
                 cudnnHandle_t handle) const;

  BackwardTensors tensors_;
  GraphPlan plan_;
  std::int64_t lse_ = 0, delta_ = 0, o_ = 0, dq_ = 0, dkv_ = 0;
  Bytes workspace_{};
};

// The plans of a schedule, made before its first step, for the current device. For one thread at a
// time.
class AttentionPlans {
 public:
  // InputError for a cuDNN that is too old, or without a device.
  AttentionPlans();

  // The workspace that ops of the tile need; InputError when cuDNN cannot compute it. A new tile
  // takes about half a second, in which cuDNN compiles a kernel.
  Bytes prepare(const AttentionTile& tile);

  // An op whose tile was prepared.
  void execute(const AttentionForward& op, const Frame& frame);
  void execute(const AttentionBackward& op, const Frame& frame);

 private:
  CudnnHandle handle_;
  std::map<AttentionTile, ForwardPlan> forward_;
  std::map<AttentionTile, BackwardPlan> backward_;
};

}  // namespace fpdt::cuda
