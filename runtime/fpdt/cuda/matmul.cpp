// cuBLASLt takes column-major matrices. Our row-major out[m,n] = a b is the column-major out^T[n,m]
// = b^T a^T, with every matrix in the same memory.
#include "fpdt/cuda/matmul.h"

#include <algorithm>
#include <compare>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/base/math.h"
#include "fpdt/cuda/kernels.h"
#include "fpdt/cuda/kernels_memory.h"
#include "fpdt/cuda/libraries.h"

namespace fpdt::cuda {
namespace {

void check(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string message =
      fmt::format("{}: cuBLASLt says: {} ({})", what, cublaslt().cublasLtGetStatusString(status),
                  cublaslt().cublasLtGetStatusName(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw MemoryError(message);
  throw Error(ExitCode::internal, message);
}

cudaDataType_t type_of(Dtype dtype) {
  FPDT_ASSERT(dtype != Dtype::i32);
  return dtype == Dtype::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

// How many algorithms are timed. The fastest is rarely farther down cuBLASLt's list.
constexpr std::size_t kTried = 6;

// Everything that the choice of an algorithm depends on.
struct Shape {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, bias = false, adds = false;
  Dtype in = Dtype::f32, out = Dtype::f32;
  std::uint32_t align_a = 256, align_b = 256, align_c = 256, align_out = 256, align_bias = 256;
  auto operator<=>(const Shape&) const = default;
};

// `destroy`: a member of CublasLt.
template <class T, auto destroy>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (value != nullptr) static_cast<void>((cublaslt().*destroy)(value));
  }
  Owned(Owned&& other) noexcept : value(std::exchange(other.value, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(value, other.value);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  T value = nullptr;
};
using Description = Owned<cublasLtMatmulDesc_t, &CublasLt::cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, &CublasLt::cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &CublasLt::cublasLtMatmulPreferenceDestroy>;

// A column-major layout without gaps.
Layout layout(Dtype dtype, std::int64_t rows, std::int64_t columns) {
  Layout made;
  check(cublaslt().cublasLtMatrixLayoutCreate(&made.value, type_of(dtype),
                                              static_cast<std::uint64_t>(rows),
                                              static_cast<std::uint64_t>(columns), rows),
        "a matrix layout");
  return made;
}

template <class T>
void set(const Description& description, cublasLtMatmulDescAttributes_t which, const T& value) {
  check(cublaslt().cublasLtMatmulDescSetAttribute(description.value, which, &value, sizeof value),
        "an attribute of a product");
}

template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t which, const T& value) {
  check(cublaslt().cublasLtMatmulPreferenceSetAttribute(preference.value, which, &value,
                                                        sizeof value),
        "a preference of a product");
}

// The alignment of an operand: the largest power of two, at most 256, that divides its offset.
std::uint32_t alignment(const Schedule& schedule, const Operand& operand) {
  if (!operand.present()) return 256;
  const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(operand.buffer)];
  const std::int64_t begin = operand.row_first * buffer.row_bytes();
  std::uint32_t power = 256;
  while (begin % power != 0) power /= 2;
  return power;
}

Dtype dtype_of(const Schedule& schedule, const Operand& operand) {
  return schedule.buffers[static_cast<std::size_t>(operand.buffer)].dtype;
}

[[noreturn]] void refuse(const Matmul& op, const std::string& reason) {
  throw InputError(fmt::format("this backend cannot multiply [{},{}] by [{},{}]: {}", op.m, op.k,
                               op.k, op.n, reason));
}

Shape shape_of(const Matmul& op, const Schedule& schedule) {
  Shape shape{op.m, op.n, op.k, op.transpose_a, op.transpose_b};
  shape.in = dtype_of(schedule, op.a);
  shape.out = dtype_of(schedule, op.out.operand);
  const Dtype b = dtype_of(schedule, op.b);
  if (shape.in != b) refuse(op, fmt::format("a is {} and b is {}", word(shape.in), word(b)));
  if (shape.in == Dtype::f32 && shape.out != Dtype::f32) refuse(op, "f32 operands, bf16 result");
  if (op.addend.present()) {
    const Dtype addend = dtype_of(schedule, op.addend);
    if (addend != shape.out) {
      refuse(op, fmt::format("the addend is {}, the result {}", word(addend), word(shape.out)));
    }
    if (op.out.accumulate) refuse(op, "it accumulates and has an addend besides");
  }
  // The library adds biases of the result's type. Others are added to f32 afterwards.
  shape.bias = op.bias.present() && dtype_of(schedule, op.bias) == shape.out;
  if (op.bias.present() && !shape.bias && shape.out != Dtype::f32) {
    refuse(op, "the bias is f32, the result bf16");
  }
  shape.adds = op.addend.present() || op.out.accumulate;
  shape.align_a = alignment(schedule, op.a);
  shape.align_b = alignment(schedule, op.b);
  shape.align_out = alignment(schedule, op.out.operand);
  shape.align_bias = alignment(schedule, op.bias);
  shape.align_c = op.addend.present() ? alignment(schedule, op.addend) : shape.align_out;
  return shape;
}

// The addresses of the operands; c is the addend.
struct Places {
  const std::byte *a = nullptr, *b = nullptr, *c = nullptr, *bias = nullptr;
  std::byte* out = nullptr;
};

// A product in cuBLASLt's terms: its first matrix is our b.
struct Product {
  Description description;
  Layout first, second, out;
  bool bias = false, adds = false;
};

Product product_of(const Shape& s) {
  Product made;
  check(
      cublaslt().cublasLtMatmulDescCreate(&made.description.value, CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "a product");
  set(made.description, CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(made.description, CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (s.bias) {
    set(made.description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(made.description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(s.out));
    // Not an address, which every run sets: the alignment decides the choice of algorithms.
    set(made.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, std::uint64_t{s.align_bias});
  }
  made.first = s.transpose_b ? layout(s.in, s.k, s.n) : layout(s.in, s.n, s.k);
  made.second = s.transpose_a ? layout(s.in, s.m, s.k) : layout(s.in, s.k, s.m);
  made.out = layout(s.out, s.n, s.m);
  made.bias = s.bias;
  made.adds = s.adds;
  return made;
}

// A name for a shape, with everything that the choice of an algorithm depends on.
std::string name_of(const Shape& s) {
  return fmt::format("[{},{}]{} [{},{}]{} {} to {}{}{}, aligned to {} {} {} {} {}", s.m, s.k,
                     s.transpose_a ? "^T" : "", s.k, s.n, s.transpose_b ? "^T" : "", word(s.in),
                     word(s.out), s.bias ? ", bias" : "", s.adds ? ", added" : "", s.align_a,
                     s.align_b, s.align_c, s.align_out, s.align_bias);
}

// The operands in their first slots. Empty if one lies outside of the arena or is incomplete there.
std::vector<View> views_of(const Matmul& op, const Schedule& schedule, std::span<std::byte> arena) {
  std::vector<View> views;
  const auto add = [&](const Operand& operand, std::int64_t elements) {
    if (!operand.present()) return views.push_back({});
    const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(operand.buffer)];
    const std::int64_t begin = buffer.offset + operand.row_first * buffer.row_bytes();
    const View view{arena.data() + begin, elements, buffer.dtype, Access::write};
    if (buffer.space == MemorySpace::device && begin + view.bytes() <= std::ssize(arena)) {
      views.push_back(view);
    }
  };
  add(op.a, mul(op.m, op.k));
  add(op.b, mul(op.k, op.n));
  add(op.bias, op.n);
  add(op.addend, mul(op.m, op.n));
  add(op.out.operand, mul(op.m, op.n));
  if (views.size() != 5) views.clear();
  return views;
}

Places places_of(const View& a, const View& b, const View& bias, const View& addend,
                 const View& out) {
  return {a.data, b.data, present(addend) ? addend.data : out.data, bias.data, out.data};
}

}  // namespace

struct Products::Chosen {
  Product product;
  cublasLtMatmulAlgo_t algorithm{};
};

struct Products::State {
  State() { check(cublaslt().cublasLtCreate(&handle), "cuBLASLt"); }
  ~State() { static_cast<void>(cublaslt().cublasLtDestroy(handle)); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // cuBLASLt's best algorithms by its own ranking: at least one, at most `most`.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> algorithms(const Shape& shape,
                                                             const Product& product,
                                                             std::size_t most) const;
  cublasStatus_t multiply(const Product& product, const cublasLtMatmulAlgo_t& algorithm,
                          const Places& places, std::byte* workspace, Stream stream) const;

  cublasLtHandle_t handle = nullptr;
  std::map<Shape, Chosen> chosen;
  std::map<const Matmul*, const Chosen*> of_op;
};

std::vector<cublasLtMatmulAlgo_t> Products::State::algorithms(const Shape& s, const Product& made,
                                                              std::size_t most) const {
  Preference preference;
  check(cublaslt().cublasLtMatmulPreferenceCreate(&preference.value), "a preference");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(kMatmulWorkspaceBytes));
  // Partial sums may be added in the workspace, in order, but not in the result, in order of
  // arrival.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.align_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.align_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.align_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.align_out);
  std::vector<cublasLtMatmulHeuristicResult_t> results(most);
  int found = 0;
  const cublasStatus_t status = cublaslt().cublasLtMatmulAlgoGetHeuristic(
      handle, made.description.value, made.first.value, made.second.value, made.out.value,
      made.out.value, preference.value, static_cast<int>(most), results.data(), &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "an algorithm for a product");
  results.resize(static_cast<std::size_t>(found));
  std::vector<cublasLtMatmulAlgo_t> usable;
  for (const cublasLtMatmulHeuristicResult_t& result : results) {
    if (result.state == CUBLAS_STATUS_SUCCESS) usable.push_back(result.algo);
  }
  if (!usable.empty()) return usable;
  throw InputError(
      fmt::format("cuBLASLt {} has no algorithm for a product of [{},{}] and [{},{}] from {} to {}",
                  cublaslt().cublasLtGetVersion(), s.m, s.k, s.k, s.n, word(s.in), word(s.out)));
}

cublasStatus_t Products::State::multiply(const Product& product,
                                         const cublasLtMatmulAlgo_t& algorithm,
                                         const Places& places, std::byte* workspace,
                                         Stream stream) const {
  if (product.bias) {
    // May change while launches are pending: each one copies the attributes of the description.
    set(product.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
        static_cast<const void*>(places.bias));
  }
  const float alpha = 1;
  const float beta = product.adds ? 1 : 0;
  return cublaslt().cublasLtMatmul(
      handle, product.description.value, &alpha, places.b, product.first.value, places.a,
      product.second.value, &beta, places.c, product.out.value, places.out, product.out.value,
      &algorithm, workspace, static_cast<std::size_t>(kMatmulWorkspaceBytes), stream);
}

Products::Products() : state_(std::make_unique<State>()) {}
Products::~Products() = default;

void Products::prepare(const Matmul& op, const Schedule& schedule, const Trial& trial) {
  const Shape shape = shape_of(op, schedule);
  const auto [place, added] = state_->chosen.try_emplace(shape);
  state_->of_op[&op] = &place->second;
  if (!added) return;
  Chosen& chosen = place->second;
  chosen.product = product_of(shape);
  const std::vector<View> views =
      trial.times == nullptr ? std::vector<View>() : views_of(op, schedule, trial.arena);
  const std::vector<cublasLtMatmulAlgo_t> algorithms =
      state_->algorithms(shape, chosen.product, views.empty() ? 1 : kTried);
  chosen.algorithm = algorithms.front();
  if (views.empty()) return;
  const Places places = places_of(views[0], views[1], views[2], views[3], views[4]);
  Ways ways;
  ways.count = algorithms.size();
  ways.fill = [&] {
    for (const View& view : views) {
      if (present(view)) fill_with_values(view, trial.stream);
    }
  };
  ways.run = [&](std::size_t i) {
    return state_->multiply(chosen.product, algorithms[i], places, trial.workspace, trial.stream) ==
           CUBLAS_STATUS_SUCCESS;
  };
  chosen.algorithm = algorithms[trial.times->fastest(name_of(shape), ways, trial.stream)];
}

void Products::run(const Matmul& op, const Frame& frame, std::byte* workspace) {
  const auto place = state_->of_op.find(&op);
  FPDT_ASSERT(place != state_->of_op.end());
  const Chosen& chosen = *place->second;
  const View bias = frame.view(op, op.bias), out = frame.view(op, op.out);
  const Places places =
      places_of(frame.view(op, op.a), frame.view(op, op.b), bias, frame.view(op, op.addend), out);
  check(state_->multiply(chosen.product, chosen.algorithm, places, workspace, frame.stream),
        "a matrix product");
  if (present(bias) && !chosen.product.bias) add_bias(bias, out, op.m, op.n, frame.stream);
}

}  // namespace fpdt::cuda
