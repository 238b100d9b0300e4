// Ops whose elements are independent: activations, fill, copy, the optimizer.
#include <cmath>
#include <cstring>

#include "fpdt/cpu/kernels_common.h"
#include "fpdt/cpu/routes.h"

namespace fpdt::cpu {
namespace {

float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }

// gelu(x) = x c(x), where c is the normal distribution function or its approximation (1 + tanh(u))
// / 2 = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3) (Hendrycks and Gimpel, arXiv 1606.08415).
constexpr float kTwiceRootTwoOverPi = 1.5957691216F;
constexpr float kCubic = 0.044715F;

float gelu_weight(float x, ActivationKind kind) {
  if (kind == ActivationKind::gelu_erf) return 0.5F * (1.0F + std::erf(x * 0.70710678119F));
  return sigmoid(kTwiceRootTwoOverPi * (x + kCubic * x * x * x));
}

float gelu_derivative(float x, ActivationKind kind) {
  const float weight = gelu_weight(x, kind);
  if (kind == ActivationKind::gelu_erf) {
    return weight + x * 0.39894228040F * exponential(-0.5F * x * x);
  }
  const float slope = kTwiceRootTwoOverPi * (1.0F + 3.0F * kCubic * x * x);
  return weight + x * weight * (1.0F - weight) * slope;
}

void gelu(const float* x, std::int64_t n, ActivationKind kind, float* out) {
  if (kind == ActivationKind::gelu_erf) {
    for (std::int64_t i = 0; i < n; ++i)
      out[i] = x[i] * gelu_weight(x[i], ActivationKind::gelu_erf);
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      out[i] = x[i] * gelu_weight(x[i], ActivationKind::gelu_tanh);
  }
}

void gelu_backward(const float* x, const float* dy, std::int64_t n, ActivationKind kind,
                   float* out) {
  if (kind == ActivationKind::gelu_erf) {
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = dy[i] * gelu_derivative(x[i], ActivationKind::gelu_erf);
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      out[i] = dy[i] * gelu_derivative(x[i], ActivationKind::gelu_tanh);
    }
  }
}

void swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

void swiglu_backward(const float* gate, const float* up, const float* dy, std::int64_t n,
                     float* dgate, float* dup) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float weight = sigmoid(gate[i]);
    const float silu = gate[i] * weight;
    dgate[i] = dy[i] * up[i] * (weight + silu * (1.0F - weight));
    dup[i] = dy[i] * silu;
  }
}

// sigmoid(kClampRate * gate) of the clamped gate, and both clamped.
struct Clamped {
  Clamped(float gate, float up)
      : g(std::min(gate, kLimit)),
        u(std::clamp(up, -kLimit, kLimit)),
        weight(sigmoid(static_cast<float>(kClampRate) * g)) {}
  static constexpr auto kLimit = static_cast<float>(kClampLimit);
  float g, u, weight;
};

void clamped_swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    const Clamped one(gate[i], up[i]);
    out[i] = one.g * one.weight * (one.u + 1.0F);
  }
}

void clamped_swiglu_backward(const float* gate, const float* up, const float* dy, std::int64_t n,
                             float* dgate, float* dup) {
  for (std::int64_t i = 0; i < n; ++i) {
    const Clamped one(gate[i], up[i]);
    const float turn = static_cast<float>(kClampRate) * one.g * (1.0F - one.weight);
    const float slope = one.weight * (1.0F + turn);
    dgate[i] = gate[i] > Clamped::kLimit ? 0.0F : dy[i] * (one.u + 1.0F) * slope;
    dup[i] = std::abs(up[i]) > Clamped::kLimit ? 0.0F : dy[i] * one.g * one.weight;
  }
}

void geglu(const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = gate[i] * gelu_weight(gate[i], ActivationKind::gelu_tanh) * up[i];
  }
}

void geglu_backward(const float* gate, const float* up, const float* dy, std::int64_t n,
                    float* dgate, float* dup) {
  for (std::int64_t i = 0; i < n; ++i) {
    dgate[i] = dy[i] * up[i] * gelu_derivative(gate[i], ActivationKind::gelu_tanh);
    dup[i] = dy[i] * gate[i] * gelu_weight(gate[i], ActivationKind::gelu_tanh);
  }
}

// Updates one element of the optimizer's state.
struct AdamWStep {
  float clip, rate, correction1, correction2, beta1, beta2, epsilon, decay;
};

void adamw(const AdamWStep& s, const float* grad, std::int64_t n, float* master, float* m,
           float* v) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * s.clip;
    m[i] = s.beta1 * m[i] + (1.0F - s.beta1) * g;
    v[i] = s.beta2 * v[i] + (1.0F - s.beta2) * g * g;
    const float step = (m[i] / s.correction1) / (std::sqrt(v[i] / s.correction2) + s.epsilon);
    master[i] -= s.rate * (step + s.decay * master[i]);
  }
}

// Copies [count] elements into `buffer`, so that they can be changed.
float* take(const View& view, std::int64_t offset, std::int64_t count, float* buffer) {
  const float* values = load(view, offset, count, buffer);
  if (values != buffer)
    std::memcpy(buffer, values, static_cast<std::size_t>(count) * sizeof(float));
  return buffer;
}

}  // namespace

void execute(const Activation& op, const Frame& frame) {
  const View x = frame.view(op, op.x);
  const View y = frame.view(op, op.y);
  const std::int64_t x_width = inputs_of(op.kind) * op.width;
  const bool gated = x_width > op.width;
  const auto gate = op.kind == ActivationKind::swiglu           ? swiglu
                    : op.kind == ActivationKind::clamped_swiglu ? clamped_swiglu
                                                                : geglu;
  for_each_row(frame, rows_of(op, frame), op.width, [&](std::int64_t row, std::int32_t worker) {
    float* buffer = frame.scratch(worker);
    float* out = buffer + 2 * kPiece;
    for_each_in_row(op.width, [&](std::int64_t at, std::int64_t n) {
      const float* first = load(x, row * x_width + at, n, buffer);
      if (gated) {
        gate(first, load(x, row * x_width + op.width + at, n, buffer + kPiece), n, out);
      } else {
        gelu(first, n, op.kind, out);
      }
      store(y, row * op.width + at, n, out);
    });
  });
}

void execute(const ActivationBackward& op, const Frame& frame) {
  const View x = frame.view(op, op.x);
  const View dy = frame.view(op, op.dy);
  const View dx = frame.view(op, op.dx);
  const std::int64_t x_width = inputs_of(op.kind) * op.width;
  const bool gated = x_width > op.width;
  const auto gate_backward = op.kind == ActivationKind::swiglu           ? swiglu_backward
                             : op.kind == ActivationKind::clamped_swiglu ? clamped_swiglu_backward
                                                                         : geglu_backward;
  for_each_row(frame, rows_of(op, frame), op.width, [&](std::int64_t row, std::int32_t worker) {
    float* buffer = frame.scratch(worker);
    float* out = buffer + 3 * kPiece;
    for_each_in_row(op.width, [&](std::int64_t at, std::int64_t n) {
      const float* first = load(x, row * x_width + at, n, buffer);
      const float* slope = load(dy, row * op.width + at, n, buffer + kPiece);
      if (gated) {
        const std::int64_t up_at = row * x_width + op.width + at;
        const float* up = load(x, up_at, n, buffer + 2 * kPiece);
        gate_backward(first, up, slope, n, out, out + kPiece);
        store(dx, up_at, n, out + kPiece);
      } else {
        gelu_backward(first, slope, n, op.kind, out);
      }
      store(dx, row * x_width + at, n, out);
    });
  });
}

void execute(const Fill& op, const Frame& frame) {
  const View target = frame.view(op, op.target);
  if (target.dtype == Dtype::i32) {
    FPDT_ASSERT(target.access == Access::write);
    auto* values = reinterpret_cast<std::int32_t*>(target.data);
    std::fill_n(values, target.elements, static_cast<std::int32_t>(op.value));
    return;
  }
  for_each_piece(frame, target.elements, [&](std::int64_t at, std::int64_t n, std::int32_t worker) {
    float* values = frame.scratch(worker);
    std::fill_n(values, n, static_cast<float>(op.value));
    store(target, at, n, values);
  });
}

void execute(const Copy& op, const Frame& frame) {
  const View source = frame.view(op, op.source);
  const View target = frame.view(op, op.target);
  FPDT_ASSERT(source.elements == target.elements);
  const bool bytes_alike = source.dtype == target.dtype && target.access == Access::write;
  const std::int64_t size = dtype_bytes(source.dtype);
  for_each_piece(frame, source.elements, [&](std::int64_t at, std::int64_t n, std::int32_t worker) {
    if (bytes_alike) {
      std::memcpy(target.data + at * size, source.data + at * size,
                  static_cast<std::size_t>(n * size));
    } else {
      store(target, at, n, load(source, at, n, frame.scratch(worker)));
    }
  });
}

void execute(const Permute& op, const Frame& frame) {
  const View source = frame.view(op, op.source);
  const View target = frame.view(op, op.target);
  for_each_row(frame, op.outer * op.inner, op.width, [&](std::int64_t row, std::int32_t worker) {
    const std::int64_t from = (row % op.outer * op.inner + row / op.outer) * op.width;
    for_each_in_row(op.width, [&](std::int64_t at, std::int64_t n) {
      store(target, row * op.width + at, n, load(source, from + at, n, frame.scratch(worker)));
    });
  });
}

void execute(const Add& op, const Frame& frame) {
  const View source = frame.view(op, op.source), addend = frame.view(op, op.addend);
  const View bias = frame.view(op, op.bias), out = frame.view(op, op.out);
  for_each_row(frame, op.rows, op.width, [&](std::int64_t row, std::int32_t worker) {
    float* buffer = frame.scratch(worker);
    for_each_in_row(op.width, [&](std::int64_t at, std::int64_t n) {
      float* sum = take(source, row * op.width + at, n, buffer);
      const float* more = load(addend, row * op.width + at, n, buffer + kPiece);
      for (std::int64_t i = 0; i < n; ++i) sum[i] += more[i];
      if (present(bias)) {
        const float* offsets = load(bias, at, n, buffer + kPiece);
        for (std::int64_t i = 0; i < n; ++i) sum[i] += offsets[i];
      }
      store(out, row * op.width + at, n, sum);
    });
  });
}

void execute(const AdamW& op, const Frame& frame) {
  const View grad = frame.view(op, op.grad);
  const View master = frame.view(op, op.master), master_out = frame.view(op, op.master_out);
  const View m = frame.view(op, op.m), m_out = frame.view(op, op.m_out);
  const View v = frame.view(op, op.v), v_out = frame.view(op, op.v_out);
  const View step = frame.view(op, op.step);
  const View param = frame.view(op, op.param);
  const float squared_norm = load_scalar(frame.view(op, op.norm), 0);
  const bool finite = std::isfinite(squared_norm);
  const double norm = std::sqrt(static_cast<double>(squared_norm));
  const bool clips = op.clip > 0 && norm > op.clip;
  const AdamWStep constants{static_cast<float>(clips ? op.clip / norm : 1.0),
                            load_scalar(step, 0),
                            load_scalar(step, 1),
                            load_scalar(step, 2),
                            static_cast<float>(op.beta1),
                            static_cast<float>(op.beta2),
                            static_cast<float>(op.epsilon),
                            static_cast<float>(op.weight_decay)};
  for_each_piece(frame, master.elements, [&](std::int64_t at, std::int64_t n, std::int32_t worker) {
    float* buffer = frame.scratch(worker);
    float* new_master = take(master, at, n, buffer);
    float* new_m = take(m, at, n, buffer + kPiece);
    float* new_v = take(v, at, n, buffer + 2 * kPiece);
    if (finite) {
      adamw(constants, load(grad, at, n, buffer + 3 * kPiece), n, new_master, new_m, new_v);
    }
    store(master_out, at, n, new_master);
    store(m_out, at, n, new_m);
    store(v_out, at, n, new_v);
    if (present(param)) store(param, at, n, new_master);
  });
}

}  // namespace fpdt::cpu
