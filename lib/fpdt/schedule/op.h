// Ops: the verbs of a schedule. Each body is a plain struct of constants and operands.
//
// `fields(self, f)` of a body is its only description. It calls f with each field's name, in file
// order; printer, loader, verifier, placement and executor are visitors of it. They all skip an
// absent operand.
//
// Letters: S tokens, P sequence-parallel ranks, C chunks, l rows of a chunk on one rank, n = P*l
// rows of a chunk after the all-to-all, E hidden, H query heads, G KV heads, D head size, F
// feed-forward, V vocabulary, h = H/P and g = max(1, G/P) heads on one rank. Shapes are row-major.
//
// To add an op, write its struct here with `kTraits` and `fields`, and add it to `Body`. The tidy
// test asks for a row in docs/schedule-format.md; the compiler asks for the rest:
//
//   no kTraits                       'kTraits' is not a member
//   no shape rule                    no matching function `rule` in shapes.cpp
//   no demand                        no matching function `fill` in cost/demand.cpp
//   no kernel of the CPU             no matching function `execute` in cpu/kernels.cpp
//   no kernel of the GPU             no matching function `execute` in cuda/backend.cpp
//   a gradient, not Covers::rows     use of deleted function `gradient` in verify/coverage.cpp
//
// The verifier refuses an op that adds to a gradient but declares it as a plain target (S605).
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "fpdt/base/words.h"
#include "fpdt/schedule/buffer.h"
#include "fpdt/schedule/operand.h"

namespace fpdt {

// The largest head size of any kernel.
inline constexpr std::int64_t kHeadDimMax = 512;
// The most experts of a layer, and the most that a row chooses.
inline constexpr std::int64_t kExpertsMost = 1024;
inline constexpr std::int64_t kActiveMost = 64;

enum class NormKind : std::uint8_t { rms, layer };
enum class ActivationKind : std::uint8_t {
  swiglu,
  gelu_tanh,
  gelu_erf,
  geglu_tanh,
  clamped_swiglu
};
enum class ScalingKind : std::uint8_t { llama3, linear, yarn, yarn_exact, longrope };
enum class Pass : std::uint8_t { forward, recompute, backward };

constexpr auto words_of(NormKind) { return word_list("rms", "layer"); }
constexpr auto words_of(ActivationKind) {
  return word_list("swiglu", "gelu_tanh", "gelu_erf", "geglu_tanh", "clamped_swiglu");
}
// How many inputs make an output: a gated kind takes one of the gate and one of up.
constexpr std::int64_t inputs_of(ActivationKind kind) {
  return kind == ActivationKind::gelu_tanh || kind == ActivationKind::gelu_erf ? 1 : 2;
}
// Of clamped_swiglu: the largest gate, and the largest magnitude of up; the factor of the gate in
// its sigmoid.
inline constexpr double kClampLimit = 7, kClampRate = 1.702;
constexpr auto words_of(ScalingKind) {
  return word_list("llama3", "linear", "yarn", "yarn_exact", "longrope");
}
constexpr auto words_of(Pass) { return word_list("forward", "recompute", "backward"); }

// The part of each block that the ops of a kind must cover together. pairs: every pair of query and
// key once (attention tiles). rows: every local token row once (gradients). nothing: each op stands
// alone. The verifier proves it (S5xx).
enum class Covers : std::uint8_t { nothing, pairs, rows };

// Whether an op may replace what it reads by the next version in the same rows.
enum class InPlace : bool { no, yes };

// The properties of a kind of op beside its fields: its word in the file, and the two above.
struct OpTraits {
  constexpr OpTraits(std::string_view word, Covers all, InPlace replaces = InPlace::no)
      : name(word), covers(all), in_place(replaces) {}
  std::string_view name;
  Covers covers;
  InPlace in_place;
};

// Base of the visitors of `fields`. A visitor defines `read` and `target`; other members fall back
// on those two, and constants are ignored.
template <class Visitor>
struct FieldVisitor {
  // Integers with a meaning, which kernels use as an index or a bound.
  template <class O>
  void indices(std::string_view field, O& operand, Holds) {
    self().read(field, operand);
  }
  // A complete gradient.
  template <class O>
  void sum(std::string_view field, O& operand) {
    self().read(field, operand);
  }
  // Memory whose contents do not matter before or after the op.
  template <class O>
  void scratch(std::string_view field, O& operand) {
    self().read(field, operand);
  }
  // A sum over `rows` local token rows from row `first` of the rank; first < 0: no such sum.
  template <class T>
  void gradient(std::string_view field, T& target, std::int64_t /*first*/, std::int64_t /*rows*/) {
    self().target(field, target);
  }
  // Lists of operands, in collectives.
  template <class List>
  void reads(std::string_view field, List& operands) {
    for (auto& one : operands) self().read(field, one);
  }
  template <class List>
  void targets(std::string_view field, List& targets) {
    for (auto& one : targets) self().target(field, one);
  }
  template <class T>
  void constant(std::string_view, T&) {}

 private:
  Visitor& self() { return static_cast<Visitor&>(*this); }
};

// out[m,n] (+)= op(a)[m,k] * op(b)[k,n] + bias[n] + addend[m,n]. a is stored [m,k], or [k,m] when
// transpose_a; b is stored [k,n], or [n,k] when transpose_b. Operands may be flat buffers: the op
// uses the first m*k (k*n, n) elements from the operand's first row. local_first: for a weight
// gradient, the rank's first local token row of the sum; -1 otherwise.
struct Matmul {
  static constexpr OpTraits kTraits{"matmul", Covers::rows};
  Operand a, b, bias, addend;
  Target out;
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::int64_t local_first = -1;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("a", self.a);
    f.read("b", self.b);
    f.read("bias", self.bias);
    f.read("addend", self.addend);
    f.gradient("out", self.out, self.local_first, self.k);
    f.constant("m", self.m);
    f.constant("n", self.n);
    f.constant("k", self.k);
    f.constant("transpose_a", self.transpose_a);
    f.constant("transpose_b", self.transpose_b);
    f.constant("local_first", self.local_first);
  }
};

// out[width] += sum over rows of source[rows,width]: the gradient of a bias.
struct ColumnSum {
  static constexpr OpTraits kTraits{"column_sum", Covers::rows};
  Operand source;
  Target out;
  std::int64_t rows = 0, width = 0;
  std::int64_t local_first = -1;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("source", self.source);
    f.gradient("out", self.out, self.local_first, self.rows);
    f.constant("rows", self.rows);
    f.constant("width", self.width);
    f.constant("local_first", self.local_first);
  }
};

// y[rows,width] = norm(x) * weight + bias, row by row.
struct Norm {
  static constexpr OpTraits kTraits{"norm", Covers::nothing};
  Operand x, weight, bias;
  Target y;
  NormKind kind = NormKind::rms;
  double epsilon = 1e-5;
  std::int64_t rows = 0, width = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("x", self.x);
    f.read("weight", self.weight);
    f.read("bias", self.bias);
    f.target("y", self.y);
    f.constant("kind", self.kind);
    f.constant("epsilon", self.epsilon);
    f.constant("rows", self.rows);
    f.constant("width", self.width);
  }
};

// dx = d(norm)/dx^T dy + addend; dweight and dbias += their sums over rows. Statistics are
// recomputed from x.
struct NormBackward {
  static constexpr OpTraits kTraits{"norm_backward", Covers::rows};
  Operand x, weight, dy, addend;
  Target dx, dweight, dbias;
  NormKind kind = NormKind::rms;
  double epsilon = 1e-5;
  std::int64_t rows = 0, width = 0;
  std::int64_t local_first = -1;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("x", self.x);
    f.read("weight", self.weight);
    f.read("dy", self.dy);
    f.read("addend", self.addend);
    f.target("dx", self.dx);
    f.gradient("dweight", self.dweight, self.local_first, self.rows);
    f.gradient("dbias", self.dbias, self.local_first, self.rows);
    f.constant("kind", self.kind);
    f.constant("epsilon", self.epsilon);
    f.constant("rows", self.rows);
    f.constant("width", self.width);
    f.constant("local_first", self.local_first);
  }
};

// RMS norm of columns in place: in each of the rows [rows, stride], elements x from column_first to
// column_first + width become norm(x) * weight, and the others stay. The norm of all query heads
// together, or of all key heads, in rows of the qkv projection (OLMoE, arXiv 2409.02060, section
// 4.2.5).
struct NormColumns {
  static constexpr OpTraits kTraits{"norm_columns", Covers::nothing};
  Operand weight;
  Target values;
  double epsilon = 1e-5;
  std::int64_t rows = 0, width = 0, stride = 0, column_first = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("weight", self.weight);
    f.target("values", self.values);
    f.constant("epsilon", self.epsilon);
    f.constant("rows", self.rows);
    f.constant("width", self.width);
    f.constant("stride", self.stride);
    f.constant("column_first", self.column_first);
  }
};

// The gradient of NormColumns, in place: those columns of `gradient` turn from dy into dx. x [rows,
// stride], as it was before the norm. dweight += its sum over rows. local_first: as in Matmul.
struct NormColumnsBackward {
  static constexpr OpTraits kTraits{"norm_columns_backward", Covers::rows};
  Operand x, weight;
  Target gradient, dweight;
  double epsilon = 1e-5;
  std::int64_t rows = 0, width = 0, stride = 0, column_first = 0;
  std::int64_t local_first = -1;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("x", self.x);
    f.read("weight", self.weight);
    f.target("gradient", self.gradient);
    f.gradient("dweight", self.dweight, self.local_first, self.rows);
    f.constant("epsilon", self.epsilon);
    f.constant("rows", self.rows);
    f.constant("width", self.width);
    f.constant("stride", self.stride);
    f.constant("column_first", self.column_first);
    f.constant("local_first", self.local_first);
  }
};

// Constants of rotary embedding (Su et al., arXiv 2104.09864; half-split pairs i, i + rotary/2).
// factor != 1 scales the frequencies, or longrope divides that of each pair by its own factor;
// `magnitude` multiplies the rotated dimensions. rotary = 0: none.
struct Rotary {
  std::int64_t rotary = 0;
  double theta = 10000;
  double factor = 1, low_factor = 1, high_factor = 4;
  std::int64_t original_positions = 8192;
  ScalingKind scaling = ScalingKind::llama3;
  double magnitude = 1;
  std::vector<double> factors;

  bool operator==(const Rotary&) const = default;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.constant("rotary", self.rotary);
    f.constant("theta", self.theta);
    f.constant("factor", self.factor);
    f.constant("low_factor", self.low_factor);
    f.constant("high_factor", self.high_factor);
    f.constant("original_positions", self.original_positions);
    f.constant("scaling", self.scaling);
    f.constant("magnitude", self.magnitude);
    f.constant("factors", self.factors);
  }
};

// KV heads of one of the ranks that exchange tokens for heads.
inline std::int64_t kv_heads_of_rank(std::int64_t kv_heads, std::int64_t ranks) {
  return kv_heads == 0 ? 0 : std::max<std::int64_t>(1, kv_heads / ranks);
}

// Splits heads, rotates them and orders them for the all-to-all. From qkv [rows, (H+2G)*D] (all q
// heads, then k, then v) it makes q [ranks*rows, h*D], whose block j holds the query heads of rank
// j, and kv [ranks*rows, 2*g*D], whose block j holds, per token, the g key heads and then the g
// value heads of rank j (KV heads repeat when G < ranks). The position of row i is token -
// documents[token], token = token_first + i. q_weight and k_weight [D], when present: every query
// and key head is RMS-normalised before its rotation. With H = 0 or G = 0 the rows hold only keys
// and values or only queries, and the other target and weight are absent.
struct SplitHeads {
  static constexpr OpTraits kTraits{"split_heads", Covers::nothing};
  Operand qkv, q_weight, k_weight, documents;
  Target q, kv;
  std::int64_t rows = 0, heads = 0, kv_heads = 0, head_dim = 0, ranks = 1;
  Rotary rotary;
  double epsilon = 1e-6;
  RankExpression token_first;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("qkv", self.qkv);
    f.read("q_weight", self.q_weight);
    f.read("k_weight", self.k_weight);
    f.indices("documents", self.documents, Holds::documents);
    f.target("q", self.q);
    f.target("kv", self.kv);
    f.constant("rows", self.rows);
    f.constant("heads", self.heads);
    f.constant("kv_heads", self.kv_heads);
    f.constant("head_dim", self.head_dim);
    f.constant("ranks", self.ranks);
    Rotary::fields(self.rotary, f);
    f.constant("epsilon", self.epsilon);
    f.constant("token_first", self.token_first);
  }
};

// The gradient of SplitHeads: dqkv [rows, (H+2G)*D] from dq and dkv; the copies of a repeated KV
// head add up. Normalised heads also need qkv, their values before the norm, and yield dq_weight
// and dk_weight [D] f32. local_first: as in Matmul.
struct JoinHeads {
  static constexpr OpTraits kTraits{"join_heads", Covers::rows};
  Operand dq, dkv, qkv, q_weight, k_weight, documents;
  Target dqkv, dq_weight, dk_weight;
  std::int64_t rows = 0, heads = 0, kv_heads = 0, head_dim = 0, ranks = 1;
  Rotary rotary;
  double epsilon = 1e-6;
  RankExpression token_first;
  std::int64_t local_first = -1;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("dq", self.dq);
    f.read("dkv", self.dkv);
    f.read("qkv", self.qkv);
    f.read("q_weight", self.q_weight);
    f.read("k_weight", self.k_weight);
    f.indices("documents", self.documents, Holds::documents);
    f.target("dqkv", self.dqkv);
    f.gradient("dq_weight", self.dq_weight, self.local_first, self.rows);
    f.gradient("dk_weight", self.dk_weight, self.local_first, self.rows);
    f.constant("rows", self.rows);
    f.constant("heads", self.heads);
    f.constant("kv_heads", self.kv_heads);
    f.constant("head_dim", self.head_dim);
    f.constant("ranks", self.ranks);
    Rotary::fields(self.rotary, f);
    f.constant("epsilon", self.epsilon);
    f.constant("token_first", self.token_first);
    f.constant("local_first", self.local_first);
  }
};

// target[inner, outer, width] = source[outer, inner, width], converting the type.
struct Permute {
  static constexpr OpTraits kTraits{"permute", Covers::nothing};
  Operand source;
  Target target;
  std::int64_t outer = 1, inner = 1, width = 1;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("source", self.source);
    f.target("target", self.target);
    f.constant("outer", self.outer);
    f.constant("inner", self.inner);
    f.constant("width", self.width);
  }
};

// out[rows,width] (+)= source + addend + bias[width], in f32: the residual and the bias of a
// product whose terms several ranks have added up.
struct Add {
  static constexpr OpTraits kTraits{"add", Covers::nothing};
  Operand source, addend, bias;
  Target out;
  std::int64_t rows = 0, width = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("source", self.source);
    f.read("addend", self.addend);
    f.read("bias", self.bias);
    f.target("out", self.out);
    f.constant("rows", self.rows);
    f.constant("width", self.width);
  }
};

// One tile of exact attention: query rows [q_first, +q_rows) against key rows [k_first, +k_rows) of
// the sequence, h heads of this rank from head_first. Token t attends to u when documents[t] <= u
// <= t and, with a window, t < u + window, so a tile whose keys all come later or are all older
// does nothing on that rank. q [q_rows, h*D], kv [k_rows, 2*g*D]; o [q_rows, h*D] is the normalised
// output over the keys seen so far and lse [q_rows, h] its natural log-sum-exp; accumulate merges
// (o, lse) of this tile into them. cap > 0: a scaled score s becomes cap * tanh(s / cap) (Gemma 2,
// arXiv 2408.00118, section 2). workspace: scratch memory for a library's kernel, which knows no
// caps, and windows only in tiles of rows with their own keys; absent: the backend uses a kernel
// that needs none.
struct AttentionForward {
  static constexpr OpTraits kTraits{"attention_forward", Covers::pairs};
  Operand q, kv, documents;
  Target o, lse;
  Operand workspace;
  RankExpression q_first, k_first;
  std::int64_t q_rows = 0, k_rows = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  // h, g, D
  double scale = 1;
  Pass pass = Pass::forward;
  RankExpression head_first;
  std::int64_t window = 0;
  double cap = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("q", self.q);
    f.read("kv", self.kv);
    f.indices("documents", self.documents, Holds::documents);
    f.target("o", self.o);
    f.target("lse", self.lse);
    f.scratch("workspace", self.workspace);
    f.constant("q_first", self.q_first);
    f.constant("q_rows", self.q_rows);
    f.constant("k_first", self.k_first);
    f.constant("k_rows", self.k_rows);
    f.constant("heads", self.heads);
    f.constant("kv_heads", self.kv_heads);
    f.constant("head_dim", self.head_dim);
    f.constant("scale", self.scale);
    f.constant("pass", self.pass);
    f.constant("head_first", self.head_first);
    f.constant("window", self.window);
    f.constant("cap", self.cap);
  }
};

// delta[rows, heads] = sum over D of o * do, the row term of the softmax gradient (Dao et al.,
// arXiv 2205.14135, algorithm 4). o and do are [rows, heads*D].
struct AttentionDelta {
  static constexpr OpTraits kTraits{"attention_delta", Covers::nothing};
  Operand o, dout;
  Target delta;
  std::int64_t rows = 0, heads = 0, head_dim = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("o", self.o);
    f.read("dout", self.dout);
    f.target("delta", self.delta);
    f.constant("rows", self.rows);
    f.constant("heads", self.heads);
    f.constant("head_dim", self.head_dim);
  }
};

// The gradient of one attention tile. lse [q_rows, h] is the log-sum-exp over all keys and delta
// [q_rows, h] from AttentionDelta, so tile gradients add up exactly. dq [q_rows, h*D], dkv [k_rows,
// 2*g*D], both f32. workspace: as in AttentionForward.
struct AttentionBackward {
  static constexpr OpTraits kTraits{"attention_backward", Covers::pairs};
  Operand q, kv, dout, lse, delta, documents;
  Target dq, dkv;
  Operand workspace;
  RankExpression q_first, k_first;
  std::int64_t q_rows = 0, k_rows = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double scale = 1;
  Pass pass = Pass::backward;
  RankExpression head_first;
  std::int64_t window = 0;
  double cap = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("q", self.q);
    f.read("kv", self.kv);
    f.read("dout", self.dout);
    f.read("lse", self.lse);
    f.read("delta", self.delta);
    f.indices("documents", self.documents, Holds::documents);
    f.target("dq", self.dq);
    f.target("dkv", self.dkv);
    f.scratch("workspace", self.workspace);
    f.constant("q_first", self.q_first);
    f.constant("q_rows", self.q_rows);
    f.constant("k_first", self.k_first);
    f.constant("k_rows", self.k_rows);
    f.constant("heads", self.heads);
    f.constant("kv_heads", self.kv_heads);
    f.constant("head_dim", self.head_dim);
    f.constant("scale", self.scale);
    f.constant("pass", self.pass);
    f.constant("head_first", self.head_first);
    f.constant("window", self.window);
    f.constant("cap", self.cap);
  }
};

// A key of value 0 and of a learned score that all queries of a head see, the sink of gpt-oss
// (arXiv 2508.10925, section 2.1; Xiao et al., arXiv 2309.17453): merges it into (o, lse) of rows
// that have seen all other keys. With s the score of the head, lse' = log(e^lse + e^s) and o' =
// e^(lse - lse') o. sinks: `all_heads` scores, of which head i of this rank has number head_first
// + i, modulo their count. o [q_rows, h*D], lse [q_rows, h].
struct AttentionSink {
  static constexpr OpTraits kTraits{"attention_sink", Covers::nothing};
  Operand sinks;
  Target o, lse;
  RankExpression q_first;
  std::int64_t q_rows = 0;
  std::int64_t heads = 0, all_heads = 0, head_dim = 0;  // h; H, or those of a rank's part
  Pass pass = Pass::forward;
  RankExpression head_first;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("sinks", self.sinks);
    f.target("o", self.o);
    f.target("lse", self.lse);
    f.constant("q_first", self.q_first);
    f.constant("q_rows", self.q_rows);
    f.constant("heads", self.heads);
    f.constant("all_heads", self.all_heads);
    f.constant("head_dim", self.head_dim);
    f.constant("pass", self.pass);
    f.constant("head_first", self.head_first);
  }
};

// dsinks[head] -= sum over rows of e^(sinks[head] - lse) * delta, for the heads of this rank: what
// AttentionDelta sums over all keys holds for the sink too, whose value is 0. lse [q_rows, h] with
// the sink, delta [q_rows, h]. Where ranks exchange tokens for heads, the heads of this rank of all
// their rows count as all heads of its own rows. local_first: as in Matmul.
struct AttentionSinkGradient {
  static constexpr OpTraits kTraits{"attention_sink_gradient", Covers::rows};
  Operand sinks, lse, delta;
  Target dsinks;
  RankExpression q_first;
  std::int64_t q_rows = 0;
  std::int64_t heads = 0, all_heads = 0;
  RankExpression head_first;
  std::int64_t local_first = -1;

  [[nodiscard]] std::int64_t own_rows() const {
    const std::int64_t ranks = heads > 0 ? all_heads / heads : 0;
    return ranks > 0 ? q_rows / ranks : 0;
  }
  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("sinks", self.sinks);
    f.read("lse", self.lse);
    f.read("delta", self.delta);
    f.gradient("dsinks", self.dsinks, self.local_first, self.own_rows());
    f.constant("q_first", self.q_first);
    f.constant("q_rows", self.q_rows);
    f.constant("heads", self.heads);
    f.constant("all_heads", self.all_heads);
    f.constant("head_first", self.head_first);
    f.constant("local_first", self.local_first);
  }
};

// Experts [first, first + count) of a layer, with which an op works; count 0: with all. An op of a
// slice reads and writes the pairs of its experts alone (Route), so that its rows are a run of
// those that it would have otherwise. What other pairs have is not said.
struct ExpertSlice {
  std::int64_t first = 0, count = 0;
  bool operator==(const ExpertSlice&) const = default;
  [[nodiscard]] std::int64_t of(std::int64_t experts) const { return count > 0 ? count : experts; }
  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.constant("first_expert", self.first);
    f.constant("slice", self.count);
  }
};

// y[rows,width] = act(x). Gated kinds: x is [rows, 2*width], gate then up, y = silu(gate) * up for
// swiglu and gelu_tanh(gate) * up for geglu_tanh (Shazeer, arXiv 2002.05202). clamped_swiglu: g
// sigmoid(1.702 g) * (u + 1) with g = min(gate, 7) and u = up between -7 and 7 (gpt-oss, arXiv
// 2508.10925). With routes, of the pairs of a slice of experts: x and y have rows * k rows.
struct Activation {
  static constexpr OpTraits kTraits{"activation", Covers::nothing};
  Operand x;
  Target y;
  ActivationKind kind = ActivationKind::swiglu;
  std::int64_t rows = 0, width = 0;
  Operand routes{};
  std::int64_t experts = 0, active = 1;  // X, k
  ExpertSlice slice{};

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("x", self.x);
    f.indices("routes", self.routes, Holds::routes);
    f.target("y", self.y);
    f.constant("kind", self.kind);
    f.constant("rows", self.rows);
    f.constant("width", self.width);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
    ExpertSlice::fields(self.slice, f);
  }
};

// dx (the shape of x) = d(act)/dx^T dy. Routes: as in Activation.
struct ActivationBackward {
  static constexpr OpTraits kTraits{"activation_backward", Covers::nothing};
  Operand x, dy;
  Target dx;
  ActivationKind kind = ActivationKind::swiglu;
  std::int64_t rows = 0, width = 0;
  Operand routes{};
  std::int64_t experts = 0, active = 1;
  ExpertSlice slice{};

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("x", self.x);
    f.read("dy", self.dy);
    f.indices("routes", self.routes, Holds::routes);
    f.target("dx", self.dx);
    f.constant("kind", self.kind);
    f.constant("rows", self.rows);
    f.constant("width", self.width);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
    ExpertSlice::fields(self.slice, f);
  }
};

// Which experts serve which rows (Shazeer et al., arXiv 1701.06538). Of each row of logits
// [rows, X] the k largest choose, in order of the experts where they are equal; a NaN counts as
// -infinity. The rows * k pairs of row and expert stand in order of expert, then row: pair p is
// entry sources[p] = row * k + j, the j-th choice of the row.
//
// routes, i32 [2 * rows * k + X]: sources [rows * k]; its inverse slots [rows * k], the pair of an
// entry; ends [X], the pair after the last of each expert. Whatever the logits are, all of them are
// in range. weights, f32 [rows, k]: softmax over all experts, of the chosen ones, in order of the
// choice; if normalised, divided by their sum. With `sigmoid`, sigmoids take the place of the
// softmax, and the largest of sigmoid + bias [X] choose. At last they are multiplied by scale.
struct Route {
  static constexpr OpTraits kTraits{"route", Covers::nothing};
  Operand logits, bias;
  Target routes, weights;
  std::int64_t rows = 0, experts = 0, active = 0;  // X, k
  bool normalised = true, sigmoid = false;
  double scale = 1;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("logits", self.logits);
    f.read("bias", self.bias);
    f.target("routes", self.routes);
    f.target("weights", self.weights);
    f.constant("rows", self.rows);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
    f.constant("normalised", self.normalised);
    f.constant("sigmoid", self.sigmoid);
    f.constant("scale", self.scale);
  }
};

// What a sequence asks of its experts: loads[e] += rows that chose e, chances[e] += sum over rows
// of the softmax of their logits, and chances[X] += that of (log sum exp(logits))^2. Rows with a
// label < 0 do not count.
struct ExpertLoads {
  static constexpr OpTraits kTraits{"expert_loads", Covers::nothing};
  Operand logits, routes, labels;
  Target loads, chances;
  std::int64_t rows = 0, experts = 0, active = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("logits", self.logits);
    f.indices("routes", self.routes, Holds::routes);
    f.indices("labels", self.labels, Holds::labels);
    f.target("loads", self.loads);
    f.target("chances", self.chances);
    f.constant("rows", self.rows);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
  }
};

// loss[0] += balance * sum over experts of loads * chances / n^2, with n = the sum of loads / k:
// the auxiliary loss of Fedus et al. (arXiv 2101.03961, eq. 4), of k experts a row; and + z *
// chances[X] / n, that of Zoph et al. (arXiv 2202.08906, eq. 5). `loads` are those of the whole
// sequence, `chances` those of the rank's rows.
struct BalanceLoss {
  static constexpr OpTraits kTraits{"balance_loss", Covers::nothing};
  Operand loads, chances;
  Target loss;
  std::int64_t experts = 0, active = 0;
  double balance = 0, z = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("loads", self.loads);
    f.read("chances", self.chances);
    f.target("loss", self.loss);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
    f.constant("balance", self.balance);
    f.constant("z", self.z);
  }
};

// dlogits [rows, X], of the logits that Route read, from dweights [rows, k]. With loads, also the
// gradient of BalanceLoss, of rows with a label >= 0.
struct RouteBackward {
  static constexpr OpTraits kTraits{"route_backward", Covers::nothing};
  Operand logits, routes, dweights, labels, loads;
  Target dlogits;
  std::int64_t rows = 0, experts = 0, active = 0;
  bool normalised = true, sigmoid = false;
  double scale = 1, balance = 0, z = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("logits", self.logits);
    f.indices("routes", self.routes, Holds::routes);
    f.read("dweights", self.dweights);
    f.indices("labels", self.labels, Holds::labels);
    f.read("loads", self.loads);
    f.target("dlogits", self.dlogits);
    f.constant("rows", self.rows);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
    f.constant("normalised", self.normalised);
    f.constant("sigmoid", self.sigmoid);
    f.constant("scale", self.scale);
    f.constant("balance", self.balance);
    f.constant("z", self.z);
  }
};

// y[p] = x[row of pair p]: x [rows, width], y [rows * k, width].
struct Dispatch {
  static constexpr OpTraits kTraits{"dispatch", Covers::nothing};
  Operand x, routes;
  Target y;
  std::int64_t rows = 0, experts = 0, active = 0, width = 0;
  ExpertSlice slice;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("x", self.x);
    f.indices("routes", self.routes, Holds::routes);
    f.target("y", self.y);
    f.constant("rows", self.rows);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
    f.constant("width", self.width);
    ExpertSlice::fields(self.slice, f);
  }
};

// y[row] = sum over the choices j of the row, in their order, of weights[row, j] * x[its pair]
// (+ addend[row]): x [rows * k, width], y [rows, width]. Without weights: of x alone, the gradient
// of Dispatch. With a slice: over the choices that its experts are; y has all rows.
struct Combine {
  static constexpr OpTraits kTraits{"combine", Covers::nothing};
  Operand x, routes, weights, addend;
  Target y;
  std::int64_t rows = 0, experts = 0, active = 0, width = 0;
  ExpertSlice slice;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("x", self.x);
    f.indices("routes", self.routes, Holds::routes);
    f.read("weights", self.weights);
    f.read("addend", self.addend);
    f.target("y", self.y);
    f.constant("rows", self.rows);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
    f.constant("width", self.width);
    ExpertSlice::fields(self.slice, f);
  }
};

// The gradient of weighted experts, before their last product: y = weight * (x W), of which dx =
// dy W^T is given per pair, without the weight. For pair p of weight w:
//   dweights of its entry = x[p] . dx[p],  x[p] becomes w x[p],  dx[p] becomes w dx[p], in place.
// So the product with x need not be made again. x, dx [rows * k, width]. terms [rows, X], when
// present, is added to dweights by row and expert: dy times the bias of each expert. With a slice,
// dweights of choices of other experts have 0, or what they had where the op adds to them.
struct CombineBackward {
  static constexpr OpTraits kTraits{"combine_backward", Covers::nothing};
  Operand routes, weights, terms;
  Target x, dx, dweights;
  std::int64_t rows = 0, experts = 0, active = 0, width = 0;
  ExpertSlice slice;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.target("x", self.x);
    f.target("dx", self.dx);
    f.indices("routes", self.routes, Holds::routes);
    f.read("weights", self.weights);
    f.read("terms", self.terms);
    f.target("dweights", self.dweights);
    f.constant("rows", self.rows);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
    f.constant("width", self.width);
    ExpertSlice::fields(self.slice, f);
  }
};

// out[p] = a[p] * b[expert of pair p] + bias[expert]: a [rows * k, in], out [rows * k, n]; b holds
// a matrix an expert, [X, in, n], or [X, n, in] when transpose_b; bias [X, n]. With a slice, b has
// its experts alone, and bias all.
struct GroupedMatmul {
  static constexpr OpTraits kTraits{"grouped_matmul", Covers::nothing};
  Operand a, b, bias, routes;
  Target out;
  std::int64_t rows = 0, experts = 0, active = 0, n = 0, k = 0;  // k: in
  ExpertSlice slice;
  bool transpose_b = false;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("a", self.a);
    f.read("b", self.b);
    f.read("bias", self.bias);
    f.indices("routes", self.routes, Holds::routes);
    f.target("out", self.out);
    f.constant("rows", self.rows);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
    f.constant("n", self.n);
    f.constant("k", self.k);
    ExpertSlice::fields(self.slice, f);
    f.constant("transpose_b", self.transpose_b);
  }
};

// sum[e] += sum over the pairs p of expert e, in their order, of dy[p]^T x[p]: the gradient of a
// matrix [n, k] an expert, of all or of a slice. dy [rows * k, n], x [rows * k, k]. local_first: as
// in Matmul.
struct GroupedGradient {
  static constexpr OpTraits kTraits{"grouped_gradient", Covers::rows};
  Operand dy, x, routes;
  Target sum;
  std::int64_t rows = 0, experts = 0, active = 0, n = 0, k = 0;
  ExpertSlice slice;
  std::int64_t local_first = -1;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("dy", self.dy);
    f.read("x", self.x);
    f.indices("routes", self.routes, Holds::routes);
    f.gradient("sum", self.sum, self.local_first, self.rows);
    f.constant("rows", self.rows);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
    f.constant("n", self.n);
    f.constant("k", self.k);
    ExpertSlice::fields(self.slice, f);
    f.constant("local_first", self.local_first);
  }
};

// sum[e] += sum over the pairs p of expert e, in their order, of source[p], times the weight of its
// entry if there are weights: the gradient of a bias an expert, of all or of a slice. source
// [rows * k, width], weights [rows, k], sum [X, width]. local_first: as in Matmul.
struct GroupedSum {
  static constexpr OpTraits kTraits{"grouped_sum", Covers::rows};
  Operand source, routes, weights;
  Target sum;
  std::int64_t rows = 0, experts = 0, active = 0, width = 0;
  ExpertSlice slice;
  std::int64_t local_first = -1;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("source", self.source);
    f.indices("routes", self.routes, Holds::routes);
    f.read("weights", self.weights);
    f.gradient("sum", self.sum, self.local_first, self.rows);
    f.constant("rows", self.rows);
    f.constant("experts", self.experts);
    f.constant("active", self.active);
    f.constant("width", self.width);
    ExpertSlice::fields(self.slice, f);
    f.constant("local_first", self.local_first);
  }
};

// x[rows,width] = scale * table[tokens] (+ positions[position], when present). Tokens are below
// `vocabulary` and positions below `position_count`; the caller that feeds tokens checks this.
struct Embedding {
  static constexpr OpTraits kTraits{"embedding", Covers::nothing};
  Operand tokens, table, positions, documents;
  Target x;
  std::int64_t rows = 0, width = 0, vocabulary = 0, position_count = 0;
  RankExpression token_first;
  double scale = 1;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.indices("tokens", self.tokens, Holds::tokens);
    f.read("table", self.table);
    f.read("positions", self.positions);
    f.indices("documents", self.documents, Holds::documents);
    f.target("x", self.x);
    f.constant("rows", self.rows);
    f.constant("width", self.width);
    f.constant("vocabulary", self.vocabulary);
    f.constant("position_count", self.position_count);
    f.constant("token_first", self.token_first);
    f.constant("scale", self.scale);
  }
};

// dtable[tokens] += scale * dx, dpositions[position] += dx. local_first: as in Matmul.
struct EmbeddingBackward {
  static constexpr OpTraits kTraits{"embedding_backward", Covers::rows};
  Operand tokens, dx, documents;
  Target dtable, dpositions;
  std::int64_t rows = 0, width = 0, vocabulary = 0, position_count = 0;
  RankExpression token_first;
  double scale = 1;
  std::int64_t local_first = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.indices("tokens", self.tokens, Holds::tokens);
    f.read("dx", self.dx);
    f.indices("documents", self.documents, Holds::documents);
    f.gradient("dtable", self.dtable, self.local_first, self.rows);
    f.gradient("dpositions", self.dpositions, self.local_first, self.rows);
    f.constant("rows", self.rows);
    f.constant("width", self.width);
    f.constant("vocabulary", self.vocabulary);
    f.constant("position_count", self.position_count);
    f.constant("token_first", self.token_first);
    f.constant("scale", self.scale);
    f.constant("local_first", self.local_first);
  }
};

// Cross-entropy over a tile of the vocabulary. logits [rows, vocab_count] belong to the words from
// vocab_first on; statistics [rows, 3] f32 hold the running maximum, the sum of exponentials
// relative to it, and the target's logit; accumulate merges this tile into them. A label < 0 masks
// its row, which then counts nothing. cap: as of attention, on each logit before all else.
struct LossStatistics {
  static constexpr OpTraits kTraits{"loss_statistics", Covers::nothing};
  Operand logits, labels;
  Target statistics;
  std::int64_t rows = 0, vocab_first = 0, vocab_count = 0;
  double cap = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("logits", self.logits);
    f.indices("labels", self.labels, Holds::labels);
    f.target("statistics", self.statistics);
    f.constant("rows", self.rows);
    f.constant("vocab_first", self.vocab_first);
    f.constant("vocab_count", self.vocab_count);
    f.constant("cap", self.cap);
  }
};

// loss[0] += scale[0] * sum over unmasked rows of (max + log(sum) - target). The statistics must be
// complete.
struct LossSum {
  static constexpr OpTraits kTraits{"loss_sum", Covers::nothing};
  Operand statistics, labels, scale;
  Target loss;
  std::int64_t rows = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("statistics", self.statistics);
    f.indices("labels", self.labels, Holds::labels);
    f.read("scale", self.scale);
    f.target("loss", self.loss);
    f.constant("rows", self.rows);
  }
};

// dlogits = scale[0] * (softmax - one_hot(label)) on the same tile, by the cap's slope; 0 on masked
// rows.
struct LossGradient {
  static constexpr OpTraits kTraits{"loss_gradient", Covers::nothing};
  Operand logits, labels, statistics, scale;
  Target dlogits;
  std::int64_t rows = 0, vocab_first = 0, vocab_count = 0;
  double cap = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("logits", self.logits);
    f.indices("labels", self.labels, Holds::labels);
    f.read("statistics", self.statistics);
    f.read("scale", self.scale);
    f.target("dlogits", self.dlogits);
    f.constant("rows", self.rows);
    f.constant("vocab_first", self.vocab_first);
    f.constant("vocab_count", self.vocab_count);
    f.constant("cap", self.cap);
  }
};

// target = value in every element.
struct Fill {
  static constexpr OpTraits kTraits{"fill", Covers::nothing};
  Target target;
  double value = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.target("target", self.target);
    f.constant("value", self.value);
  }
};

// target (+)= source, element by element, converting the type. A copy between spaces is a transfer.
struct Copy {
  static constexpr OpTraits kTraits{"copy", Covers::nothing};
  Operand source;
  Target target;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("source", self.source);
    f.target("target", self.target);
  }
};

// sum[0] += sum of squares of the source's elements (f32).
struct SquaredNorm {
  static constexpr OpTraits kTraits{"squared_norm", Covers::nothing};
  Operand source;
  Target sum;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.read("source", self.source);
    f.target("sum", self.sum);
  }
};

// AdamW (Loshchilov and Hutter, arXiv 1711.05101) on f32 shards, with the gradient clipped to
// `clip` by its global norm sqrt(norm[0]). `step` f32 [4] = {learning rate, 1 - beta1^t, 1 -
// beta2^t, loss scale}. Nothing changes when norm[0] is not finite. master_out, m_out, v_out are
// the next versions of master, m, v in the same bytes; param, when present, is the storage copy of
// the new master.
struct AdamW {
  static constexpr OpTraits kTraits{"adamw", Covers::nothing, InPlace::yes};
  Operand grad, norm, step, master, m, v;
  Target master_out, m_out, v_out, param;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0, clip = 0;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.sum("grad", self.grad);
    f.read("norm", self.norm);
    f.read("step", self.step);
    f.read("master", self.master);
    f.read("m", self.m);
    f.read("v", self.v);
    f.target("master_out", self.master_out);
    f.target("m_out", self.m_out);
    f.target("v_out", self.v_out);
    f.target("param", self.param);
    f.constant("beta1", self.beta1);
    f.constant("beta2", self.beta2);
    f.constant("epsilon", self.epsilon);
    f.constant("weight_decay", self.weight_decay);
    f.constant("clip", self.clip);
  }
};

// Collectives over a group of K ranks; several pairs run as one group. A collective is complete on
// a rank when its receive operands are whole and its send operands may be reused. all_to_all: send
// and receive are K equal blocks of rows; receive block j is block `me` of rank j's send.
struct AllToAll {
  static constexpr OpTraits kTraits{"all_to_all", Covers::nothing};
  std::string group;
  std::vector<Operand> send;
  std::vector<Target> receive;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.constant("group", self.group);
    f.reads("send", self.send);
    f.targets("receive", self.receive);
  }
};

// receive = the K sends, in rank order.
struct AllGather {
  static constexpr OpTraits kTraits{"all_gather", Covers::nothing};
  std::string group;
  std::vector<Operand> send;
  std::vector<Target> receive;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.constant("group", self.group);
    f.reads("send", self.send);
    f.targets("receive", self.receive);
  }
};

// receive (+)= block `me` of the sum of all sends, added in rank order. workspace: scratch memory
// of at least one element for each member, into which ranks that cannot read each other's memory
// move the blocks, piece by piece (sum_workspace.h); other ranks ignore it.
struct ReduceScatter {
  static constexpr OpTraits kTraits{"reduce_scatter", Covers::nothing};
  std::string group;
  std::vector<Operand> send;
  std::vector<Target> receive;
  Operand workspace{};

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.constant("group", self.group);
    f.reads("send", self.send);
    f.targets("receive", self.receive);
    f.scratch("workspace", self.workspace);
  }
};

// receive (+)= the sum of all sends, added in rank order. workspace: as in ReduceScatter.
struct AllReduce {
  static constexpr OpTraits kTraits{"all_reduce", Covers::nothing};
  std::string group;
  std::vector<Operand> send;
  std::vector<Target> receive;
  Operand workspace{};

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.constant("group", self.group);
    f.reads("send", self.send);
    f.targets("receive", self.receive);
    f.scratch("workspace", self.workspace);
  }
};

// receive = the send of the member `hop` before this one; so this member's send goes to the member
// `hop` after it. Members are numbered from 0 to K-1, and the first follows the last: hop 1 is a
// step around a ring, K-1 a step back, and in a group of two either swaps.
struct Exchange {
  static constexpr OpTraits kTraits{"exchange", Covers::nothing};
  std::string group;
  std::vector<Operand> send;
  std::vector<Target> receive;
  std::int64_t hop = 1;

  template <class Self, class F>
  static void fields(Self& self, F&& f) {
    f.constant("group", self.group);
    f.reads("send", self.send);
    f.targets("receive", self.receive);
    f.constant("hop", self.hop);
  }
};

using BodyKinds =
    std::variant<Matmul, ColumnSum, Norm, NormBackward, SplitHeads, JoinHeads, Permute, Add,
                 AttentionForward, AttentionDelta, AttentionBackward, Activation,
                 ActivationBackward, Embedding, EmbeddingBackward, LossStatistics, LossSum,
                 LossGradient, Fill, Copy, SquaredNorm, AdamW, AllToAll, AllGather, ReduceScatter,
                 AllReduce, Exchange, Route, RouteBackward, Dispatch, Combine, CombineBackward,
                 GroupedMatmul, GroupedGradient, ExpertLoads, BalanceLoss, AttentionSink,
                 AttentionSinkGradient, GroupedSum, NormColumns, NormColumnsBackward>;

// One of the kinds. Its copies, moves and destructor are compiled once: each visits all kinds.
struct Body : BodyKinds {
  using BodyKinds::BodyKinds;
  Body();
  Body(const Body& other);
  Body(Body&& other) noexcept;
  Body& operator=(const Body& other);
  Body& operator=(Body&& other) noexcept;
  ~Body();
};

inline constexpr std::size_t kBodies = std::variant_size_v<BodyKinds>;

// The word of each alternative in the file, in the variant's order.
inline constexpr std::array<std::string_view, kBodies> kBodyNames =
    []<class... Ops>(std::type_identity<std::variant<Ops...>>) {
      return std::array{Ops::kTraits.name...};
    }(std::type_identity<BodyKinds>{});

const OpTraits& traits(const Body& body);
inline std::string_view body_name(const Body& body) { return kBodyNames[body.index()]; }

template <class T>
concept IsCollective = requires(const T& op) {
  op.group;
  op.send;
  op.receive;
};
bool is_collective(const Body& body);

// How many members further an op sends; 0 where it sends to all of its group, or to nobody.
inline std::int64_t hop_of(const Body& body) {
  const auto* exchange = std::get_if<Exchange>(&body);
  return exchange == nullptr ? 0 : exchange->hop;
}

// The member whose send member `mine` receives in an exchange.
inline std::int64_t source_of(std::int64_t hop, std::int64_t mine, std::int64_t members) {
  return (mine + members - hop) % members;
}

// An operand of an op, with its field and how the op accesses it.
struct Use {
  std::string_view field;
  Operand operand;
  Access access = Access::read;
};

// Takes an operand for the caller whose address it gets.
using FoundOperand = void (*)(void* caller, std::string_view field, const Operand& operand,
                              Access access);
void visit_operands(const Body& body, void* caller, FoundOperand found);

// Calls found(field, operand, access) with the operands that an op reads and writes, in the order
// of its fields; no other code decides this. Empty operands are left out.
template <class Found>
void for_each_operand(const Body& body, Found found) {
  visit_operands(body, &found,
                 [](void* caller, std::string_view field, const Operand& operand, Access access) {
                   (*static_cast<Found*>(caller))(field, operand, access);
                 });
}

// The same as a list.
std::vector<Use> operands(const Body& body);

enum class LaneKind : std::uint8_t { compute, h2d, d2h, comm };
constexpr auto words_of(LaneKind) { return word_list("compute", "h2d", "d2h", "comm"); }

struct Lane {
  LaneKind kind = LaneKind::compute;
  std::int32_t index = 0;
  auto operator<=>(const Lane&) const = default;
};

// An op that must be complete first: op `op` of block `block`, in this call (calls_back = 0) or in
// an earlier call of that block: the k-th last, or the last of the layer of this call among the k
// last (no wait where there is none).
struct After {
  std::int32_t block = 0;
  std::int32_t op = 0;
  std::int32_t calls_back = 0;
  bool of_layer = false;
  auto operator<=>(const After&) const = default;
};

struct Op {
  std::string name;
  Lane lane;
  Body body;
  std::vector<After> after;
};

}  // namespace fpdt
