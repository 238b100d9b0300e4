// Layout and padding of a sequence.
#include "fpdt/train/inputs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "fpdt/base/assert.h"
#include "fpdt/base/error.h"
#include "fpdt/base/math.h"

namespace fpdt {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw InputError(format_diagnostics({{"R106", "embedding", message}}));
}

}  // namespace

TokenLayout::TokenLayout(const Schedule& schedule) : ranks_(schedule.ranks) {
  std::set<std::int32_t> blocks;
  for (const Call& call : schedule.train) {
    blocks.insert(call.block);
    micro_batches_ = std::max<std::int64_t>(micro_batches_, call.micro_batch + 1);
  }
  for (const std::int32_t block : blocks) {
    for (const Op& op : schedule.blocks[static_cast<std::size_t>(block)].ops) {
      const auto* const embed = std::get_if<Embedding>(&op.body);
      if (embed == nullptr) continue;
      parts_.push_back({embed->tokens.row_first, embed->rows, embed->token_first});
    }
  }
  if (parts_.empty()) refuse("the schedule has none");
  const std::vector<Part> embedded = std::exchange(parts_, {});
  for (const Feed& feed : schedule.feeds) {
    if (feed.holds == Holds::tokens) parts_.push_back({feed.row, feed.rows, feed.first});
  }
  if (parts_.empty()) {
    parts_ = embedded;
  } else {
    require_feeds_of(schedule, embedded);
  }
  std::sort(parts_.begin(), parts_.end(),
            [](const Part& a, const Part& b) { return a.row < b.row; });
  for (const Part& part : parts_) {
    if (part.row != rows_) refuse(fmt::format("row {} of the tokens is not read once", rows_));
    rows_ += part.count;
  }
  // In a file of format 2, ranks with the same first token hold the same tokens.
  std::map<std::int64_t, std::int64_t> holders;
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    replica_of_.push_back(schedule.feeds.empty() ? holders[parts_[0].token.at(rank)]++
                                                 : schedule.feeds[0].replica.at(rank));
    replicas_ = std::max(replicas_, replica_of_.back() + 1);
  }
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> runs(
      static_cast<std::size_t>(replicas_));
  for (std::int64_t rank = 0; rank < ranks_; ++rank) {
    const auto replica = static_cast<std::size_t>(replica_of(rank));
    if (replica >= runs.size()) refuse("some tokens have more replicas than others");
    for (const TokenRun& run : of(rank)) runs[replica].emplace_back(run.token, run.count);
  }
  for (auto& replica : runs) {
    std::sort(replica.begin(), replica.end());
    std::int64_t next = 0;
    for (const auto& [token, count] : replica) {
      if (token != next) refuse(fmt::format("token {} is not held once in each replica", next));
      next += count;
    }
    if (next != sequence_tokens()) refuse("some tokens have more replicas than others");
  }
}

// Rows reach their ops in place.
void TokenLayout::require_feeds_of(const Schedule& schedule,
                                   const std::vector<Part>& embedded) const {
  const auto is_fed = [this](std::int64_t row, std::int64_t count, const RankExpression& token) {
    return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
      if (row < part.row || row + count > part.row + part.count) return false;
      for (std::int64_t rank = 0; rank < ranks_; ++rank) {
        if (token.at(rank) - row != part.token.at(rank) - part.row) return false;
      }
      return true;
    });
  };
  for (const Part& part : embedded) {
    if (is_fed(part.row, part.count, part.token)) continue;
    refuse(
        fmt::format("rows {}:{} are not the tokens that are fed", part.row, part.row + part.count));
  }
  for (const Feed& feed : schedule.feeds) {
    if (!(feed.replica == schedule.feeds[0].replica)) refuse("feeds are of different replicas");
    if (feed.holds != Holds::labels || is_fed(feed.row, feed.rows, feed.first)) continue;
    refuse(fmt::format("labels {}:{} are not those of the tokens", feed.row, feed.row + feed.rows));
  }
}

std::int64_t TokenLayout::first_rank(std::int64_t replica) const {
  return std::find(replica_of_.begin(), replica_of_.end(), replica) - replica_of_.begin();
}

std::vector<TokenRun> TokenLayout::of(std::int64_t rank) const {
  std::vector<TokenRun> runs;
  for (const Part& part : parts_) runs.push_back({part.row, part.token.at(rank), part.count});
  return runs;
}

RankInputs rank_inputs(const TokenLayout& layout, std::int64_t rank, const Sample& sample) {
  const auto length = static_cast<std::int64_t>(sample.tokens.size());
  FPDT_ASSERT(sample.labels.size() == sample.tokens.size());
  FPDT_ASSERT(sample.documents.size() == sample.tokens.size());
  FPDT_ASSERT(length <= layout.sequence_tokens());
  RankInputs inputs;
  inputs.documents = sample.documents;
  for (std::int64_t t = length; t < layout.sequence_tokens(); ++t) {
    inputs.documents.push_back(static_cast<std::int32_t>(t));
  }
  for (const TokenRun& run : layout.of(rank)) {
    for (std::int64_t token = run.token; token < run.token + run.count; ++token) {
      const auto t = static_cast<std::size_t>(token);
      inputs.tokens.push_back(token < length ? sample.tokens[t] : 0);
      inputs.labels.push_back(token < length ? sample.labels[t] : -1);
    }
  }
  return inputs;
}

}  // namespace fpdt
