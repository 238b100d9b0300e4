// Emits products and norms.
#include "fpdt/plan/lowering/products.h"

#include <fmt/format.h>

namespace fpdt {

void Products::linear(const std::string& op, const std::string& layer, const Version& use,
                      const Operand& x, const Operand& y, std::int64_t rows, std::int64_t in,
                      std::int64_t out, const Operand& addend) {
  Matmul product{x, states_.weight(layer + ".weight", use), {}, {}, {y, false}};
  if (!states_.shares_terms(layer + ".weight")) {
    product.bias = optional_weight(layer + ".bias", use);
    product.addend = addend;
  }
  product.m = rows;
  product.n = out;
  product.k = in;
  product.transpose_b = true;
  builder_.emit(op, LaneKind::compute, product);
}

void Products::linear_part(const std::string& op, const std::string& layer, const Version& use,
                           const Operand& x, const Operand& y, std::int64_t rows, std::int64_t in,
                           std::int64_t first, std::int64_t out) {
  Matmul product{
      x, states_.weight_rows(layer + ".weight", use, first * in, out * in), {}, {}, {y, false}};
  if (states_.has(layer + ".bias")) {
    product.bias = states_.weight_rows(layer + ".bias", use, first, out);
  }
  product.m = rows;
  product.n = out;
  product.k = in;
  product.transpose_b = true;
  builder_.emit(op, LaneKind::compute, product);
}

void Products::linear_backward(const std::string& op, const std::string& layer, const Version& use,
                               const Operand& dy, const Operand& dx, std::int64_t rows,
                               std::int64_t in, std::int64_t out, const Operand& addend) {
  Matmul product{dy, states_.weight(layer + ".weight", use), {}, addend, {dx, false}};
  product.m = rows;
  product.n = in;
  product.k = out;
  builder_.emit(op, LaneKind::compute, product);
}

// Only the tensor itself is summed into, not the padding of its shards.
void Products::linear_gradient(const std::string& place, const std::string& layer,
                               const Operand& dy, const Operand& x, std::int64_t rows,
                               std::int64_t in, std::int64_t out, std::int64_t first) {
  const Version sum = Version::plus(0);
  Matmul product{dy, x, {}, {}, states_.gradient_rows(layer + ".weight", sum, 0, out * in)};
  product.m = out;
  product.n = in;
  product.k = rows;
  product.transpose_a = true;
  product.local_first = first;
  builder_.emit(builder_.name("dw_{}.{}", layer, place), LaneKind::compute, product);
  if (!states_.shares_terms(layer + ".weight")) bias_gradient(place, layer, dy, rows, out, first);
}

void Products::bias_gradient(const std::string& place, const std::string& layer, const Operand& dy,
                             std::int64_t rows, std::int64_t out, std::int64_t first) {
  const std::string bias = layer + ".bias";
  if (!states_.has(bias)) return;
  builder_.emit(
      builder_.name("db_{}.{}", layer, place), LaneKind::compute,
      ColumnSum{dy, states_.gradient_rows(bias, Version::plus(0), 0, out), rows, out, first});
}

void Products::norm(const std::string& op, const std::string& layer, const Version& use,
                    const Operand& x, const Operand& y, std::int64_t rows) {
  builder_.emit(op, LaneKind::compute,
                Norm{x,
                     states_.weight(layer + ".weight", use),
                     optional_weight(layer + ".bias", use),
                     {y, false},
                     norm_kind(),
                     model_.norm_epsilon,
                     rows,
                     model_.hidden});
}

void Products::norm_backward(const std::string& op, const NormGradient& of) {
  NormBackward back;
  back.x = of.x;
  back.weight = states_.weight(of.layer + ".weight", of.use);
  back.dy = of.dy;
  back.addend = of.addend;
  back.dx = {of.dx, false};
  back.dweight = states_.gradient_rows(of.layer + ".weight", of.sum, 0, model_.hidden);
  if (states_.has(of.layer + ".bias")) {
    back.dbias = states_.gradient_rows(of.layer + ".bias", of.sum, 0, model_.hidden);
  }
  back.kind = norm_kind();
  back.epsilon = model_.norm_epsilon;
  back.rows = of.rows;
  back.width = model_.hidden;
  back.local_first = of.local_first;
  builder_.emit(op, LaneKind::compute, back);
}

void Products::joint_norm(const std::string& op, const JointNorm& norm, const Version& use,
                          const Operand& values, std::int64_t rows) {
  builder_.emit(op, LaneKind::compute,
                NormColumns{states_.weight(fmt::format("{}.weight", norm.layer), use),
                            {values, true},
                            model_.norm_epsilon,
                            rows,
                            norm.width,
                            norm.stride,
                            norm.first});
}

void Products::joint_norm_backward(const std::string& op, const JointNorm& norm, const Version& use,
                                   const Operand& x, const Operand& gradient, std::int64_t rows,
                                   std::int64_t local_first) {
  const std::string weight = fmt::format("{}.weight", norm.layer);
  builder_.emit(op, LaneKind::compute,
                NormColumnsBackward{x,
                                    states_.weight(weight, use),
                                    {gradient, true},
                                    states_.gradient_rows(weight, Version::plus(0), 0, norm.width),
                                    model_.norm_epsilon,
                                    rows,
                                    norm.width,
                                    norm.stride,
                                    norm.first,
                                    local_first});
}

NormKind Products::norm_kind() const {
  return model_.norm == NormFamily::rms ? NormKind::rms : NormKind::layer;
}

}  // namespace fpdt
