// Rates of the kernels that bound a step, next to plain Eigen on the same shapes in the same run:
//
//   kernels_benchmark --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
//
// `GFLOP/s` counts executed flops: 2 m n k for a product, 4 q k D per head for a forward tile below
// the diagonal, 10 q k D for a backward tile. For ops bound by memory `GB/s` counts bytes read and
// written.
#include <vector>

#include <Eigen/Core>
#include <benchmark/benchmark.h>

#include "fpdt/cpu/kernels.h"

namespace fpdt {
namespace {

// Memory of one operand, filled with small values.
struct Memory {
  Memory(std::int64_t elements, Dtype dtype, Access access = Access::read)
      : values(static_cast<std::size_t>(elements * dtype_bytes(dtype)) / sizeof(float) + 1),
        view{reinterpret_cast<std::byte*>(values.data()), elements, dtype, access} {
    std::uint32_t state = 1;
    for (float& value : values) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(state >> 8) / static_cast<float>(1 << 24) - 0.5F;
    }
  }
  std::vector<float> values;
  View view;
};

Operand some() { return {.buffer = 0, .version = {}}; }

void rate(benchmark::State& state, const char* unit, double amount) {
  const double total = amount * 1e-9 * static_cast<double>(state.iterations());
  state.counters[unit] = benchmark::Counter(total, benchmark::Counter::kIsRate);
}

void run_repeatedly(benchmark::State& state, const Body& body, const std::vector<View>& views,
                    std::int32_t threads) {
  Pool pool(threads);
  Kernels kernels(pool);
  for (auto _ : state) kernels.run(body, views, 0);
}

// Arguments: rows, width of the output, depth, storage of a and b, transpose_a, transpose_b,
// threads.
void matmul(benchmark::State& state) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const Dtype dtype = state.range(3) != 0 ? Dtype::bf16 : Dtype::f32;
  const Memory a(m * k, dtype), b(k * n, dtype), out(m * n, dtype, Access::write);
  Matmul op;
  op.a = op.b = op.out.operand = some();
  op.m = m, op.n = n, op.k = k;
  op.transpose_a = state.range(4) != 0, op.transpose_b = state.range(5) != 0;
  const std::vector<View> views{a.view, b.view, out.view};
  run_repeatedly(state, op, views, static_cast<std::int32_t>(state.range(6)));
  const auto product = [](std::int64_t x, std::int64_t y) { return static_cast<double>(x * y); };
  rate(state, "GFLOP/s", 2 * product(m, n) * static_cast<double>(k));
}

void matmul_eigen(benchmark::State& state) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const Matrix a = Matrix::Random(m, k), b = Matrix::Random(n, k);
  Matrix c(m, n);
  for (auto _ : state) {
    c.noalias() = a * b.transpose();
    benchmark::DoNotOptimize(c.data());
  }
  rate(state, "GFLOP/s", 2 * static_cast<double>(m * n) * static_cast<double>(k));
}

// Arguments: rows of queries and keys, heads, KV heads, D, storage, threads.
void attention_forward(benchmark::State& state) {
  const std::int64_t rows = state.range(0), heads = state.range(1), kv_heads = state.range(2);
  const std::int64_t size = state.range(3);
  const Dtype dtype = state.range(4) != 0 ? Dtype::bf16 : Dtype::f32;
  const Memory q(rows * heads * size, dtype), kv(rows * 2 * kv_heads * size, dtype);
  const Memory o(rows * heads * size, Dtype::f32, Access::write);
  const Memory lse(rows * heads, Dtype::f32, Access::write);
  AttentionForward op;
  op.q = op.kv = op.o.operand = op.lse.operand = some();
  op.q_first = op.q_rows = op.k_rows = rows;
  op.heads = heads, op.kv_heads = kv_heads, op.head_dim = size, op.scale = 0.125;
  const std::vector<View> views{q.view, kv.view, o.view, lse.view};
  run_repeatedly(state, op, views, static_cast<std::int32_t>(state.range(5)));
  rate(state, "GFLOP/s",
       4.0 * static_cast<double>(rows * rows) * static_cast<double>(heads * size));
}

void attention_backward(benchmark::State& state) {
  const std::int64_t rows = state.range(0), heads = state.range(1), kv_heads = state.range(2);
  const std::int64_t size = state.range(3);
  const Dtype dtype = state.range(4) != 0 ? Dtype::bf16 : Dtype::f32;
  const Memory q(rows * heads * size, dtype), kv(rows * 2 * kv_heads * size, dtype);
  const Memory dout(rows * heads * size, dtype), lse(rows * heads, Dtype::f32);
  const Memory delta(rows * heads, Dtype::f32);
  const Memory dq(rows * heads * size, Dtype::f32, Access::write);
  const Memory dkv(rows * 2 * kv_heads * size, Dtype::f32, Access::write);
  AttentionBackward op;
  op.q = op.kv = op.dout = op.lse = op.delta = op.dq.operand = op.dkv.operand = some();
  op.q_first = op.q_rows = op.k_rows = rows;
  op.heads = heads, op.kv_heads = kv_heads, op.head_dim = size, op.scale = 0.125;
  const std::vector<View> views{q.view,     kv.view, dout.view, lse.view,
                                delta.view, dq.view, dkv.view};
  run_repeatedly(state, op, views, static_cast<std::int32_t>(state.range(5)));
  rate(state, "GFLOP/s",
       10.0 * static_cast<double>(rows * rows) * static_cast<double>(heads * size));
}

void norm_backward(benchmark::State& state) {
  const std::int64_t rows = state.range(0), width = state.range(1);
  const Memory x(rows * width, Dtype::f32), weight(width, Dtype::f32), dy(rows * width, Dtype::f32);
  const Memory dx(rows * width, Dtype::f32, Access::write);
  const Memory dweight(width, Dtype::f32, Access::accumulate);
  NormBackward op;
  op.x = op.weight = op.dy = op.dx.operand = op.dweight.operand = some();
  op.rows = rows, op.width = width;
  const std::vector<View> views{x.view, weight.view, dy.view, dx.view, dweight.view};
  run_repeatedly(state, op, views, static_cast<std::int32_t>(state.range(2)));
  rate(state, "GB/s", 12.0 * static_cast<double>(rows * width));
}

void activation(benchmark::State& state) {
  const std::int64_t rows = state.range(0), width = state.range(1);
  const Memory x(2 * rows * width, Dtype::f32), y(rows * width, Dtype::f32, Access::write);
  Activation op;
  op.x = op.y.operand = some();
  op.kind = ActivationKind::swiglu;
  op.rows = rows, op.width = width;
  const std::vector<View> views{x.view, y.view};
  run_repeatedly(state, op, views, static_cast<std::int32_t>(state.range(2)));
  rate(state, "GB/s", 12.0 * static_cast<double>(rows * width));
}

BENCHMARK(matmul_eigen)->Args({512, 512, 512})->Args({1024, 1024, 1024})->Args({2048, 2048, 1024});
BENCHMARK(matmul)
    ->ArgNames({"m", "n", "k", "bf16", "ta", "tb", "threads"})
    ->Args({512, 512, 512, 0, 0, 1, 1})
    ->Args({1024, 1024, 1024, 0, 0, 1, 1})
    ->Args({1024, 1024, 1024, 0, 0, 0, 1})
    ->Args({1024, 1024, 1024, 0, 1, 0, 1})
    ->Args({1024, 1024, 1024, 1, 0, 1, 1})
    ->Args({2048, 2048, 1024, 0, 0, 1, 1})
    ->Args({2048, 2048, 1024, 0, 0, 1, 2})
    ->UseRealTime();
BENCHMARK(attention_forward)
    ->ArgNames({"rows", "h", "g", "D", "bf16", "threads"})
    ->Args({1024, 4, 2, 64, 0, 1})
    ->Args({1024, 4, 2, 128, 0, 1})
    ->Args({1024, 4, 2, 128, 1, 1})
    ->Args({1024, 4, 2, 128, 0, 2})
    ->UseRealTime();
BENCHMARK(attention_backward)
    ->ArgNames({"rows", "h", "g", "D", "bf16", "threads"})
    ->Args({1024, 4, 2, 64, 0, 1})
    ->Args({1024, 4, 2, 128, 0, 1})
    ->Args({1024, 4, 2, 128, 1, 1})
    ->Args({1024, 4, 2, 128, 0, 2})
    ->UseRealTime();
BENCHMARK(norm_backward)
    ->ArgNames({"rows", "width", "threads"})
    ->Args({1024, 4096, 1})
    ->UseRealTime();
BENCHMARK(activation)->ArgNames({"rows", "width", "threads"})->Args({1024, 4096, 1})->UseRealTime();

}  // namespace
}  // namespace fpdt

BENCHMARK_MAIN();
