// Pre-norm blocks on a residual stream x [S, E]:
//
//   x  = scale embed[tokens] (+ positions[t - documents[t]])
//   n1 = norm(x);       qkv = n1 Wqkv^T + b, q and k (normed by head and) rotated
//   h  = x + p, p = o Wo^T + b, where o = attention(qkv)
//   n2 = norm(h), or norm(x) when residuals are parallel
//   up = n2 Wup^T + b;  a = activation(up)
//   x' = h + z, z = a Wdown^T + b
//   With post norms, h = x + norm(p) and x' = h + norm(z).
//   logits = norm(x) Whead^T, where Whead is embed.weight when tied.
#include "fpdt/reference/model.h"

#include <utility>

#include "fpdt/base/assert.h"
#include "fpdt/reference/activation.h"
#include "fpdt/reference/attention.h"
#include "fpdt/reference/experts.h"
#include "fpdt/reference/head_norm.h"
#include "fpdt/reference/linear.h"
#include "fpdt/reference/loss.h"
#include "fpdt/reference/norm.h"
#include "fpdt/reference/rotary.h"

namespace fpdt::reference {
namespace {

// The values of one layer that backward reads.
struct LayerRecord {
  Matrix x;    // [S, E] input
  Matrix n1;   // [S, E]
  Matrix raw;  // [S, (H+2G)*D] before the norm of heads, when there is one
  Matrix qkv;  // [S, (H+2G)*D], normed and rotated
  Matrix o;    // [S, H*D]
  Matrix p;    // [S, E] before its norm, when there is one
  Matrix h;    // [S, E] residual after attention
  Matrix n2;   // [S, E]
  Matrix up;   // [S, up_width] of the dense feed-forward, or of the shared one
  Matrix a;    // [S, F] likewise
  Matrix z;    // [S, E] before its norm, when there is one
};

struct Record {
  std::vector<LayerRecord> layers;
  Matrix x;       // [S, E] after the last layer
  Matrix n;       // [S, E] after the final norm
  Matrix logits;  // [S, V]
};

HeadLayout head_layout(const ModelSpec& model) {
  return {size(model.heads), size(model.kv_heads), size(model.head_dim), model.attention_scale,
          model.attention_cap};
}

std::string head_name(const ModelSpec& model) {
  return model.tied_embeddings ? "embed.weight" : "head.weight";
}

Matrix normed(const ModelSpec& model, const Parameters& parameters, const std::string& name,
              const Matrix& x) {
  return norm(model.norm, model.norm_epsilon, x, find(parameters, name + ".weight"),
              find(parameters, name + ".bias"));
}

Matrix projected(const Parameters& parameters, const std::string& name, const Matrix& x,
                 std::int64_t in) {
  return linear(x, find(parameters, name + ".weight"), find(parameters, name + ".bias"), size(in));
}

// Backward of the norm and of the linear layer: adds the parameters' gradients, and returns that of
// the input.
Matrix normed_backward(const ModelSpec& model, const Parameters& parameters,
                       const std::string& name, const Matrix& x, const Matrix& dy,
                       Parameters& gradients) {
  const NormGradients d =
      norm_backward(model.norm, model.norm_epsilon, x, find(parameters, name + ".weight"), dy);
  add_to(gradients, name + ".weight", d.weight);
  add_to(gradients, name + ".bias", d.bias);
  return d.x;
}

Matrix projected_backward(const Parameters& parameters, const std::string& name, const Matrix& x,
                          const Matrix& dy, std::int64_t in, Parameters& gradients) {
  const LinearGradients d = linear_backward(x, find(parameters, name + ".weight"), dy, size(in));
  add_to(gradients, name + ".weight", d.weight);
  add_to(gradients, name + ".bias", d.bias);
  return d.x;
}

HeadNormWeights head_norm_weights(const ModelSpec& model, const Parameters& parameters,
                                  std::int64_t layer) {
  return {find(parameters, layer_tensor_name(layer, "q_norm.weight")),
          find(parameters, layer_tensor_name(layer, "k_norm.weight")), model.norm_epsilon};
}

Sight sight_of(const ModelSpec& model, const Parameters& parameters, std::int64_t layer) {
  return {model.kind_of(layer).window, find(parameters, layer_tensor_name(layer, "sinks.weight"))};
}

ExpertWeights expert_weights(const Parameters& parameters, std::int64_t layer) {
  const auto of = [&](const char* tensor) -> const Matrix& {
    return find(parameters, layer_tensor_name(layer, tensor));
  };
  return {of("router.weight"), of("up.weight"), of("down.weight"),   of("router.bias"),
          of("up.bias"),       of("down.bias"), of("selection.bias")};
}

// What of a layer's feed-forward is dense: all of it, or what stands beside experts. Width 0: none.
struct Dense {
  std::string up, down;  // its tensors
  std::int64_t width;

  Dense(const ModelSpec& model, std::int64_t layer)
      : up(layer_tensor_name(layer, model.has_experts() ? "shared_up" : "up")),
        down(layer_tensor_name(layer, model.has_experts() ? "shared_down" : "down")),
        width(model.dense_width()) {}
};

// The input of the second norm.
const Matrix& feed_forward_input(const ModelSpec& model, const LayerRecord& r) {
  return model.parallel_residual ? r.x : r.h;
}

void assert_fits(const ModelSpec& model, const Sample& sample) {
  FPDT_ASSERT(!sample.tokens.empty());
  FPDT_ASSERT(sample.labels.size() == sample.tokens.size());
  FPDT_ASSERT(sample.documents.size() == sample.tokens.size());
  for (std::size_t t = 0; t < sample.tokens.size(); ++t) {
    FPDT_ASSERT(sample.tokens[t] >= 0 && sample.tokens[t] < model.vocabulary);
    FPDT_ASSERT(sample.labels[t] < model.vocabulary);
    FPDT_ASSERT(sample.documents[t] >= 0 && size(sample.documents[t]) <= t);
    const std::size_t position = t - size(sample.documents[t]);
    FPDT_ASSERT(model.learned_positions == 0 || position < size(model.learned_positions));
  }
}

void assert_fits(const ModelSpec& model, const Parameters& parameters) {
  for (const TensorSpec& tensor : model_tensors(model)) {
    FPDT_ASSERT(find(parameters, tensor.name).size() == size(tensor.elements()));
  }
}

Matrix embed(const ModelSpec& model, const Parameters& parameters, const Sample& sample) {
  const std::size_t hidden = size(model.hidden);
  const Matrix& table = find(parameters, "embed.weight");
  const Matrix& positions = find(parameters, "positions.weight");
  Matrix x(sample.tokens.size() * hidden);
  for (std::size_t t = 0; t < sample.tokens.size(); ++t) {
    const std::size_t token = size(sample.tokens[t]);
    const std::size_t position = t - size(sample.documents[t]);
    for (std::size_t i = 0; i < hidden; ++i) {
      x[t * hidden + i] = model.embedding_scale * table[token * hidden + i];
      if (!positions.empty()) x[t * hidden + i] += positions[position * hidden + i];
    }
  }
  return x;
}

void embed_backward(const ModelSpec& model, const Sample& sample, const Matrix& dx,
                    Parameters& gradients) {
  const std::size_t hidden = size(model.hidden);
  Matrix& table = gradients.tensors.at("embed.weight");
  for (std::size_t t = 0; t < sample.tokens.size(); ++t) {
    const std::size_t token = size(sample.tokens[t]);
    for (std::size_t i = 0; i < hidden; ++i) {
      table[token * hidden + i] += model.embedding_scale * dx[t * hidden + i];
    }
  }
  if (model.learned_positions == 0) return;
  Matrix& positions = gradients.tensors.at("positions.weight");
  for (std::size_t t = 0; t < sample.tokens.size(); ++t) {
    const std::size_t position = t - size(sample.documents[t]);
    for (std::size_t i = 0; i < hidden; ++i) {
      positions[position * hidden + i] += dx[t * hidden + i];
    }
  }
}

std::vector<double> frequencies_of(const ModelSpec& model, const LayerKind& kind,
                                   const Sample& sample) {
  return rotary_frequencies(kind.rotary, model.rotary_dim(kind), std::ssize(sample.documents));
}

// Records the layer, and turns x into x'.
LayerRecord layer_forward(const ModelSpec& model, const Parameters& parameters, std::int64_t layer,
                          const Sample& sample, Matrix& x) {
  const auto name = [&](const char* part) { return layer_tensor_name(layer, part); };
  const LayerKind& kind = model.kind_of(layer);
  LayerRecord r;
  r.x = x;
  r.n1 = model.pre_norms ? normed(model, parameters, name("norm1"), r.x) : r.x;
  r.qkv = projected(parameters, name("qkv"), r.n1, model.hidden);
  if (model.qk_norm) {
    r.raw = r.qkv;
    r.qkv = head_norm(r.raw, head_layout(model), head_norm_weights(model, parameters, layer));
  }
  rotate(r.qkv, sample.documents, head_layout(model), frequencies_of(model, kind, sample),
         Turn::forward, kind.rotary.magnitude);
  r.o = attention(r.qkv, sample.documents, head_layout(model), sight_of(model, parameters, layer));
  r.h = projected(parameters, name("out"), r.o, model.q_width());
  if (model.post_norms) {
    r.p = r.h;
    r.h = normed(model, parameters, name("out_norm"), r.p);
  }
  add_to(r.h, r.x);
  r.n2 = feed_forward_input(model, r);
  if (model.pre_norms) r.n2 = normed(model, parameters, name("norm2"), r.n2);
  x.assign(x.size(), 0);
  if (model.has_experts()) x = experts(model, r.n2, expert_weights(parameters, layer));
  if (const Dense dense(model, layer); dense.width > 0) {
    r.up = projected(parameters, dense.up, r.n2, model.hidden);
    r.a = activation(model.activation, r.up, size(dense.width));
    add_to(x, projected(parameters, dense.down, r.a, dense.width));
  }
  if (model.post_norms) {
    r.z = x;
    x = normed(model, parameters, name("down_norm"), r.z);
  }
  add_to(x, r.h);
  return r;
}

// The balance of a sample's experts, if the model asks for it, and its factor in the loss.
struct Balanced {
  std::optional<Balance> balance;
  double scale = 0;
};

// The gradient of the input of the feed-forward, from that of what it made.
Matrix feed_forward_backward(const ModelSpec& model, const Parameters& parameters,
                             std::int64_t layer, const LayerRecord& r, const Matrix& dy,
                             const Balanced& balanced, Parameters& gradients) {
  const auto name = [&](const char* part) { return layer_tensor_name(layer, part); };
  Matrix dn2(r.n2.size());
  if (model.has_experts()) {
    const ExpertWeights weights = expert_weights(parameters, layer);
    const Matrix dbalance = balanced.balance.has_value()
                                ? balanced.balance->gradient(r.n2, weights, balanced.scale)
                                : Matrix{};
    ExpertGradients d = experts_backward(model, r.n2, weights, dy, dbalance);
    add_to(gradients, name("router.weight"), d.router);
    add_to(gradients, name("up.weight"), d.up);
    add_to(gradients, name("down.weight"), d.down);
    add_to(gradients, name("router.bias"), d.router_bias);
    add_to(gradients, name("up.bias"), d.up_bias);
    add_to(gradients, name("down.bias"), d.down_bias);
    dn2 = std::move(d.n);
  }
  if (const Dense dense(model, layer); dense.width > 0) {
    const Matrix da = projected_backward(parameters, dense.down, r.a, dy, dense.width, gradients);
    const Matrix dup = activation_backward(model.activation, r.up, da, size(dense.width));
    add_to(dn2, projected_backward(parameters, dense.up, r.n2, dup, model.hidden, gradients));
  }
  return dn2;
}

// Turns dx' into dx.
void layer_backward(const ModelSpec& model, const Parameters& parameters, std::int64_t layer,
                    const Sample& sample, const LayerRecord& r, const Balanced& balanced,
                    Matrix& dx, Parameters& gradients) {
  const auto name = [&](const char* part) { return layer_tensor_name(layer, part); };
  const LayerKind& kind = model.kind_of(layer);
  const auto before_norm = [&](const char* norm, const Matrix& in, const Matrix& dout) {
    return model.post_norms ? normed_backward(model, parameters, name(norm), in, dout, gradients)
                            : dout;
  };
  const Matrix dn2 = feed_forward_backward(model, parameters, layer, r,
                                           before_norm("down_norm", r.z, dx), balanced, gradients);
  // The gradient of the residual stream at the point where the second norm reads it. Attention's
  // output enters before that point or, if residuals are parallel, only at the end of the layer.
  Matrix dh = model.pre_norms ? normed_backward(model, parameters, name("norm2"),
                                                feed_forward_input(model, r), dn2, gradients)
                              : dn2;
  add_to(dh, dx);
  const Matrix dp = before_norm("out_norm", r.p, model.parallel_residual ? dx : dh);
  const Matrix dout =
      projected_backward(parameters, name("out"), r.o, dp, model.q_width(), gradients);
  auto [dqkv, dsinks] = attention_backward(r.qkv, sample.documents, head_layout(model), dout,
                                           sight_of(model, parameters, layer));
  add_to(gradients, name("sinks.weight"), dsinks);
  rotate(dqkv, sample.documents, head_layout(model), frequencies_of(model, kind, sample),
         Turn::backward, kind.rotary.magnitude);
  if (model.qk_norm) {
    HeadNormGradients d = head_norm_backward(r.raw, head_layout(model),
                                             head_norm_weights(model, parameters, layer), dqkv);
    add_to(gradients, name("q_norm.weight"), d.q);
    add_to(gradients, name("k_norm.weight"), d.k);
    dqkv = std::move(d.qkv);
  }
  const Matrix dn1 =
      projected_backward(parameters, name("qkv"), r.n1, dqkv, model.hidden, gradients);
  dx = model.pre_norms ? normed_backward(model, parameters, name("norm1"), r.x, dn1, gradients)
                       : dn1;
  add_to(dx, dh);
}

Record forward(const ModelSpec& model, const Parameters& parameters, const Sample& sample) {
  assert_fits(model, sample);
  assert_fits(model, parameters);
  Record r;
  r.x = embed(model, parameters, sample);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const ModelSpec own = with_layers_of(model, model.kind_of(layer));
    r.layers.push_back(layer_forward(own, parameters, layer, sample, r.x));
  }
  r.n = normed(model, parameters, "final_norm", r.x);
  r.logits = linear(r.n, find(parameters, head_name(model)), {}, size(model.hidden));
  const double cap = model.logits_cap;
  for (std::size_t i = 0; cap > 0 && i < r.logits.size(); ++i) {
    r.logits[i] = cap * std::tanh(r.logits[i] / cap);
  }
  return r;
}

void backward(const ModelSpec& model, const Parameters& parameters, const Sample& sample,
              const Record& r, Matrix dlogits, const Balanced& balanced, Parameters& gradients) {
  const double cap = model.logits_cap;
  for (std::size_t i = 0; cap > 0 && i < dlogits.size(); ++i) {
    dlogits[i] *= 1 - r.logits[i] / cap * (r.logits[i] / cap);
  }
  const LinearGradients head =
      linear_backward(r.n, find(parameters, head_name(model)), dlogits, size(model.hidden));
  add_to(gradients, head_name(model), head.weight);
  Matrix dx = normed_backward(model, parameters, "final_norm", r.x, head.x, gradients);
  for (std::int64_t layer = model.layers - 1; layer >= 0; --layer) {
    const ModelSpec own = with_layers_of(model, model.kind_of(layer));
    layer_backward(own, parameters, layer, sample, r.layers[size(layer)], balanced, dx, gradients);
  }
  embed_backward(model, sample, dx, gradients);
}

Balanced balance_of(const ModelSpec& model, const Parameters& parameters, const Sample& sample,
                    const Record& r, double share) {
  if (!model.balances()) return {};
  Balanced balanced{Balance(model, sample.labels), share};
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (model.kind_of(layer).dense_feed_forward > 0) continue;
    balanced.balance->add(r.layers[size(layer)].n2, expert_weights(parameters, layer));
  }
  return balanced;
}

}  // namespace

Step loss_and_gradients(const ModelSpec& model, const Parameters& parameters,
                        const std::vector<Sample>& samples, double scale) {
  Step step{0, zeros(model)};
  for (const Sample& sample : samples) {
    const Record record = forward(model, parameters, sample);
    const CrossEntropy entropy = cross_entropy(record.logits, sample.labels, scale);
    step.loss += entropy.loss;
    const Balanced balanced =
        balance_of(model, parameters, sample, record, 1 / static_cast<double>(samples.size()));
    if (balanced.balance.has_value()) step.loss += balanced.scale * balanced.balance->loss();
    backward(model, parameters, sample, record, entropy.dlogits, balanced, step.gradients);
  }
  return step;
}

double loss(const ModelSpec& model, const Parameters& parameters,
            const std::vector<Sample>& samples, double scale) {
  double sum = 0;
  for (const Sample& sample : samples) {
    sum += cross_entropy(logits(model, parameters, sample), sample.labels, scale).loss;
  }
  return sum;
}

Matrix logits(const ModelSpec& model, const Parameters& parameters, const Sample& sample) {
  return forward(model, parameters, sample).logits;
}

}  // namespace fpdt::reference
