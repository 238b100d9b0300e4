// Addresses of slots, versions and rows.
#include "fpdt/runtime/resolve.h"

#include <vector>

#include <gtest/gtest.h>

#include "fpdt/runtime/view_finder.h"

namespace fpdt {
namespace {

// Three slots of 4 rows of 10 bf16 elements: 80 bytes at a distance of 256.
Schedule example() {
  Schedule schedule;
  Buffer buffer;
  buffer.name = "ring";
  buffer.space = MemorySpace::host;
  buffer.dtype = Dtype::bf16;
  buffer.shape = {4, 5, 2};
  buffer.slots = 3;
  buffer.offset = 512;
  schedule.buffers.push_back(buffer);
  return schedule;
}

class AddressesTest : public testing::Test {
 protected:
  AddressesTest() : memory(4096), addresses(example(), {{{}, {}, memory}}) {}
  std::vector<std::byte> memory;
  Addresses addresses;
};

TEST_F(AddressesTest, SlotsHoldTheirContents) {
  EXPECT_EQ(addresses.slot(0, 2).data(), memory.data() + 512 + 2 * 256);
  EXPECT_EQ(addresses.slot(0, 2).size(), 80U);
}

TEST_F(AddressesTest, VersionsTakeTheirTurnAndRowsAreCut) {
  const View whole = addresses.view({0, 0, 0, 0, 4, Access::write}, 7);  // slot 1
  EXPECT_EQ(whole.data, memory.data() + 512 + 256);
  EXPECT_EQ(whole.elements, 40);
  EXPECT_EQ(whole.bytes(), 80);
  EXPECT_EQ(whole.dtype, Dtype::bf16);
  EXPECT_EQ(whole.access, Access::write);
  const View part = addresses.view({0, 0, 0, 1, 2, Access::read}, 3);  // slot 0
  EXPECT_EQ(part.data, memory.data() + 512 + 20);
  EXPECT_EQ(part.elements, 20);
}

TEST(ViewFinder, CountsWhatIsPresent) {
  AttentionForward op;
  op.q = op.kv = op.o.operand = op.workspace = {0, {}};
  std::vector<View> views(4);
  for (std::size_t i = 0; i < views.size(); ++i) views[i].elements = static_cast<std::int64_t>(i);
  EXPECT_EQ(find_view(op, views, op.kv).elements, 1);
  EXPECT_EQ(find_view(op, views, op.o.operand).elements, 2);
  EXPECT_EQ(find_view(op, views, op.workspace).elements, 3);
  EXPECT_EQ(find_view(op, views, op.documents).elements, 0);
  AllToAll exchange{"sp", {{0, {}}, {1, {}}}, {{{2, {}}, false}, {{3, {}}, false}}};
  EXPECT_EQ(find_view(exchange, views, exchange.send[1]).elements, 1);
  EXPECT_EQ(find_view(exchange, views, exchange.receive[1].operand).elements, 3);
}

}  // namespace
}  // namespace fpdt
