// S606 and S607: which tokens the inputs hold.
#include <gtest/gtest.h>

#include "golden.h"

namespace fpdt {
namespace {

using Codes = std::set<std::string>;

class FedTokens : public testing::Test {
 protected:
  Schedule schedule = test::golden("zigzag_ring_2.json");
  Feed& tokens = schedule.feeds[0];
  Feed& documents = schedule.feeds[2];
};

TEST_F(FedTokens, AreAllOfTheSequence) {
  EXPECT_EQ(test::codes(schedule), Codes{});
  tokens.first = RankExpression{4, {-4, 0, 1, 2}};
  EXPECT_EQ(test::codes(schedule), Codes{}) << "any rank may hold a token";
  tokens.first = 0;
  EXPECT_EQ(test::codes(schedule), Codes{"S607"}) << "both ranks hold the first";
  tokens.first = RankExpression{16, {4, 0, 1, 2}};
  EXPECT_EQ(test::codes(schedule), Codes{"S607"}) << "nobody does";
}

TEST_F(FedTokens, AreThoseOfAReplica) {
  for (Feed& feed : schedule.feeds) feed.replica = RankExpression{0, {1, 0, 1, 2}};
  EXPECT_TRUE(test::codes(schedule).count("S607")) << "neither replica holds its sequence";
}

TEST_F(FedTokens, FillTheirBuffer) {
  tokens.row = 1;
  EXPECT_EQ(test::codes(schedule), Codes{"S606"});
  tokens.row = 5;
  EXPECT_EQ(test::codes(schedule), Codes{"S606"}) << "beyond its end";
  tokens.row = 0;
  tokens.rows = 3;
  EXPECT_TRUE(test::codes(schedule).count("S606"));
  tokens.rows = 0;
  EXPECT_EQ(test::codes(schedule), Codes{"S103"});
}

TEST_F(FedTokens, AreInputs) {
  tokens.buffer = 0;
  EXPECT_TRUE(test::codes(schedule).count("S606"));
  tokens.buffer = 1000;
  EXPECT_EQ(test::codes(schedule), Codes{"S102"});
}

TEST_F(FedTokens, AreWhatOpsTakeThemFor) {
  documents.holds = Holds::labels;
  EXPECT_TRUE(test::codes(schedule).count("S606"));
  schedule.feeds.pop_back();
  EXPECT_EQ(test::codes(schedule), Codes{"S606"}) << "tiles read document starts";
  schedule.feeds.clear();
  EXPECT_EQ(test::codes(schedule), Codes{}) << "as in a file of format 2";
}

TEST_F(FedTokens, DocumentsAreWhole) {
  documents.first = 1;
  EXPECT_EQ(test::codes(schedule), Codes{"S607"});
}

}  // namespace
}  // namespace fpdt
