// cuBLASLt speaks columns first, and so do we to it: row-major out[m,n] = a b is column-major
// out^T[n,m] = b^T a^T, whose operands lie in memory as ours do.
#include "fpdt/cuda/matmul.h"

#include <algorithm>
#include <compare>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
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

// What an algorithm depends on.
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

// Column-major, without gaps.
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

// The largest power of two, at most 256, that divides where an operand begins.
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
  if (op.bias.present() && dtype_of(schedule, op.bias) != shape.out) {
    refuse(op, "the bias is not of the result's type");
  }
  shape.bias = op.bias.present();
  shape.adds = op.addend.present() || op.out.accumulate;
  shape.align_a = alignment(schedule, op.a);
  shape.align_b = alignment(schedule, op.b);
  shape.align_out = alignment(schedule, op.out.operand);
  shape.align_bias = alignment(schedule, op.bias);
  shape.align_c = op.addend.present() ? alignment(schedule, op.addend) : shape.align_out;
  return shape;
}

}  // namespace

// A product as cuBLASLt wants it described: its first matrix is our b.
struct Products::Chosen {
  Description description;
  Layout first, second, out;
  cublasLtMatmulAlgo_t algorithm{};
  bool adds = false;
};

struct Products::State {
  State() { check(cublaslt().cublasLtCreate(&handle), "cuBLASLt"); }
  ~State() { static_cast<void>(cublaslt().cublasLtDestroy(handle)); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void choose(const Shape& shape, Chosen& chosen) const;

  cublasLtHandle_t handle = nullptr;
  std::map<Shape, Chosen> chosen;
  std::map<const Matmul*, const Chosen*> of_op;
};

void Products::State::choose(const Shape& s, Chosen& made) const {
  check(
      cublaslt().cublasLtMatmulDescCreate(&made.description.value, CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "a product");
  set(made.description, CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(made.description, CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (s.bias) {
    set(made.description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(made.description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(s.out));
    // No address, which every run sets: algorithms are chosen by its alignment.
    set(made.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, std::uint64_t{s.align_bias});
  }
  made.first = s.transpose_b ? layout(s.in, s.k, s.n) : layout(s.in, s.n, s.k);
  made.second = s.transpose_a ? layout(s.in, s.m, s.k) : layout(s.in, s.k, s.m);
  made.out = layout(s.out, s.n, s.m);
  made.adds = s.adds;

  Preference preference;
  check(cublaslt().cublasLtMatmulPreferenceCreate(&preference.value), "a preference");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(kMatmulWorkspaceBytes));
  // Partial sums may meet in the workspace, in order; not in the result, as they come.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.align_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.align_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.align_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.align_out);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublaslt().cublasLtMatmulAlgoGetHeuristic(
      handle, made.description.value, made.first.value, made.second.value, made.out.value,
      made.out.value, preference.value, 1, &best, &found);
  const bool none = found == 0 || best.state == CUBLAS_STATUS_NOT_SUPPORTED;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && none)) {
    throw InputError(fmt::format(
        "cuBLASLt {} has no algorithm for a product of [{},{}] and [{},{}] from {} to {}",
        cublaslt().cublasLtGetVersion(), s.m, s.k, s.k, s.n, word(s.in), word(s.out)));
  }
  check(status, "an algorithm for a product");
  check(best.state, "an algorithm for a product");
  made.algorithm = best.algo;
}

Products::Products() : state_(std::make_unique<State>()) {}
Products::~Products() = default;

void Products::prepare(const Matmul& op, const Schedule& schedule) {
  const Shape shape = shape_of(op, schedule);
  const auto [place, added] = state_->chosen.try_emplace(shape);
  if (added) state_->choose(shape, place->second);
  state_->of_op[&op] = &place->second;
}

void Products::run(const Matmul& op, const Frame& frame, std::byte* workspace) {
  const auto place = state_->of_op.find(&op);
  FPDT_ASSERT(place != state_->of_op.end());
  const Chosen& chosen = *place->second;
  const View a = frame.view(op, op.a);
  const View b = frame.view(op, op.b);
  const View out = frame.view(op, op.out);
  const View addend = frame.view(op, op.addend);
  const View bias = frame.view(op, op.bias);
  if (present(bias)) {
    // Each launch copies the description's attributes.
    set(chosen.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.data));
  }
  const float alpha = 1;
  const float beta = chosen.adds ? 1 : 0;
  const std::byte* const c = present(addend) ? addend.data : out.data;
  check(cublaslt().cublasLtMatmul(state_->handle, chosen.description.value, &alpha, b.data,
                                  chosen.first.value, a.data, chosen.second.value, &beta, c,
                                  chosen.out.value, out.data, chosen.out.value, &chosen.algorithm,
                                  workspace, static_cast<std::size_t>(kMatmulWorkspaceBytes),
                                  frame.stream),
        "a matrix product");
}

}  // namespace fpdt::cuda
