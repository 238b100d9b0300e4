// Questions about cuDNN's backward that only a GPU answers, at the size of one rank of four of
// Llama 3 8B. The tests print their findings for the log, and fail only when a result is wrong.
// Without a GPU they run on the emulator at the smallest size, which tests the tests.
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

constexpr std::int64_t kHeads = 8, kKvHeads = 2;

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
  explicit BackwardTile(std::int64_t head_dim = 128)
      : rows_(rows_of_experiments()),
        head_dim_(head_dim),
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
    op.heads = kHeads, op.kv_heads = kKvHeads, op.head_dim = head_dim_;
    op.scale = 1 / std::sqrt(static_cast<double>(head_dim_));
  }
  [[nodiscard]] std::int64_t query_elements() const { return rows_ * kHeads * head_dim_; }
  [[nodiscard]] std::int64_t key_elements() const { return rows_ * 2 * kKvHeads * head_dim_; }
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

  std::int64_t rows_, head_dim_;
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
  const int runs = rows_of_experiments() < 1024 ? 1 : 4;
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

// Whether heads of 256 are worth giving to cuDNN (`largest_cudnn_head`).
TEST(CudnnExperiment, RateOfLargeHeads) {
  for (const std::int64_t head_dim : {128, 256}) {
    const BackwardTile tile(head_dim);
    cuda::AttentionPlans plans;
    const Bytes room = plans.prepare(cuda::tile_of(tile.op, 0, 1));
    const DeviceBytes workspace = device_memory(room.value);
    const std::vector<View> views = tile.views(workspace.get(), room);
    const cuda::Frame frame{views, 0, device_stream(0), nullptr};
    const double time = milliseconds([&] { plans.execute(tile.op, 1, frame); });
    const auto flops =
        10.0 * static_cast<double>(tile.rows()) * static_cast<double>(tile.query_elements());
    std::printf("cudnn backward, %lld rows, heads of %lld: %.3f ms, %.4g TFLOP/s\n",
                static_cast<long long>(tile.rows()), static_cast<long long>(head_dim), time,
                flops / time / 1e9);
    const std::vector<float> dq = floats(tile.dq(), tile.query_elements());
    const Difference found = difference(dq, dq);
    EXPECT_EQ(found.largest, 0) << "not a number";
    EXPECT_GT(found.of, 0);
  }
}

}  // namespace
}  // namespace fpdt
