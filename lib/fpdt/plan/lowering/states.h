// Parameters, gradients and optimizer states of any method, at each stage of ZeRO.
//
// Every tensor, or the part of it that a rank uses, lives flat, zero-padded to equal pieces
// (sharding.h). At stage 3 ops of the schedule gather a layer's weights before use and
// reduce-scatter its gradients after. Where one rank alone has a tensor there is nothing to gather:
// the shard itself is the operand. Gradients are zero-filled and always accumulated.
//
// Parameters and gradients of layers may have their home on the host. The parameters of a layer are
// then fetched before its use, as they are gathered, and its gradients are summed on the device and
// spilled. The norm and the update fetch them again, tensor by tensor. Gradients kept in bf16 are
// rounded after their sum, and are f32 again for the norm and the update.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/plan/lowering/builder.h"
#include "fpdt/plan/lowering/sharding.h"
#include "fpdt/spec/strategy.h"

namespace fpdt {

class States {
 public:
  States(Builder& builder, const Problem& problem, const Strategy& strategy);

  static constexpr std::int64_t kStageSlots = 2;  // of states on their way to an update

  // One tensor of every layer of a run, or a global one.
  struct Tensor : SharedTensor {
    std::int64_t first = 0, count = 1;  // layers that have it
    std::string label;                  // of its buffers: its name, and that of its run
    std::int64_t held = 0;              // elements of master and moments on one rank
    std::int64_t tile = 0;              // elements of a slot of them: all, or a part
    std::int64_t tiles = 1;
    BufferIndex param = -1, master = -1, moment1 = -1, moment2 = -1, grad = -1;
    BufferIndex gradient_sum = -1;            // of the rank, before the sum over several
    BufferIndex gathered = -1, updated = -1;  // pieces of parameters, after and before a gather
    BufferIndex gathered_block = -1, summed_block = -1;  // between two groups
    // Slots of what layers have elsewhere or in another format, else -1. `summed`: the piece of a
    // gradient, where several ranks share it; `complete_gradient`: f32, for norm and update;
    // `rounded`, `fetched_rounded`: bf16, on the way to the host and back.
    BufferIndex fetched = -1, summed = -1, complete_gradient = -1;
    BufferIndex rounded = -1, fetched_rounded = -1;
    // Where gradients that are summed in slots are kept, else -1: `grad`, or, where whole ones
    // collect on each rank, a buffer of their own.
    BufferIndex kept = -1;
    // A slice of experts, which blocks of layers gather and sum themselves.
    [[nodiscard]] bool is_slice() const { return !ring.empty(); }
    // The home of a layer's parameters is the host.
    [[nodiscard]] bool streams_parameters() const { return fetched >= 0; }
    // Gradients of a layer are summed in slots, and then copied to where they are kept.
    [[nodiscard]] bool moves_gradients() const { return kept >= 0; }
    // Whole gradients of the step collect where they are summed.
    [[nodiscard]] bool sums_whole() const {
      return sharding.collects_gradients() && !moves_gradients();
    }

    // The versions of one slot for each layer: of this step, and of the next.
    [[nodiscard]] Version now() const { return slot(0, 1); }
    [[nodiscard]] Version next() const { return slot(count, 1); }
    // `each` versions for a layer, those of the run's first one from `offset` on.
    [[nodiscard]] Version slot(std::int64_t offset, std::int64_t each) const {
      return count > 1 ? Version::at(offset - first * each, each) : Version::at(offset);
    }
    // Gradients that move have a version for each micro-batch: the sum before it, the sum with it,
    // and that of all.
    std::int64_t sums = 1;
    [[nodiscard]] Version sum_before() const { return in_micro_batch(now(), count); }
    [[nodiscard]] Version sum_after() const { return in_micro_batch(next(), sums > 1 ? count : 0); }
    [[nodiscard]] Version sum_of_all() const { return slot(count * sums, 1); }
    [[nodiscard]] static Version in_micro_batch(Version version, std::int64_t each) {
      version.micro_batch = each;
      return version;
    }
  };

  // Layers in a row that have the same tensors. Blocks of each have its suffix, "" for the only
  // run or for layers of experts.
  struct Run {
    std::int64_t first = 0, count = 0;
    std::string suffix;
    std::vector<Tensor> tensors;
    std::vector<std::string> names;
  };
  [[nodiscard]] const std::vector<Run>& runs() const { return runs_; }
  [[nodiscard]] const Run& run_of(std::int64_t layer) const;
  // Names of layer tensors mean those of this run from now on.
  void enter(const Run& run) { run_ = static_cast<std::size_t>(&run - runs_.data()); }
  // Those of the run.
  [[nodiscard]] const std::vector<std::string>& layer_names() const { return runs_[run_].names; }

  // The tensor, or the part that this rank uses, as a consumer reads it. `use` numbers the gathers
  // of layer tensors (a version affine in the call's arguments); one rank ignores it. Rows count
  // elements.
  [[nodiscard]] Operand weight(std::string_view name, const Version& use) const;
  // The same for elements [first, first + elements).
  [[nodiscard]] Operand weight_rows(std::string_view name, const Version& use, std::int64_t first,
                                    std::int64_t elements) const;
  [[nodiscard]] bool has(std::string_view name) const { return found(name) != nullptr; }
  // Whether ranks share the terms of products with a weight: it is cut along its input.
  [[nodiscard]] bool shares_terms(std::string_view weight) const {
    return find(weight).cut.axis == 1;
  }
  // The target that gradients accumulate into. `sum` is the version of the unsharded sum (several
  // ranks).
  [[nodiscard]] Target gradient(std::string_view name, const Version& sum) const;
  [[nodiscard]] Target gradient_rows(std::string_view name, const Version& sum, std::int64_t first,
                                     std::int64_t elements) const;

  // These emit into the open block: the gather of the tensors, and the zero-fill and reduction of
  // their sums.
  void emit_gather(Builder& builder, const std::vector<std::string>& names, const Version& use,
                   std::string_view op) const;
  void emit_fill(Builder& builder, const std::vector<std::string>& names, const Version& sum) const;
  // Brings the sums that micro-batches before have left, of the run.
  void emit_resume(Builder& builder) const;
  void emit_reduce(Builder& builder, const std::vector<std::string>& names, const Version& sum,
                   std::string_view op) const;

  // A slice of experts for the ops that follow, gathered in the open block if need be; and slots
  // for the sum of its gradient, which are then added to that of the layer.
  [[nodiscard]] Operand bring_slice(Builder& builder, std::string_view name, const Version& use,
                                    const std::string& op) const;
  [[nodiscard]] Target begin_slice_gradient(Builder& builder, std::string_view name,
                                            const std::string& op) const;
  void reduce_slice_gradient(Builder& builder, std::string_view name, const Target& sum,
                             std::string_view op) const;

  // The workspace of the next sum over ranks in the open block.
  [[nodiscard]] Operand next_workspace(Builder& builder) const;

  // Emits whole blocks: begin, grad_norm, optimizer, finish and finish_evaluate; and for each run
  // begin_layer, begin_sums, resume_sums, grad_norm_layer and optimizer_layer. Head and trainer
  // share the scalars `step` and `loss`.
  void emit_blocks(Builder& builder);
  // Adds the table of states.
  void add_table(Builder& builder) const;
  [[nodiscard]] Operand loss_scale() const { return {step_, Version::at(0), 3, 1}; }
  [[nodiscard]] Target loss() const { return {{loss_, Version::at(0), 0, -1}, true}; }

  // The balance of experts over a sequence, if the model asks for it (ADR 0034). Each block that
  // routes in forward adds to `loads` and `chances`.
  [[nodiscard]] bool balances() const { return problem_.model.balances(); }
  [[nodiscard]] Target loads() const { return {{loads_, kMicroBatch, 0, -1}, true}; }
  [[nodiscard]] Target chances() const { return {{chances_, kMicroBatch, 0, -1}, true}; }
  // The loads of all ranks of the sequence, after emit_balance.
  [[nodiscard]] Operand sequence_loads() const {
    return {loads_total_ < 0 ? loads_ : loads_total_, kMicroBatch, 0, -1};
  }
  [[nodiscard]] double balance() const { return sequence_balance(problem_, strategy_); }
  [[nodiscard]] double z() const { return sequence_z(problem_, strategy_); }
  void emit_clear_loads(Builder& builder) const;
  // Adds up the loads of a sequence's ranks, and its balance.
  void emit_balance(Builder& builder) const;

  // Whether blocks of the step gather parameters of embedding and head, and those of layers.
  [[nodiscard]] bool gathers() const { return several() && strategy_.zero == 3; }
  [[nodiscard]] bool gathers_layers() const {
    return gathers() || runs_.front().tensors.front().streams_parameters();
  }
  // Whether gradients of layers are zero-filled when a step begins.
  [[nodiscard]] bool begins_layers() const {
    return !runs_.front().tensors.front().moves_gradients();
  }
  // Whether the sums of a layer begin in a block of their own: "begin_sums" in the first
  // micro-batch, "resume_sums" in the others.
  [[nodiscard]] bool resumes_sums() const { return runs_.front().tensors.front().sums > 1; }

 private:
  [[nodiscard]] const Tensor* found(std::string_view name) const;
  [[nodiscard]] const Tensor& find(std::string_view name) const;
  // With a run, a tensor of its layers; else a global one.
  void add(Builder& builder, const SharedTensor& shared, Run* run);
  [[nodiscard]] bool several() const { return problem_.ranks() > 1; }
  using Shares = std::function<bool(const Sharding&)>;
  using Named = std::function<Operand(const Tensor&)>;
  using Levels = std::function<std::pair<std::size_t, std::size_t>(const Tensor&)>;
  // Those of the tensors that the same groups share, together.
  static std::vector<std::vector<const Tensor*>> alike(const std::vector<const Tensor*>& tensors,
                                                       const Shares& shares);
  // Emit the gathers and the sums of tensors whose sharding `shares` accepts; `send` and `receive`
  // name the operands of one. A gather goes over `levels` of its groups, from first to end; a sum
  // goes over all, and ends in the tensor's gradient.
  static void gather(Builder& builder, std::string_view op,
                     const std::vector<const Tensor*>& tensors, const Shares& shares,
                     const Named& send, const Named& receive, const Levels& levels);
  void sum(Builder& builder, std::string_view op, const std::vector<const Tensor*>& tensors,
           const Shares& shares, const Named& send, const Named& receive, bool accumulate) const;
  [[nodiscard]] std::vector<const Tensor*> all(const std::vector<std::string>& names) const;
  [[nodiscard]] std::vector<const Tensor*> all_but_slices(
      const std::vector<std::string>& names) const;
  // Adds sums of version `of` to those of the layer: of version `piece`, where gradients move.
  void emit_sum(Builder& builder, const std::vector<const Tensor*>& tensors, const Version& of,
                const Version& piece, std::string_view op) const;
  // Declare buffers of elements of a tensor: what lives across steps, and what does not.
  static BufferIndex state(Builder& builder, const char* kind, const Tensor& tensor,
                           Category category, Dtype dtype, std::int64_t elements,
                           std::int64_t slots, MemorySpace space = MemorySpace::device);
  static BufferIndex temporary(Builder& builder, const std::string& name, Category category,
                               Dtype dtype, std::int64_t elements, std::int64_t slots);
  void declare_blocks(Builder& builder, Tensor& tensor, const Tensor* same) const;
  void declare_wholes(Builder& builder, Tensor& tensor, std::int64_t slots,
                      const Tensor* same) const;
  // Of the slices before, if there are any: those whose slots a slice uses as well.
  static const Tensor* same_slots(const Run* run, const Tensor& tensor);
  void declare_streams(Builder& builder, Tensor& tensor) const;
  void declare_scalars(Builder& builder);
  void declare_stages(Builder& builder);
  [[nodiscard]] std::int64_t state_tile(std::int64_t held) const;
  void add_state_rows(Builder& builder, const Tensor& tensor, bool layered) const;
  [[nodiscard]] AdamW update_of(const Tensor& tensor, const Operand& gradient, std::int64_t first,
                                std::int64_t rows) const;
  // A tensor's complete gradient on the device in f32; brings it in the open block if need be.
  [[nodiscard]] Operand complete_gradient(Builder& builder, const Tensor& tensor) const;
  void emit_keep(Builder& builder, const Tensor& tensor, const Operand& sum) const;
  void bring(Builder& builder, const Tensor& tensor, const Version& sum, const Operand& to) const;
  // The sum of the part that this rank keeps.
  static Operand piece_of(const Tensor& tensor, const Version& sum);
  void emit_updates(Builder& builder, const std::vector<Tensor>& tensors) const;
  void emit_total(Builder& builder, std::string_view op, BufferIndex scalar,
                  BufferIndex total) const;
  static void emit_whole_gradients(Builder& builder, const std::vector<const Tensor*>& tensors);
  static void emit_spread(Builder& builder, const std::vector<const Tensor*>& tensors);
  void emit_streamed_update(Builder& builder, const Tensor& tensor, const Operand& gradient,
                            std::int64_t& tile) const;
  [[nodiscard]] LaneKind out_lane() const {
    return strategy_.copies.duplex ? LaneKind::d2h : LaneKind::h2d;
  }
  void emit_begin(Builder& builder);
  void emit_norm(Builder& builder);
  // A block for each run, "<name><suffix>", with what emit(run) emits.
  template <class Emit>
  void for_each_run(Builder& builder, const std::string& name, Emit emit);
  void emit_finish(Builder& builder) const;

  const Problem& problem_;
  const Strategy& strategy_;
  std::vector<Run> runs_;
  std::size_t run_ = 0;
  std::vector<Tensor> global_;
  std::int64_t largest_tile_ = 0;  // elements of a piece of any tensor
  Bytes largest_sum_;              // workspace of the sums of gradients
  BufferIndex step_input_ = -1, step_ = -1, loss_ = -1, loss_total_ = -1, loss_output_ = -1;
  BufferIndex norm_ = -1, norm_total_ = -1, norm_output_ = -1;
  BufferIndex node_total_ = -1;  // of a node's ranks, before the sum over nodes
  BufferIndex loads_ = -1, chances_ = -1, loads_total_ = -1;
  BufferIndex loads_workspace_ = -1;
  BufferIndex balance_ = -1, balance_total_ = -1, balance_output_ = -1;
  // Only with several ranks. All sums but that of loads run on one lane and share it.
  BufferIndex sum_workspace_ = -1;
  std::array<BufferId, 3> stages_{};  // of master, moment1 and moment2 on their way to an update
};

}  // namespace fpdt
