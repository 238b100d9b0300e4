// Emulates cuDNN's engines on a CPU. A plan interprets its graph literally, tensor by tensor, with
// the roundings that the graph declares and sums in double. It refuses graphs that engines take and
// then run otherwise than the graph says (cudnn_tile.h). With the emulator's kernels around it,
// everything in an attention tile runs here except cuDNN itself: the meaning of graphs, the strides
// and addresses of operands, the parts of a workspace.
//
// Replaces cudnn_plan.cpp in test programs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fpdt/base/assert.h"
#include "fpdt/cuda/cudnn_attention.h"

#include "../cpu/kernel_case.h"
#include "queue.h"

namespace fpdt::cuda {
namespace {

std::size_t elements(const Shape& shape) {
  return static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
}

// Calls f(flat index, index) for each element of a shape; the last dimension runs fastest.
template <class F>
void for_each(const Shape& shape, F&& f) {
  std::size_t flat = 0;
  Shape at{};
  for (at[0] = 0; at[0] < shape[0]; ++at[0]) {
    for (at[1] = 0; at[1] < shape[1]; ++at[1]) {
      for (at[2] = 0; at[2] < shape[2]; ++at[2]) {
        for (at[3] = 0; at[3] < shape[3]; ++at[3]) f(flat++, at);
      }
    }
  }
}

std::int64_t offset(const Shape& strides, const Shape& at) {
  return strides[0] * at[0] + strides[1] * at[1] + strides[2] * at[2] + strides[3] * at[3];
}

double rounded(cudnnDataType_t type, double value) {
  const auto single = static_cast<float>(value);
  return static_cast<double>(type == CUDNN_DATA_BFLOAT16 ? from_bf16(to_bf16(single)) : single);
}

using Values = std::vector<double>;  // row-major

// One execution of a graph.
class Run {
 public:
  Run(const Graph& graph, std::span<const Binding> bindings)
      : graph_(graph), values_(graph.tensors().size()), addresses_(values_.size()) {
    for (const Binding& binding : bindings) {
      FPDT_ASSERT(reinterpret_cast<std::uintptr_t>(binding.address) % 16 == 0);
      FPDT_ASSERT(spec(binding.tensor).kind == TensorSpec::Kind::real);
      addresses_.at(static_cast<std::size_t>(binding.tensor)) = binding.address;
    }
    for (const Operation& operation : graph.operations()) perform(operation);
  }

 private:
  [[nodiscard]] const TensorSpec& spec(Tensor tensor) const {
    return graph_.tensors().at(static_cast<std::size_t>(tensor));
  }
  const Values& values(Tensor tensor) {
    Values& result = values_.at(static_cast<std::size_t>(tensor));
    if (result.empty()) result = load(tensor);
    return result;
  }
  [[nodiscard]] Values load(Tensor tensor) const {
    const TensorSpec& of = spec(tensor);
    if (of.kind == TensorSpec::Kind::scalar) {
      return {std::visit([](auto value) { return static_cast<double>(value); }, of.value)};
    }
    FPDT_ASSERT(of.kind == TensorSpec::Kind::real);
    const auto* from =
        static_cast<const std::byte*>(addresses_.at(static_cast<std::size_t>(tensor)));
    Values result(elements(of.shape));
    for_each(of.shape, [&](std::size_t i, const Shape& at) {
      if (of.type == CUDNN_DATA_BFLOAT16) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, from + offset(of.strides, at) * 2, sizeof(bits));
        result[i] = static_cast<double>(from_bf16(bits));
      } else {
        float value = 0;
        std::memcpy(&value, from + offset(of.strides, at) * 4, sizeof(value));
        result[i] = static_cast<double>(value);
      }
    });
    return result;
  }
  void store(Tensor tensor, Values&& result) {
    const TensorSpec& of = spec(tensor);
    for (double& value : result) value = rounded(of.type, value);
    if (of.kind == TensorSpec::Kind::real) {
      void* address = const_cast<void*>(addresses_.at(static_cast<std::size_t>(tensor)));
      for_each(of.shape, [&](std::size_t i, const Shape& at) {
        const auto value = static_cast<float>(result[i]);
        if (of.type == CUDNN_DATA_BFLOAT16) {
          static_cast<std::uint16_t*>(address)[offset(of.strides, at)] = to_bf16(value);
        } else {
          static_cast<float*>(address)[offset(of.strides, at)] = value;
        }
      });
    }
    values_.at(static_cast<std::size_t>(tensor)) = std::move(result);
  }

  void perform(const Operation& operation) {
    switch (operation.kind) {
      case Operation::Kind::matmul:
        FPDT_ASSERT(spec(operation.out).type == CUDNN_DATA_BFLOAT16 || is_read(operation.out));
        return store(operation.out, product(operation.inputs[0], operation.inputs[1]));
      case Operation::Kind::pointwise:
        return store(operation.out, pointwise(operation));
      case Operation::Kind::reduction:
        return store(operation.out, reduction(operation));
      case Operation::Kind::reshape:
        return store(operation.out, transposed(operation.inputs[0], operation.out));
    }
  }

  // Whether an operation takes the tensor. The sum of a product is f32 inside the graph only.
  [[nodiscard]] bool is_read(Tensor tensor) const {
    return std::ranges::any_of(graph_.operations(), [&](const Operation& operation) {
      return std::ranges::find(operation.inputs, tensor) != operation.inputs.end();
    });
  }

  Values product(Tensor a, Tensor b) {
    const Shape left = spec(a).shape;
    const Shape right = spec(b).shape;
    FPDT_ASSERT(left[3] == right[2] && left[0] == right[0] && left[1] % right[1] == 0);
    const Values& of_a = values(a);
    const Values& of_b = values(b);
    const auto rows = static_cast<std::size_t>(left[2]);
    const auto inner = static_cast<std::size_t>(left[3]);
    const auto columns = static_cast<std::size_t>(right[3]);
    const auto heads = static_cast<std::size_t>(left[0] * left[1]);
    Values result(heads * rows * columns);
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t shared = head / static_cast<std::size_t>(left[1] / right[1]);
      for (std::size_t i = head * rows; i < (head + 1) * rows; ++i) {
        for (std::size_t k = 0; k < inner; ++k) {
          const double factor = of_a[i * inner + k];
          const double* row = &of_b[(shared * inner + k) * columns];
          for (std::size_t j = 0; j < columns; ++j) result[i * columns + j] += factor * row[j];
        }
      }
    }
    return result;
  }

  static double apply(const Operation& operation, const std::array<double, 3>& in,
                      const Shape& at) {
    const cudnnPointwiseMode_t mode = operation.pointwise;
    if (mode == CUDNN_POINTWISE_ADD) return in[0] + in[1];
    if (mode == CUDNN_POINTWISE_SUB) return in[0] - in[1];
    if (mode == CUDNN_POINTWISE_MUL) return in[0] * in[1];
    if (mode == CUDNN_POINTWISE_DIV) return in[0] / in[1];
    if (mode == CUDNN_POINTWISE_IDENTITY) return in[0];
    if (mode == CUDNN_POINTWISE_EXP) return std::exp(in[0]);
    if (mode == CUDNN_POINTWISE_LOG) return std::log(in[0]);
    if (mode == CUDNN_POINTWISE_CMP_GE) return in[0] >= in[1] ? 1.0 : 0.0;
    if (mode == CUDNN_POINTWISE_CMP_GT) return in[0] > in[1] ? 1.0 : 0.0;
    if (mode == CUDNN_POINTWISE_BINARY_SELECT) return in[2] != 0.0 ? in[0] : in[1];
    if (mode == CUDNN_POINTWISE_GEN_INDEX) {
      return static_cast<double>(at.at(static_cast<std::size_t>(operation.axis)));
    }
    throw std::logic_error("a pointwise function that is not played");
  }

  Values pointwise(const Operation& operation) {
    const Shape& shape = spec(operation.out).shape;
    std::array<const Values*, 3> inputs{};
    std::array<Shape, 3> steps{};  // steps of the inputs along out's indices
    for (std::size_t n = 0; n < operation.inputs.size(); ++n) {
      const Shape& own = spec(operation.inputs[n]).shape;
      inputs[n] = &values(operation.inputs[n]);
      steps[n] = row_major(own);
      for (std::size_t d = 0; d < 4; ++d) {
        FPDT_ASSERT(own[d] == shape[d] || own[d] == 1);
        if (own[d] == 1) steps[n][d] = 0;
      }
    }
    Values result(elements(shape));
    for_each(shape, [&](std::size_t i, const Shape& at) {
      std::array<double, 3> in{};
      for (std::size_t n = 0; n < operation.inputs.size(); ++n) {
        in[n] = (*inputs[n])[static_cast<std::size_t>(offset(steps[n], at))];
      }
      result[i] = apply(operation, in, at);
    });
    return result;
  }

  Values reduction(const Operation& operation) {
    const Shape& shape = spec(operation.inputs[0]).shape;
    const Shape& out = spec(operation.out).shape;
    FPDT_ASSERT(out[0] == shape[0] && out[1] == shape[1] && out[2] == shape[2] && out[3] == 1);
    const bool sums = operation.reduction == CUDNN_REDUCE_TENSOR_ADD;
    FPDT_ASSERT(sums || operation.reduction == CUDNN_REDUCE_TENSOR_MAX);
    const Values& from = values(operation.inputs[0]);
    const auto width = static_cast<std::size_t>(shape[3]);
    Values result(elements(out));
    for (std::size_t i = 0; i < result.size(); ++i) {
      double value = from[i * width];
      for (std::size_t j = 1; j < width; ++j) {
        const double next = from[i * width + j];
        value = sums ? value + next : std::max(value, next);
      }
      result[i] = value;
    }
    return result;
  }

  // The values of `in` at the places of `out` in memory.
  Values transposed(Tensor in, Tensor out) {
    const TensorSpec& from = spec(in);
    const TensorSpec& to = spec(out);
    FPDT_ASSERT(from.shape[2] == to.shape[3] && from.shape[3] == to.shape[2]);
    for (const std::size_t d : {0U, 1U}) {
      FPDT_ASSERT(from.shape.at(d) == to.shape.at(d) && from.strides.at(d) == to.strides.at(d));
    }
    FPDT_ASSERT(from.strides[2] == to.strides[3] && from.strides[3] == to.strides[2]);
    const Values& of_in = values(in);
    Values result(of_in.size());
    for_each(to.shape, [&](std::size_t i, const Shape& at) {
      const Shape source{at[0], at[1], at[3], at[2]};
      result[i] = of_in[static_cast<std::size_t>(offset(row_major(from.shape), source))];
    });
    return result;
  }

  const Graph& graph_;
  std::vector<Values> values_;
  std::vector<const void*> addresses_;
};

constexpr Bytes kEngineBytes{256};

// A handle belongs to a GPU: it is that GPU's number, counted from 1.
cudnnHandle_t handle_of_current_gpu() {
  return reinterpret_cast<cudnnHandle_t>(static_cast<std::uintptr_t>(emulator::current_gpu()) + 1);
}

}  // namespace

CudnnHandle make_cudnn_handle() { return CudnnHandle(handle_of_current_gpu()); }

GraphPlan::GraphPlan(Graph&& graph, const PlanTarget&, std::string_view, std::string_view)
    : graph_(std::move(graph)), workspace_(kEngineBytes) {}

void GraphPlan::run(cudnnHandle_t handle, Stream stream, std::span<const Binding> bindings,
                    std::byte* workspace) const {
  FPDT_ASSERT(handle == handle_of_current_gpu());
  const std::vector<Binding> kept(bindings.begin(), bindings.end());
  emulator::Given given{workspace};
  for (const Binding& binding : kept) given.push_back(binding.address);
  emulator::submit(stream, given, [this, kept, workspace] {
    std::memset(workspace, 0xFF, static_cast<std::size_t>(kEngineBytes.value));
    const Run run(graph_, kept);
  });
}

}  // namespace fpdt::cuda
