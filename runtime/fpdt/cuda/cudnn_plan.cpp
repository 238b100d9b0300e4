// Makes and keeps descriptors. A descriptor is made after those that it refers to.
#include "fpdt/cuda/cudnn_plan.h"

#include <array>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"

namespace fpdt::cuda {
namespace {

// The messages that cuDNN has recorded on this thread since the last call.
std::string last_words() {
  std::string text(1 << 14, '\0');
  cudnn().cudnnGetLastErrorString(text.data(), text.size());
  return text.c_str();
}

// The first reason in `words`. Engines report the cause first, and then the callers that passed it
// on.
std::string reason_in(const std::string& words) {
  constexpr std::string_view kMark = "Reason: ";
  const std::size_t mark = words.find(kMark);
  const std::size_t begin = mark == std::string::npos ? 0 : mark + kMark.size();
  const std::string reason = words.substr(begin, words.find('\n', begin) - begin);
  return reason.empty() ? "no reason given" : reason;
}

}  // namespace

void check(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const std::string message =
      fmt::format("{}: cuDNN says: {} ({})", what, cudnn().cudnnGetErrorString(status),
                  reason_in(last_words()));
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
    throw MemoryError(message);
  }
  throw Error(ExitCode::internal, message);
}

CudnnHandle make_cudnn_handle() {
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = cudnn().cudnnCreate(&handle);
  if (status == CUDNN_STATUS_NOT_INITIALIZED) {
    throw InputError(
        fmt::format("cuDNN finds no GPU that it can use ({})", reason_in(last_words())));
  }
  check(status, "a handle of cuDNN");
  return CudnnHandle(handle);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  check(cudnn().cudnnBackendCreateDescriptor(type, &descriptor), "a descriptor of cuDNN");
  descriptor_.reset(descriptor);
}

void Descriptor::set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         std::int64_t count, const void* values) {
  const cudnnStatus_t status = cudnn().cudnnBackendSetAttribute(get(), name, type, count, values);
  if (status == CUDNN_STATUS_SUCCESS) return;
  check(status, fmt::format("attribute {} of a descriptor", static_cast<int>(name)));
}

namespace {

// cuDNN's number of a tensor. 0 means none.
std::int64_t id_of(Tensor tensor) { return static_cast<std::int64_t>(tensor) + 1; }

Descriptor describe(const TensorSpec& spec, Tensor tensor) {
  constexpr std::int64_t kAlignment = 16;
  Descriptor result(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  result.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id_of(tensor));
  result.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, spec.type);
  result.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
             std::span<const std::int64_t>(spec.shape));
  result.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
             std::span<const std::int64_t>(spec.strides));
  result.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment);
  result.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN,
             spec.kind == TensorSpec::Kind::intermediate);
  result.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN,
             spec.kind == TensorSpec::Kind::scalar);
  result.finalize("a tensor");
  return result;
}

// The function descriptor of an operation. A reshape has none.
Descriptor describe_function(const Operation& operation) {
  if (operation.kind == Operation::Kind::matmul) {
    Descriptor result(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    result.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, operation.precision);
    return result;
  }
  if (operation.kind == Operation::Kind::reduction) {
    Descriptor result(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    result.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
               operation.reduction);
    result.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, operation.precision);
    return result;
  }
  FPDT_ASSERT(operation.kind == Operation::Kind::pointwise);
  Descriptor result(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  result.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, operation.pointwise);
  result.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, operation.precision);
  if (operation.axis >= 0) {
    result.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, operation.axis);
  }
  return result;
}

// cuDNN's names of the attributes of a kind of operation.
struct Names {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t function;
  std::array<cudnnBackendAttributeName_t, 3> inputs;
  cudnnBackendAttributeName_t out;
};

const Names& names_of(Operation::Kind kind) {
  static constexpr Names kMatmul{
      CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_MATMUL_DESC,
      {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
      CUDNN_ATTR_OPERATION_MATMUL_CDESC};
  static constexpr Names kPointwise{
      CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
      CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
      {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
       CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
      CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
  static constexpr Names kReduction{CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                                    CUDNN_ATTR_OPERATION_REDUCTION_DESC,
                                    {CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
                                    CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
  static constexpr Names kReshape{CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                                  {},
                                  {CUDNN_ATTR_OPERATION_RESHAPE_XDESC},
                                  CUDNN_ATTR_OPERATION_RESHAPE_YDESC};
  switch (kind) {
    case Operation::Kind::matmul:
      return kMatmul;
    case Operation::Kind::pointwise:
      return kPointwise;
    case Operation::Kind::reduction:
      return kReduction;
    case Operation::Kind::reshape:
      return kReshape;
  }
  assertion_failed("a kind of operation", __FILE__, __LINE__);
}

// Appends the descriptors of a graph; the graph's own descriptor comes last.
void describe(const Graph& graph, const PlanTarget& target, std::vector<Descriptor>& to) {
  const std::size_t tensors = to.size();
  for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
    to.push_back(describe(graph.tensors()[i], static_cast<Tensor>(i)));
  }
  const auto tensor = [&](Tensor of) -> const Descriptor& {
    return to[tensors + static_cast<std::size_t>(of)];
  };
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const Operation& operation : graph.operations()) {
    const Names& names = names_of(operation.kind);
    Descriptor result(names.type);
    if (operation.kind != Operation::Kind::reshape) {
      to.push_back(describe_function(operation));
      to.back().finalize("the function of an operation");
      result.set(names.function, to.back());
    }
    FPDT_ASSERT(operation.inputs.size() <= names.inputs.size());
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      result.set(names.inputs[i], tensor(operation.inputs[i]));
    }
    result.set(names.out, tensor(operation.out));
    result.finalize("an operation");
    operations.push_back(result.get());
    to.push_back(std::move(result));
  }
  Descriptor result(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  result.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             std::span<const cudnnBackendDescriptor_t>(operations));
  if (target.handle != nullptr) {
    result.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  }
  result.finalize("a graph of operations");
  to.push_back(std::move(result));
}

// The engine configurations that cuDNN supports on the target, best first.
std::vector<Descriptor> find_engines(const Descriptor& graph, const PlanTarget& target) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  Descriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  if (target.handle == nullptr) {
    properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                   std::span<const char>(target.properties));
    properties.finalize("the properties of a device");
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, properties);
  }
  heuristics.finalize("the choice of an engine");
  const auto ask = [&](std::int64_t room, void* results) {
    std::int64_t count = 0;
    check(cudnn().cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &count, results),
          "the engines that cuDNN knows");
    return count;
  };
  std::vector<Descriptor> engines;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t left = ask(0, nullptr); left > 0; --left) {
    engines.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(engines.back().get());
  }
  // cuDNN counts all configurations that it knows, but returns only the supported ones.
  const std::int64_t found =
      raw.empty() ? 0 : ask(static_cast<std::int64_t>(raw.size()), raw.data());
  engines.erase(engines.begin() + found, engines.end());
  return engines;
}

std::int64_t number_in(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  std::int64_t number = 0;
  std::int64_t count = 0;
  check(cudnn().cudnnBackendGetAttribute(descriptor.get(), name, CUDNN_TYPE_INT64, 1, &count,
                                         &number),
        "an engine's workspace or number");
  return number;
}

std::int64_t engine_of(const Descriptor& configuration) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  check(cudnn().cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
        "the engine of a configuration");
  return number_in(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}

}  // namespace

GraphPlan::GraphPlan(Graph&& graph, const PlanTarget& target, std::string_view what,
                     std::string_view advice)
    : graph_(std::move(graph)) {
  describe(graph_, target, descriptors_);
  last_words();  // drop earlier messages, so that only those about this graph remain
  for (Descriptor& engine : find_engines(descriptors_.back(), target)) {
    engine_ = engine_of(engine);
    if (target.handle == nullptr) {
      workspace_ = Bytes{number_in(engine, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE)};
      descriptors_.push_back(std::move(engine));
      return;
    }
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
    if (cudnn().cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS) continue;
    workspace_ = Bytes{number_in(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)};
    descriptors_.push_back(std::move(engine));
    descriptors_.push_back(std::move(plan));
    return;
  }
  throw InputError(fmt::format("cuDNN {} has no engine for {} on this GPU: {}; {}",
                               cudnn_version_text(cudnn().cudnnGetVersion()), what,
                               reason_in(last_words()), advice));
}

void GraphPlan::run(cudnnHandle_t handle, Stream stream, std::span<const Binding> bindings,
                    std::byte* workspace) const {
  FPDT_ASSERT(handle != nullptr);
  std::vector<std::int64_t> ids;
  std::vector<const void*> addresses;
  for (const Binding& binding : bindings) {
    ids.push_back(id_of(binding.tensor));
    addresses.push_back(binding.address);
  }
  for (std::size_t i = 0; i < graph_.tensors().size(); ++i) {
    const TensorSpec& spec = graph_.tensors()[i];
    if (spec.kind != TensorSpec::Kind::scalar) continue;
    ids.push_back(id_of(static_cast<Tensor>(i)));
    addresses.push_back(
        std::visit([](const auto& value) -> const void* { return &value; }, spec.value));
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
           std::span<const std::int64_t>(ids));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           std::span<const void* const>(addresses));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize("the addresses of a run");
  check(cudnn().cudnnSetStream(handle, stream), "the stream of a handle of cuDNN");
  check(cudnn().cudnnBackendExecute(handle, descriptors_.back().get(), pack.get()),
        "a run of cuDNN");
}

}  // namespace fpdt::cuda
