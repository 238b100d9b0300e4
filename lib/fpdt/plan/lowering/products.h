// Products and norms of rows with a layer's weights, forward and backward.
#pragma once

#include <string>

#include "fpdt/plan/lowering/context.h"

namespace fpdt {

// The products with the tensors "<layer>.weight" and "<layer>.bias" of gather `use`, over `rows`
// rows.
class Products : public LoweringPart {
 public:
  explicit Products(Context& context) : LoweringPart(context) {}

  // y [rows, out] = x [rows, in] * W^T + b + addend; without b and addend where ranks share the
  // terms, and y is this rank's part of the sum.
  void linear(const std::string& op, const std::string& layer, const Version& use, const Operand& x,
              const Operand& y, std::int64_t rows, std::int64_t in, std::int64_t out,
              const Operand& addend = {});
  // The same for outputs [first, first + out) alone.
  void linear_part(const std::string& op, const std::string& layer, const Version& use,
                   const Operand& x, const Operand& y, std::int64_t rows, std::int64_t in,
                   std::int64_t first, std::int64_t out);
  // dx = dy * W + addend.
  void linear_backward(const std::string& op, const std::string& layer, const Version& use,
                       const Operand& dy, const Operand& dx, std::int64_t rows, std::int64_t in,
                       std::int64_t out, const Operand& addend = {});
  // dW += dy^T * x and db += the column sums of dy, of the rank's tokens from `first`; ops
  // dw_<layer>.<place>.
  void linear_gradient(const std::string& place, const std::string& layer, const Operand& dy,
                       const Operand& x, std::int64_t rows, std::int64_t in, std::int64_t out,
                       std::int64_t first);
  // The bias alone, of a layer whose terms several ranks share; linear_gradient leaves it out.
  void bias_gradient(const std::string& place, const std::string& layer, const Operand& dy,
                     std::int64_t rows, std::int64_t out, std::int64_t first);
  void norm(const std::string& op, const std::string& layer, const Version& use, const Operand& x,
            const Operand& y, std::int64_t rows);
  // dx = d(norm)/dx^T dy + addend, dweight, dbias into the sums of version `sum`, over `rows` of
  // the rank's tokens from `local_first`.
  struct NormGradient {
    std::string layer;
    Version use, sum;
    Operand x, dy, addend, dx;
    std::int64_t rows, local_first;
  };
  void norm_backward(const std::string& op, const NormGradient& of);
  // The norm of all query heads, or of all key heads, in place: columns [first, + width) of
  // `values` [rows, stride].
  struct JointNorm {
    const char* layer;  // q_norm or k_norm
    std::int64_t width, stride, first;
  };
  void joint_norm(const std::string& op, const JointNorm& norm, const Version& use,
                  const Operand& values, std::int64_t rows);
  // Its gradient, in place; x: the values before the norm.
  void joint_norm_backward(const std::string& op, const JointNorm& norm, const Version& use,
                           const Operand& x, const Operand& gradient, std::int64_t rows,
                           std::int64_t local_first);

 private:
  [[nodiscard]] NormKind norm_kind() const;
};

}  // namespace fpdt
