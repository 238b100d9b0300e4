// Kernels of every op that is neither a collective nor a matrix product, on a GPU. Each function
// launches its kernels on the frame's stream and returns. lib/fpdt/schedule/op.h defines the
// meaning of an op, and tests compare these kernels with the CPU's.
//
// Sums run in a fixed order: the same bits on every run. Offsets are 64 bits wide.
#pragma once

#include "fpdt/cuda/frame.h"
#include "fpdt/schedule/op.h"

namespace fpdt::cuda {

void execute(const ColumnSum& op, const Frame& frame);
void execute(const Norm& op, const Frame& frame);
void execute(const NormBackward& op, const Frame& frame);
void execute(const NormColumns& op, const Frame& frame);
void execute(const NormColumnsBackward& op, const Frame& frame);
void execute(const SplitHeads& op, const Frame& frame);
void execute(const JoinHeads& op, const Frame& frame);
void execute(const Permute& op, const Frame& frame);
void execute(const Add& op, const Frame& frame);
// out[rows, width] += bias[width], in f32.
void add_bias(const View& bias, const View& out, std::int64_t rows, std::int64_t width,
              Stream stream);
void execute(const AttentionForward& op, const Frame& frame);
void execute(const AttentionDelta& op, const Frame& frame);
void execute(const AttentionBackward& op, const Frame& frame);
void execute(const AttentionSink& op, const Frame& frame);
void execute(const AttentionSinkGradient& op, const Frame& frame);
void execute(const Activation& op, const Frame& frame);
void execute(const ActivationBackward& op, const Frame& frame);
void execute(const Embedding& op, const Frame& frame);
void execute(const EmbeddingBackward& op, const Frame& frame);
void execute(const LossStatistics& op, const Frame& frame);
void execute(const LossSum& op, const Frame& frame);
void execute(const LossGradient& op, const Frame& frame);
void execute(const Fill& op, const Frame& frame);
// Copies within the device. The backend does the transfers.
void execute(const Copy& op, const Frame& frame);
void execute(const SquaredNorm& op, const Frame& frame);
void execute(const AdamW& op, const Frame& frame);
void execute(const Route& op, const Frame& frame);
void execute(const RouteBackward& op, const Frame& frame);
void execute(const ExpertLoads& op, const Frame& frame);
void execute(const BalanceLoss& op, const Frame& frame);
void execute(const Dispatch& op, const Frame& frame);
void execute(const Combine& op, const Frame& frame);
void execute(const CombineBackward& op, const Frame& frame);
void execute(const GroupedMatmul& op, const Frame& frame);
void execute(const GroupedGradient& op, const Frame& frame);
void execute(const GroupedSum& op, const Frame& frame);

}  // namespace fpdt::cuda
