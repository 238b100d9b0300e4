// S6xx: which ops may fill a buffer, and which buffers may serve as an index.
#include "fpdt/schedule/roles.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "fpdt/schedule/depend.h"
#include "fpdt/schedule/lasting.h"
#include "fpdt/schedule/verify.h"

#include "golden.h"
#include "tiny.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;

class Roles : public testing::Test {
 protected:
  Schedule head = test::golden("tied_head.json");

  BufferIndex named(std::string_view name) {
    return static_cast<BufferIndex>(&test::buffer_of(head, name) - head.buffers.data());
  }
  std::string_view purpose(std::string_view name) {
    return purposes_of(head)[static_cast<std::size_t>(named(name))];
  }
  // Derives edges anew, as a lowering does after a change of operands or order.
  Codes codes_with_new_edges() {
    for (Block& block : head.blocks) {
      for (Op& op : block.ops) op.after.clear();
    }
    depend(head);
    return test::codes(head);
  }
};

TEST_F(Roles, AreFoundBehindCopies) {
  EXPECT_EQ(purpose("tokens_host"), "tokens");
  EXPECT_EQ(purpose("tokens"), "tokens");
  EXPECT_EQ(purpose("labels_host"), "labels");
  EXPECT_EQ(purpose("step_host"), "");
}

TEST_F(Roles, NoInputServesTwoPurposes) {
  test::body_of<Copy>(head, "head", "fetch_labels").source.buffer = named("tokens_host");
  EXPECT_EQ(codes_with_new_edges(), Codes{"S602"});
}

TEST_F(Roles, GradientsAreFoundBehindCollectives) {
  EXPECT_EQ(purpose("grad"), "gradient");
  EXPECT_EQ(purpose("dtable"), "gradient");
  EXPECT_EQ(purpose("logits"), "");
}

// An op whose sum over rows does not declare itself a gradient.
TEST_F(Roles, WhatAddsToAGradientSaysForWhichRows) {
  Op& sum = test::op_of(head, "head", "dtable.1.0");
  Permute unknown;
  unknown.source = std::get<Matmul>(sum.body).a;
  unknown.target = std::get<Matmul>(sum.body).out;
  sum.body = unknown;
  EXPECT_EQ(test::codes(head).count("S605"), 1u);
}

TEST_F(Roles, SumsBeginWithZeros) {
  test::body_of<Fill>(head, "begin", "zero_dtable").value = 1e-3;
  EXPECT_EQ(test::codes(head), Codes{"S609"});
}

TEST_F(Roles, SumsOfGradientsAreF32) {
  test::buffer_of(head, "grad").dtype = Dtype::bf16;
  EXPECT_EQ(test::codes(head).count("S608"), 1U);
}

TEST_F(Roles, IntegersAreNotMadeUp) {
  Op& fetch = test::op_of(head, "head", "fetch_tokens");
  Fill fill;
  fill.target = std::get<Copy>(fetch.body).target;
  fill.value = 1e9;
  fetch.body = fill;
  fetch.lane = {LaneKind::compute, 0};
  EXPECT_EQ(codes_with_new_edges(), Codes{"S602"});
}

TEST_F(Roles, IntegersAreNoStateAndNoOutput) {
  Buffer& tokens = test::buffer_of(head, "tokens_host");
  tokens.role = Role::output;
  EXPECT_EQ(test::codes(head).count("S602"), 1U);
  tokens.role = Role::state;
  EXPECT_EQ(test::codes(head).count("S602"), 1U);
}

TEST_F(Roles, NobodyWritesInputs) {
  Copy& copy = test::body_of<Copy>(head, "begin", "fetch_step");
  std::swap(copy.source, copy.target.operand);
  EXPECT_EQ(test::codes(head).count("S601"), 1U);
}

// A start is the number of a row, so it must not move to another row.
TEST_F(Roles, DocumentStartsStayInTheirRows) {
  const auto add = [&](const char* name, MemorySpace space, Role role) {
    head.buffers.push_back({name, space, role, Category::tokens, Dtype::i32, {24}, 2, kUnplaced});
    return static_cast<BufferIndex>(head.buffers.size() - 1);
  };
  for (Buffer& buffer : head.buffers) buffer.offset = kUnplaced;
  const BufferIndex input = add("documents_host", MemorySpace::host_pinned, Role::input);
  const BufferIndex starts = add("documents", MemorySpace::device, Role::temporary);
  const Version version = Version::at(0, 0, 1);
  Block& block = test::block_of(head, "head");
  Copy copy{{input, version, 0, -1}, {{starts, version, 0, -1}, false}};
  block.ops.insert(block.ops.begin(), {"fetch_documents", {LaneKind::h2d, 0}, copy, {}});
  Operand& read = test::body_of<Embedding>(head, "head", "embed.0").documents;
  read = {starts, version, 0, -1};
  EXPECT_EQ(codes_with_new_edges(), Codes{});
  EXPECT_EQ(purpose("documents_host"), "documents");
  read.row_first = 1;
  EXPECT_EQ(codes_with_new_edges(), Codes{"S205"});
  read.row_first = 0;
  Copy& moved = test::body_of<Copy>(head, "head", "fetch_documents");
  moved.source.row_first = 4;
  read.rows = moved.source.rows = moved.target.operand.rows = 20;
  EXPECT_EQ(codes_with_new_edges(), Codes{"S602"});
}

TEST_F(Roles, EvaluationChangesNoState) {
  head.evaluate = head.train;
  EXPECT_EQ(test::codes(head), Codes{"S603"});
}

// Sums continue from step to step: the zero fill is gone, and the versions match that.
TEST(StepState, OnlyParametersMastersAndMomentsOutliveAStep) {
  const auto sum_from_what_was_there = [](const std::string& kind) {
    test::Tiny tiny;
    tiny.buffer("sum", 1, 4, Role::state).buffer("part").block("one");
    if (!kind.empty()) {
      State state;
      state.buffer = 0;
      state.tensor = "w";
      state.kind = kind;
      state.shape = {4};
      tiny.schedule.states.push_back(state);
    }
    tiny.fill("part", 0, "part[+0]").copy("add", 0, "part[+0]", "sum[0] +=").call("one");
    return test::codes(tiny.schedule);
  };
  EXPECT_EQ(sum_from_what_was_there("gradient"), Codes{"S306"});
  EXPECT_EQ(sum_from_what_was_there(""), Codes{"S306"}) << "nobody fills it";
  EXPECT_EQ(sum_from_what_was_there("moment1"), Codes{});
}

// A piece that is longer than a slot continues in the next, and ends with its elements.
TEST(StepState, LastsInTheRowsOfItsPieces) {
  test::Tiny tiny;
  tiny.buffer("w", 4, 64, Role::state).buffer("g", 1, 64, Role::state);
  State state;
  state.buffer = 0;
  state.version = 1;
  state.kind = "master";
  state.shape = {10, 20};
  state.shards = 2;
  tiny.schedule.states.push_back(state);
  state.buffer = 1;
  state.kind = "gradient";
  tiny.schedule.states.push_back(state);
  const LastingRows lasting(tiny.schedule);
  EXPECT_TRUE(lasting.any(0));
  EXPECT_FALSE(lasting.any(1));
  EXPECT_EQ(lasting.of(0, 0), 0);
  EXPECT_EQ(lasting.of(0, 1), 64);
  EXPECT_EQ(lasting.of(0, 2), 36);
  EXPECT_EQ(lasting.of(0, 3), 0);
  EXPECT_EQ(lasting.of(1, 0), 0);
}

TEST(StepState, IsWholeAtTheEndOfAStep) {
  test::Tiny tiny;
  tiny.buffer("w", 1, 4, Role::state).buffer("loss", 1, 4, Role::output).block("one");
  State state;
  state.buffer = 0;
  state.tensor = "w";
  state.kind = "parameter";
  state.shape = {4};
  tiny.schedule.states.push_back(state);
  tiny.fill("w", 0, "w[1] rows 0:2").fill("loss", 0, "loss[0]").call("one");
  EXPECT_EQ(test::codes(tiny.schedule), Codes{"S604"});
  tiny.fill("w2", 0, "w[1] rows 2:4");
  EXPECT_EQ(test::codes(tiny.schedule), Codes{});
  std::get<Fill>(tiny.schedule.blocks[0].ops[1].body).target.operand.rows = 3;
  EXPECT_EQ(test::codes(tiny.schedule), Codes{"S604"}) << "the trainer reads what nobody wrote";
}

}  // namespace
}  // namespace fpdt
