// The small texts of the file format, printed and parsed: versions, operands, rank expressions,
// edges, lanes.
//
// Each printer writes one canonical text. Its parser accepts that text, and returns empty when the
// text is malformed or a number overflows. Names are views into the parsed text; the loader
// resolves them to indices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fpdt/schedule/op.h"

namespace fpdt {

// "+1", "-1" and "+0" are relative; "4*layer+32*micro_batch+segment+1", "3" are absolute (a
// constant below zero is "0-1").
std::string version_text(const Version& version);
std::optional<Version> parse_version(std::string_view text);

// "q[+1]", "x_host[4*layer+1] rows 8:16" (first:end), "x[+0] rows 8:" (to the end); a target that
// accumulates ends in " +=".
struct OperandText {
  std::string_view buffer;
  Version version;
  std::int64_t row_first = 0;
  std::int64_t rows = -1;
  bool accumulate = false;
};
std::string operand_text(std::string_view buffer, const Operand& operand, bool accumulate = false);
std::optional<OperandText> parse_operand(std::string_view text);

// "4096", "8*r", "8*(r mod 4)", "4096+512*((r+1) div 2 mod 4)", "4*(r div 4)+(r mod 2)". Without
// "mod" n is kNoModulus. An expression that is equal on every rank prints as a plain integer, which
// is a number in the file.
inline constexpr std::int64_t kNoModulus = std::int64_t{1} << 62;
std::string rank_expression_text(const RankExpression& expression);
std::optional<RankExpression> parse_rank_expression(std::string_view text);

// "rope.1" (this call), "forward.spill_kv.2@-1" (the last earlier call of block forward) or
// "gather.all@layer-2" (the one of this layer among the last two). Block names hold no dot; op
// names may.
inline constexpr std::int32_t kMostLayerCalls = 16;  // among which that of a layer is looked for
struct AfterText {
  std::string_view block;  // empty: the waiting op's own block
  std::string_view op;
  std::int32_t calls_back = 0;
  bool of_layer = false;
};
std::string after_text(const AfterText& after);
std::optional<AfterText> parse_after(std::string_view text);

// An argument of a call in a run; "n" counts the repetitions from 0: "n+1", "2*n", "-n+31", "7".
struct CallArgument {
  std::int64_t first = 0;
  std::int64_t step = 0;
};
std::string call_argument_text(const CallArgument& argument);
std::optional<CallArgument> parse_call_argument(std::string_view text);

// "comm.0".
std::string lane_text(const Lane& lane);
std::optional<Lane> parse_lane(std::string_view text);

// Whether the text has only letters, digits and _ - / : . ; names exclude the punctuation of the
// other texts.
bool is_name(std::string_view text);

// A default-constructed body for a word such as "matmul".
std::optional<Body> body_named(std::string_view name);

}  // namespace fpdt
