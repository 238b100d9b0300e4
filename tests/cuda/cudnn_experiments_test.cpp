// Questions about cuDNN that only a GPU answers, at the size of one rank of four of Llama 3 8B. The
// tests print their findings for the log, and fail only when a result is wrong. Without a GPU they
// run on the emulator at the smallest size, which tests the tests.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/cuda/cudnn_attention.h"

#include "../cpu/kernel_case.h"
#include "device_under_test.h"

namespace fpdt {
namespace {

constexpr std::int64_t kHeads = 8, kKvHeads = 2, kHeadDim = 128;

bool on_emulator() { return rows_of_experiments() < 1024; }

// bf16 values in [-1, 1): one random block, repeated.
DeviceBytes noise(std::int64_t elements) {
  static std::mt19937 random(1);
  std::vector<std::uint16_t> values(static_cast<std::size_t>(elements));
  constexpr std::size_t kBlock = (1 << 20) - 3;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        i < kBlock ? to_bf16(static_cast<float>(random()) * 0x1p-31F - 1.0F) : values[i - kBlock];
  }
  DeviceBytes memory = device_memory(2 * elements);
  upload(memory.get(), std::as_bytes(std::span(values)));
  return memory;
}

DeviceBytes filled(std::int64_t elements, float value) {
  const std::vector<float> values(static_cast<std::size_t>(elements), value);
  DeviceBytes memory = device_memory(4 * elements);
  upload(memory.get(), std::as_bytes(std::span(values)));
  return memory;
}

// The tile below the diagonal of a triangle of chunks, with its operands on the device.
class BackwardTile {
 public:
  BackwardTile()
      : rows_(rows_of_experiments()),
        q_(noise(query_elements())),
        kv_(noise(key_elements())),
        dout_(noise(query_elements())),
        lse_(filled(rows_ * kHeads, std::log(static_cast<float>(rows_)))),
        delta_(filled(rows_ * kHeads, 1.0F)),
        dq_(device_memory(4 * query_elements())),
        dkv_(device_memory(4 * key_elements())) {
    op.q = operand(0), op.kv = operand(1), op.dout = operand(2), op.lse = operand(3);
    op.delta = operand(4), op.dq = {operand(5), false}, op.dkv = {operand(6), false};
    op.workspace = operand(7);
    op.q_first = op.q_rows = op.k_rows = rows_;
    op.heads = kHeads, op.kv_heads = kKvHeads, op.head_dim = kHeadDim;
    op.scale = 1 / std::sqrt(static_cast<double>(kHeadDim));
  }
  [[nodiscard]] std::int64_t query_elements() const { return rows_ * kHeads * kHeadDim; }
  [[nodiscard]] std::int64_t key_elements() const { return rows_ * 2 * kKvHeads * kHeadDim; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] const std::byte* dq() const { return dq_.get(); }
  [[nodiscard]] const std::byte* dkv() const { return dkv_.get(); }

  // The operands, in the order of their fields.
  [[nodiscard]] std::vector<View> views(std::byte* workspace, Bytes bytes) const {
    const auto view = [](const DeviceBytes& memory, std::int64_t elements, Dtype dtype,
                         Access access) {
      return View{memory.get(), elements, dtype, access};
    };
    return {view(q_, query_elements(), Dtype::bf16, Access::read),
            view(kv_, key_elements(), Dtype::bf16, Access::read),
            view(dout_, query_elements(), Dtype::bf16, Access::read),
            view(lse_, rows_ * kHeads, Dtype::f32, Access::read),
            view(delta_, rows_ * kHeads, Dtype::f32, Access::read),
            view(dq_, query_elements(), Dtype::f32, Access::write),
            view(dkv_, key_elements(), Dtype::f32, Access::write),
            View{workspace, bytes.value / 4, Dtype::f32, Access::write}};
  }

  AttentionBackward op;

 private:
  static Operand operand(BufferIndex number) { return {.buffer = number, .version = {}}; }

  std::int64_t rows_;
  DeviceBytes q_, kv_, dout_, lse_, delta_, dq_, dkv_;
};

std::vector<float> floats(const std::byte* memory, std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  download(std::as_writable_bytes(std::span(values)), memory);
  return values;
}

// The shortest of three runs after a warm-up; on an emulator, of one run.
template <class F>
double milliseconds(F&& run) {
  double least = std::numeric_limits<double>::infinity();
  const int runs = on_emulator() ? 1 : 4;
  for (int i = 0; i < runs; ++i) {
    synchronise_device();
    const auto begin = std::chrono::steady_clock::now();
    run();
    synchronise_device();
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    if (i > 0 || runs == 1) least = std::min(least, taken.count());
  }
  return least;
}

struct Difference {
  double largest = 0, of = 0;  // the largest error, and the largest value
};
Difference difference(const std::vector<float>& a, const std::vector<float>& b) {
  Difference found;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double apart = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    found.largest = std::isnan(apart) ? apart : std::max(found.largest, apart);
    found.of = std::max(found.of, std::abs(static_cast<double>(a[i])));
    if (std::isnan(found.largest)) break;
  }
  return found;
}

// A launch for each member, as before members were a batch; for two members; and one for all.
TEST(CudnnExperiment, MembersOfALaunch) {
  const BackwardTile tile;
  cuda::AttentionPlans plans;
  std::vector<float> dq, dkv;
  for (const std::int64_t members : {1, 2, 4}) {
    const Bytes room = plans.prepare(cuda::tile_of(tile.op, 0, members));
    const DeviceBytes workspace = device_memory(room.value);
    const std::vector<View> views = tile.views(workspace.get(), room);
    const cuda::Frame frame{views, 0, device_stream(0), nullptr};
    const double time = milliseconds([&] { plans.execute(tile.op, members, frame); });
    const std::vector<float> now_q = floats(tile.dq(), tile.query_elements());
    const std::vector<float> now_kv = floats(tile.dkv(), tile.key_elements());
    if (members == 1) dq = now_q, dkv = now_kv;
    const Difference of_q = difference(dq, now_q), of_kv = difference(dkv, now_kv);
    std::printf(
        "cudnn backward, %lld rows, %lld of 4 members a launch: %.3f ms; from one: dq %.3g of "
        "%.3g, dkv %.3g of %.3g\n",
        static_cast<long long>(tile.rows()), static_cast<long long>(members), time, of_q.largest,
        of_q.of, of_kv.largest, of_kv.of);
    EXPECT_GT(of_q.of, 0);
    EXPECT_GT(of_kv.of, 0);
    // A head read at a wrong place errs by its whole size; another order of sums, by far less.
    EXPECT_LE(of_q.largest, kUnitBf16 * of_q.of);
    EXPECT_LE(of_kv.largest, kUnitBf16 * of_kv.of);
  }
}

// The mean of runs that follow others for a second: a GPU at its power limit slows down meanwhile.
template <class F>
double sustained_milliseconds(F&& run) {
  const auto mean_of = [&](int runs) {
    synchronise_device();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < runs; ++i) run();
    synchronise_device();
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    return taken.count() / runs;
  };
  if (on_emulator()) return mean_of(1);
  mean_of(1);
  const int runs = 1 + static_cast<int>(1000 / mean_of(1));
  mean_of(runs);
  return mean_of(runs);
}

// Forward tiles in steps of an H200 reached 620 TFLOP/s in chunks of 64K tokens, 570 in chunks of
// 128K and 525 in chunks of 256K, whatever their keys; backward tiles the same rate in all of them
// (docs/results/gpu.md). Do blocks of a long launch drift apart, so that each reads its own keys
// from memory? Then several launches for a chunk are faster than one.
TEST(CudnnExperiment, RateOfLongTiles) {
  const std::int64_t least = 2 * rows_of_experiments();
  const std::int64_t most_rows = on_emulator() ? least : 4 * least;
  const std::int64_t most_keys = on_emulator() ? least : 16 * least;
  const DeviceBytes q = noise(most_rows * kHeads * kHeadDim);
  const DeviceBytes kv = noise(most_keys * 2 * kKvHeads * kHeadDim);
  for (std::int64_t rows = least; rows <= most_rows; rows *= 2) {
    for (std::int64_t keys = least; keys <= most_keys; keys *= 16) {
      const auto operand = [](BufferIndex number) { return Operand{number, {}}; };
      AttentionForward op;
      op.q = operand(0), op.kv = operand(1);
      op.o = {operand(2), false}, op.lse = {operand(3), false};
      op.workspace = operand(4);
      op.q_first = keys, op.q_rows = rows, op.k_rows = keys;
      op.heads = kHeads, op.kv_heads = kKvHeads, op.head_dim = kHeadDim;
      op.scale = 1 / std::sqrt(static_cast<double>(kHeadDim));
      cuda::AttentionPlans plans;
      const Bytes room = plans.prepare(cuda::tile_of(op, 0));
      const std::int64_t values = rows * kHeads * kHeadDim;
      const DeviceBytes o = device_memory(4 * values), lse = device_memory(4 * rows * kHeads);
      const DeviceBytes workspace = device_memory(room.value);
      const std::vector<View> views = {
          {q.get(), values, Dtype::bf16, Access::read},
          {kv.get(), keys * 2 * kKvHeads * kHeadDim, Dtype::bf16, Access::read},
          {o.get(), values, Dtype::f32, Access::write},
          {lse.get(), rows * kHeads, Dtype::f32, Access::write},
          {workspace.get(), room.value / 4, Dtype::f32, Access::write}};
      const cuda::Frame frame{views, 0, device_stream(0), nullptr};
      const double time = sustained_milliseconds([&] { plans.execute(op, frame); });
      std::printf("cudnn forward, %lld rows, %lld keys: %.3f ms, %.4g TFLOP/s\n",
                  static_cast<long long>(rows), static_cast<long long>(keys), time,
                  4.0 * static_cast<double>(values) * static_cast<double>(keys) / time / 1e9);
      const std::vector<float> sums = floats(lse.get(), rows * kHeads);
      const Difference found = difference(sums, sums);
      EXPECT_EQ(found.largest, 0) << "not a number";
      EXPECT_GT(found.of, 0);
    }
  }
}

}  // namespace
}  // namespace fpdt
