// Plans LSS as published, and writes down what Megatron's sequence parallelism takes.
#include "lss.h"

#include <numeric>

#include <fmt/format.h>

#include "fpdt/base/math.h"
#include "fpdt/cost/machine.h"
#include "fpdt/io/cluster_file.h"
#include "fpdt/io/model_file.h"

namespace fpdt::test {
namespace {

constexpr std::int64_t kElement = 2;      // bytes, in 16 bits
constexpr std::int64_t kStateBytes = 18;  // of a parameter, its gradient and its states
constexpr auto kTypicalEnd = static_cast<std::size_t>(RateEnd::typical);

// What a layer stores for backward: 34 bytes of each token and element, 5 of each score.
Bytes stored_by_megatron(const Problem& problem) {
  const ModelSpec& model = problem.model;
  const std::int64_t tokens = problem.seq_len;
  const std::int64_t rows = mul(mul(34, tokens), model.hidden);
  const std::int64_t scores = mul(mul(5 * model.heads, tokens), tokens);
  return Bytes{add(rows, scores) / megatron_ranks(problem)};
}

// The most tokens, a multiple of `unit`, that fit.
template <class Fits>
std::int64_t longest(std::int64_t unit, Fits fits) {
  std::int64_t low = 0, high = 1;
  while (fits(high * unit)) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle * unit) ? low : high) = middle;
  }
  return low * unit;
}

}  // namespace

Claims load_claims() {
  const Node root = load("lss");
  const auto number = [&](std::string_view key) { return std::stod(text_of(root, key)); };
  Claims claims;
  claims.source = text_of(root, "source");
  claims.read = text_of(root, "read");
  claims.model = text_of(root, "model");
  claims.cluster = text_of(root, "cluster");
  for (const Node& one : root.find("gpus")->items) claims.gpus.push_back(std::stoll(one.text));
  claims.compared = std::stoll(text_of(root, "compared"));
  claims.longest = std::stoll(text_of(root, "longest"));
  claims.faster = number("faster");
  claims.smaller = number("smaller");
  claims.efficiency = number("efficiency");
  claims.petaflops = number("petaflops");
  return claims;
}

Problem question(const Claims& claims, std::int64_t gpus, std::int64_t seq_len) {
  Cell cell;
  cell.model = claims.model;
  cell.cluster = claims.cluster;
  cell.seq_len = seq_len;
  Problem problem = question(cell);
  problem.cluster = with_devices(problem.cluster, gpus);
  return problem;
}

std::int64_t megatron_ranks(const Problem& problem) {
  return std::gcd(problem.model.heads, problem.ranks());
}

// Embedding and head in 16 bits, logits in f32 (Megatron's theoretical_memory_usage.py).
Bytes megatron_bytes(const Problem& problem) {
  const ModelSpec& model = problem.model;
  const std::int64_t ranks = megatron_ranks(problem);
  const Bytes layers = model.layers * stored_by_megatron(problem);
  const Bytes ends{mul(4 * problem.seq_len, model.hidden + model.vocabulary) / ranks};
  const Bytes states{kStateBytes * parameter_count(model) / ranks};
  return problem.cluster.outside_bytes() + states + layers + ends;
}

double megatron_seconds(const Problem& problem) {
  const ModelSpec& model = problem.model;
  const Machine machine(problem.cluster, RateEnd::typical);
  const std::int64_t ranks = megatron_ranks(problem);
  const auto tokens = static_cast<double>(problem.seq_len);
  const auto share = 1 / static_cast<double>(ranks);

  Demand products;  // forward, and twice as much in backward
  products.work = Work::matmul;
  products.size = model.hidden / ranks;
  const auto weights = static_cast<double>(layer_parameter_count(model));
  products.flops = 3 * 2 * tokens * weights * share;
  Demand head = products;
  head.flops = 3 * 2 * tokens * static_cast<double>(model.hidden * model.vocabulary) * share;

  Demand attention;
  attention.work = Work::attention_forward;
  attention.size = problem.seq_len;
  attention.head_dim = model.head_dim;
  const double pairs = tokens * (tokens + 1) / 2 * static_cast<double>(model.q_width()) * share;
  attention.flops = kForwardFlops * pairs;
  Demand backward = attention;
  backward.work = Work::attention_backward;
  backward.flops = kBackwardFlops * pairs;

  // An all-gather and a reduce-scatter before and after attention and the feed-forward, each of
  // them in forward and in backward: 4 + 4.
  Demand collective;
  collective.work = Work::collective;
  collective.group = ranks;
  collective.sent = problem.seq_len * model.hidden * kElement / ranks * (ranks - 1);
  collective.ring = true;

  // Replicas sum the gradients of their parameters once a step: a reduce-scatter and an all-gather.
  Demand sum;
  sum.work = Work::collective;
  sum.group = problem.ranks() / ranks;
  sum.stride = ranks;
  sum.sent = 2 * parameter_count(model) * kElement / ranks / sum.group * (sum.group - 1);
  sum.ring = true;

  // All that is stored is written and read once at least.
  const double touched = 2 * static_cast<double>(stored_by_megatron(problem).value) /
                         problem.cluster.rates.device_bandwidth.typical;
  double layer =
      touched + machine.seconds(products) + machine.seconds(attention) + machine.seconds(backward);
  if (ranks > 1) layer += 8 * machine.seconds(collective);
  double step = static_cast<double>(model.layers) * layer + machine.seconds(head);
  if (sum.group > 1) step += machine.seconds(sum);
  return step;
}

LssStep lss_step(const Problem& problem) {
  const Method& lss = *method_named("lss");
  const PublishedPlan found = published_plan(problem, lss, lss.published(problem, 1));
  const Geometry shape = geometry(problem, found.plan.strategy);
  LssStep step;
  step.device = found.plan.usage.device;
  step.seconds = found.plan.throughput[kTypicalEnd].step_seconds;
  const Machine machine(problem.cluster, RateEnd::typical);
  Demand sum;
  sum.work = Work::collective;
  sum.group = problem.ranks();
  const std::int64_t keys = shape.local_tokens() * 2 * problem.model.kv_width();
  sum.sent = 2 * kElement * keys * (problem.ranks() - 1);
  const double direct = machine.seconds(sum);
  sum.sent /= 2;
  sum.ring = true;
  step.ring_seconds =
      step.seconds - static_cast<double>(problem.model.layers) * (direct - machine.seconds(sum));
  step.flops = model_flops(problem, found.plan.strategy).full / step.seconds;
  return step;
}

std::vector<LssRow> lss_rows(const Claims& claims) {
  std::vector<LssRow> rows;
  double first = 0;
  for (const std::int64_t gpus : claims.gpus) {
    const auto fits = [&](auto bytes) {
      return [&, bytes](std::int64_t tokens) {
        const Problem problem = question(claims, gpus, tokens);
        return bytes(problem) <= problem.device_budget;
      };
    };
    const Problem problem = question(claims, gpus, claims.longest);
    LssRow row;
    row.gpus = gpus;
    row.ranks = megatron_ranks(problem);
    row.lss_longest = longest(gpus, fits([](const Problem& of) { return lss_step(of).device; }));
    row.megatron_longest = longest(row.ranks, fits(megatron_bytes));
    row.lss = lss_step(problem);
    row.megatron = megatron_bytes(problem);
    row.megatron_seconds = megatron_seconds(problem);
    row.scaled = claims.longest * gpus / claims.gpus.back();
    const double rate =
        lss_step(question(claims, gpus, row.scaled)).flops / static_cast<double>(gpus);
    if (rows.empty()) first = rate;
    row.efficiency = rate / first;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace fpdt::test
