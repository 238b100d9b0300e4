// AdamW against its formulas.
#include <limits>

#include "kernel_case.h"

namespace fpdt {
namespace {

struct AdamWCase {
  KernelCase memory;
  AdamW op;
  std::vector<double> master, m, v, grad;

  explicit AdamWCase(double squared_norm, Dtype grad_type = Dtype::f32) {
    constexpr std::int64_t kCount = 40003;
    op.grad = memory.put_random(grad_type, kCount);
    op.norm = memory.put(Dtype::f32, {squared_norm});
    op.step = memory.put(Dtype::f32, {0.01, 0.5, 0.25, 1});
    op.master = memory.put_random(Dtype::f32, kCount);
    op.m = memory.put_random(Dtype::f32, kCount);
    std::vector<double> squares = memory.random(kCount);
    for (double& value : squares) value *= value;
    op.v = memory.put(Dtype::f32, squares);
    op.master_out.operand = op.master;  // in place
    op.m_out.operand = op.m;
    op.v_out.operand = op.v;
    op.param = memory.write(Dtype::bf16, kCount);
    op.weight_decay = 0.1;
    op.clip = 1;
    master = memory.values(op.master), m = memory.values(op.m), v = memory.values(op.v);
    grad = memory.values(op.grad);
  }
  void expect_step(double coefficient) const {
    std::vector<double> new_master, new_m, new_v;
    for (std::size_t i = 0; i < master.size(); ++i) {
      const double g = grad[i] * coefficient;
      new_m.push_back(op.beta1 * m[i] + (1 - op.beta1) * g);
      new_v.push_back(op.beta2 * v[i] + (1 - op.beta2) * g * g);
      const double step = (new_m[i] / 0.5) / (std::sqrt(new_v[i] / 0.25) + op.epsilon);
      new_master.push_back(master[i] - 0.01 * (step + 0.1 * master[i]));
    }
    // A handful of operations on numbers up to one; the quotient is multiplied by 0.01, and v is at
    // least (1 - beta2) g^2, so |step| <= 2 (|m| + |g|) / sqrt(v) stays below 100 but for a few
    // elements.
    expect_close(memory.values(op.m), new_m, 4 * kUnit, Dtype::f32);
    expect_close(memory.values(op.v), new_v, 4 * kUnit, Dtype::f32);
    std::vector<Expected> expected;
    for (std::size_t i = 0; i < master.size(); ++i) {
      const double step = std::abs(new_master[i] - master[i]);
      const double m_error = 0.01 * 2 * 4 * kUnit / std::sqrt(new_v[i] / 0.25);
      expected.push_back({new_master[i], 4 * kUnit + 16 * kUnit * step + m_error});
    }
    expect_close(memory.values(op.master), expected, Dtype::f32);
    expect_close(memory.values(op.param), memory.values(op.master), 0, Dtype::bf16);
  }
};

TEST(AdamWKernel, ClipsByTheGlobalNorm) {
  AdamWCase big(16.0);
  big.memory.run(big.op);
  big.expect_step(0.25);
}

TEST(AdamWKernel, SmallNormsAreNotScaled) {
  AdamWCase small(0.25, Dtype::bf16);
  small.memory.run(small.op);
  small.expect_step(1);
}

TEST(AdamWKernel, ZeroClipMeansNone) {
  AdamWCase big(16.0);
  big.op.clip = 0;
  big.memory.run(big.op);
  big.expect_step(1);
}

TEST(AdamWKernel, NothingChangesWhenTheNormIsNotFinite) {
  for (const double norm : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    AdamWCase broken(norm);
    broken.memory.run(broken.op);
    EXPECT_EQ(broken.memory.values(broken.op.master), broken.master);
    EXPECT_EQ(broken.memory.values(broken.op.m), broken.m);
    EXPECT_EQ(broken.memory.values(broken.op.v), broken.v);
    expect_close(broken.memory.values(broken.op.param), broken.master, 0, Dtype::bf16);
  }
}

}  // namespace
}  // namespace fpdt
