// A graph of operations on four-dimensional tensors, as cuDNN's engines expect it. It is plain data
// (cudnn_plan.h makes a plan of it) and has only what attention needs.
//
// A tensor is real (every run gives its address), an intermediate (it never reaches memory), or a
// scalar (the graph holds its value). The caller declares the output of each operation, because the
// choice of an engine depends on every shape, stride and type in the graph, and on the order of the
// operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cudnn_backend.h>
#include <initializer_list>
#include <variant>
#include <vector>

namespace fpdt::cuda {

using Shape = std::array<std::int64_t, 4>;

// The strides of a tensor without gaps, in elements.
inline Shape row_major(const Shape& shape) {
  return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

enum class Tensor : std::size_t {};  // an index into the graph's tensors

struct TensorSpec {
  enum class Kind : std::uint8_t { real, intermediate, scalar };
  Kind kind = Kind::real;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Shape shape{}, strides{};
  std::variant<float, std::int32_t> value;  // for a scalar: f32 or i32
};

struct Operation {
  enum class Kind : std::uint8_t { matmul, pointwise, reduction, reshape };
  Kind kind = Kind::matmul;
  std::vector<Tensor> inputs;
  Tensor out{};
  cudnnPointwiseMode_t pointwise = CUDNN_POINTWISE_IDENTITY;
  cudnnReduceTensorOp_t reduction = CUDNN_REDUCE_TENSOR_ADD;
  cudnnDataType_t precision = CUDNN_DATA_FLOAT;  // of the arithmetic
  std::int64_t axis = -1;                        // for CUDNN_POINTWISE_GEN_INDEX
};

class Graph {
 public:
  Tensor real(cudnnDataType_t type, const Shape& shape, const Shape& strides) {
    return add({TensorSpec::Kind::real, type, shape, strides, {}});
  }
  Tensor intermediate(cudnnDataType_t type, const Shape& shape, const Shape& strides) {
    return add({TensorSpec::Kind::intermediate, type, shape, strides, {}});
  }
  Tensor intermediate(cudnnDataType_t type, const Shape& shape) {
    return intermediate(type, shape, row_major(shape));
  }
  Tensor scalar(float value) {
    return add({TensorSpec::Kind::scalar, CUDNN_DATA_FLOAT, kOne, kOne, value});
  }
  Tensor scalar(std::int32_t value) {
    return add({TensorSpec::Kind::scalar, CUDNN_DATA_INT32, kOne, kOne, value});
  }

  // All of these return `out`. matmul multiplies the matrices in the last two dimensions.
  Tensor matmul(Tensor a, Tensor b, Tensor out) {
    return add({.kind = Operation::Kind::matmul, .inputs = {a, b}, .out = out});
  }
  // Takes one to three inputs, each of out's shape or with one element in some dimensions.
  // BINARY_SELECT takes {where true, where false, condition}.
  Tensor pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> inputs, Tensor out,
                   cudnnDataType_t precision = CUDNN_DATA_FLOAT) {
    return add({.kind = Operation::Kind::pointwise,
                .inputs = inputs,
                .out = out,
                .pointwise = mode,
                .precision = precision});
  }
  // The index of each element of `like` along an axis, as i32.
  Tensor index(std::int64_t axis, Tensor like, Tensor out) {
    return add({.kind = Operation::Kind::pointwise,
                .inputs = {like},
                .out = out,
                .pointwise = CUDNN_POINTWISE_GEN_INDEX,
                .axis = axis});
  }
  // Reduces over the dimensions in which `out` has one element.
  Tensor reduce(cudnnReduceTensorOp_t op, Tensor in, Tensor out) {
    return add({.kind = Operation::Kind::reduction, .inputs = {in}, .out = out, .reduction = op});
  }
  // Gives `in` another shape. If out's last two dimensions are those of `in` exchanged, it
  // transposes.
  Tensor reshape(Tensor in, Tensor out) {
    return add({.kind = Operation::Kind::reshape, .inputs = {in}, .out = out});
  }

  [[nodiscard]] const std::vector<TensorSpec>& tensors() const { return tensors_; }
  [[nodiscard]] const std::vector<Operation>& operations() const { return operations_; }

 private:
  static constexpr Shape kOne{1, 1, 1, 1};

  Tensor add(const TensorSpec& tensor) {
    tensors_.push_back(tensor);
    return static_cast<Tensor>(tensors_.size() - 1);
  }
  Tensor add(const Operation& operation) {
    operations_.push_back(operation);
    return operation.out;
  }

  std::vector<TensorSpec> tensors_;
  std::vector<Operation> operations_;
};

}  // namespace fpdt::cuda
