// Attention tiles by cuDNN: the ops AttentionForward and AttentionBackward that have a workspace.
//
// cuDNN cannot add to existing results. It writes a tile to the workspace, and our own kernels
// (kernels_tiles.h) merge or add it. A backward launch takes m of the h/g query heads of every KV
// head (cudnn_tile.h). The results of a launch are rounded to bf16, as cuDNN writes them; sums over
// tiles and launches run in f32 in a fixed order. But within a launch
// cuDNN adds to dq with atomics, so the bits of dq differ from run to run. A schedule that needs
// the same bits has no workspace, and the backend's own kernels run it.
//
// cuDNN does not support documents: ops with documents have no workspace.
//
// Layout of a workspace; each part begins at a multiple of 256 bytes, E bytes are the engine's:
//   forward   E | lse f32 [h, q_rows] | o bf16 [q_rows, h*D]
//   backward  E | lse f32 [m, g, q_rows] | delta f32 [m, g, q_rows] | o, then dq, bf16
//               [q_rows, g*m*D] | sum of dq f32 [m, g, q_rows, D] | dkv bf16 [m, k_rows, 2*g*D]
// E is 256 on sm_90; on sm_80 it is 0 in forward, and 4*g*m*q_rows*D + 128 in backward.
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
  // Throws InputError, with the nearest remedy, when cuDNN cannot compute the tile on that device.
  ForwardPlan(const AttentionTile& tile, const PlanTarget& target)
      : ForwardPlan(tile, target, Graph()) {}
  // The size of the workspace that the op needs, all parts included.
  [[nodiscard]] Bytes workspace() const { return workspace_; }
  // Launches the op's kernels on the frame's stream. q and kv are bf16, o is f32 or bf16. Throws
  // InputError when the op's workspace is too small, or q or kv is not bf16.
  void run(const AttentionForward& op, const Frame& frame, cudnnHandle_t handle) const;

 private:
  ForwardPlan(const AttentionTile& tile, const PlanTarget& target, Graph&& graph);

  ForwardTensors tensors_;
  GraphPlan plan_;
  std::int64_t lse_ = 0, o_ = 0;  // offsets into the workspace
  Bytes workspace_{};
};

class BackwardPlan {
 public:
  BackwardPlan(const AttentionTile& tile, const PlanTarget& target)
      : BackwardPlan(tile, target, Graph()) {}
  [[nodiscard]] Bytes workspace() const { return parts_.end; }
  // The part of the workspace that is known before cuDNN is asked: all but E.
  static Bytes least_workspace(const AttentionTile& tile) { return Parts(tile, Bytes{}).end; }
  [[nodiscard]] std::int64_t engine() const { return plan_.engine(); }
  // Launches the op's kernels on the frame's stream. q, kv and dout are bf16.
  void run(const AttentionBackward& op, const Frame& frame, cudnnHandle_t handle) const;

 private:
  // Offsets of the parts of a workspace, and its end.
  struct Parts {
    Parts(const AttentionTile& tile, Bytes engine);
    Bytes end{};
    // dq is written last, when nothing reads o any more.
    std::int64_t lse, delta, o_and_dq, dq_sum, dkv;
  };

  BackwardPlan(const AttentionTile& tile, const PlanTarget& target, Graph&& graph);
  // Runs members [first, first + members_) of every KV head.
  void run_group(std::int64_t first, const AttentionBackward& op, const Frame& frame,
                 cudnnHandle_t handle) const;

  BackwardTensors tensors_;
  GraphPlan plan_;
  std::int64_t members_;
  Parts parts_;
};

// The plans of a schedule, made for the current device before the first step. Not thread-safe.
class AttentionPlans {
 public:
  // Throws InputError when cuDNN is too old or there is no device.
  AttentionPlans();

  // Returns the workspace that ops of the tile need. Throws InputError when cuDNN cannot compute
  // it. A new tile takes about half a second, in which cuDNN compiles a kernel.
  Bytes prepare(const AttentionTile& tile);

  // The number of members that a backward launch may take with a workspace of `room`: at least one.
  std::int64_t members_within(Bytes room, AttentionTile tile);

  // Runs an op whose tile was prepared; a backward tile with the same number of members per launch.
  void execute(const AttentionForward& op, const Frame& frame);
  void execute(const AttentionBackward& op, std::int64_t members, const Frame& frame);

 private:
  CudnnHandle handle_;
  std::map<AttentionTile, ForwardPlan> forward_;
  std::map<AttentionTile, BackwardPlan> backward_;
};

}  // namespace fpdt::cuda
