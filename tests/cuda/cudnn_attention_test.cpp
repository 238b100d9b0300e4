// Which attention tiles cuDNN supports, and how much memory they need. cuDNN itself answers, for
// GPUs that are described by their properties (devices/*.json: the keys that cuDNN 9.19 reads, with
// values from data sheets). This needs no GPU, only a libcuda that cuDNN can load: a driver's, or
// the toolkit's stub, which CMakeLists.txt puts on this program's path. The results of plans are
// tested in cudnn_emulated_test.cpp.
#include "fpdt/cuda/cudnn_attention.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"
#include "fpdt/schedule/attention_workspace.h"

namespace fpdt::cuda {
namespace {

std::string read_device(const std::string& name) {
  std::ifstream file(std::string(FPDT_SOURCE_DIR) + "/tests/cuda/devices/" + name + ".json");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::int64_t planned_workspace(const AttentionTile& tile, const std::string& device) {
  const PlanTarget target{nullptr, device};
  if (tile.direction == Direction::forward) return ForwardPlan(tile, target).workspace().value;
  return BackwardPlan(tile, target).workspace().value;
}

// The message of the InputError that a plan throws; empty if there is a plan.
std::string refusal(const AttentionTile& tile, const std::string& device) {
  try {
    planned_workspace(tile, device);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

constexpr AttentionTile kSmall{
    .heads = 1, .kv_heads = 1, .head_dim = 64, .q_rows = 128, .k_rows = 128};

struct Gpu {
  std::string name;
  bool sm90;
};
void PrintTo(const Gpu& gpu, std::ostream* out) { *out << gpu.name; }

class CudnnAttention : public testing::TestWithParam<Gpu> {
 protected:
  void SetUp() override {
    device_ = read_device(GetParam().name);
    ASSERT_FALSE(device_.empty());
    const std::string reason = refusal(kSmall, device_);
    if (reason.find("libcuda") != std::string::npos) {
      GTEST_SKIP() << "cuDNN finds no libcuda, neither a driver's nor a stub: " << reason;
    }
    if (reason.find("could not be loaded") != std::string::npos) GTEST_SKIP() << reason;
  }
  std::string device_;
};

std::int64_t padded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// The formula in cudnn_attention.h.
std::int64_t expected_workspace(const AttentionTile& tile, bool sm90) {
  const auto [direction, h, kv_heads, d, q, k, mask, scale, members, window] = tile;
  const std::int64_t g = kv_heads * members;
  if (direction == Direction::forward) {
    return (sm90 ? 256 : 0) + padded(4 * h * q) + padded(2 * h * q * d);
  }
  const std::int64_t engine = sm90 ? 256 : padded(4 * g * q * d + 128);
  return engine + 2 * padded(4 * g * q) + padded(2 * g * q * d) + padded(4 * g * q * d) +
         padded(4 * g * k * d);
}

// The bytes that plans reserve for such a tile with their choice of members: never less.
std::int64_t predicted_workspace(const AttentionTile& tile) {
  const auto direction = tile.direction == Direction::forward ? AttentionDirection::forward
                                                              : AttentionDirection::backward;
  return attention_workspace_bytes(direction, tile.q_rows, tile.k_rows, tile.heads, tile.kv_heads,
                                   tile.head_dim)
      .value;
}

struct Rows {
  std::int64_t queries, keys;
};

// Every grouping of heads; backward in launches of one member and of all.
std::vector<AttentionTile> tiles_of(std::int64_t head_dim, const Rows& rows) {
  std::vector<AttentionTile> tiles;
  for (const auto [heads, kv_heads] :
       {std::array{4, 4}, std::array{4, 1}, std::array{8, 2}, std::array{8, 1}}) {
    for (const MaskShape mask :
         {MaskShape::everything, MaskShape::top_left, MaskShape::bottom_right}) {
      AttentionTile tile{Direction::forward, heads, kv_heads, head_dim, rows.queries,
                         rows.keys,          mask,  0.125,    1};
      tiles.push_back(tile);
      tile.direction = Direction::backward;
      tiles.push_back(tile);
      tile.members = heads / kv_heads;
      if (tile.members > 1) tiles.push_back(tile);
    }
  }
  return tiles;
}

void expect_planned(std::int64_t head_dim, const std::vector<Rows>& sizes, const Gpu& gpu,
                    const std::string& device) {
  for (const Rows rows : sizes) {
    for (const AttentionTile& tile : tiles_of(head_dim, rows)) {
      SCOPED_TRACE(describe(tile) + ", mask " + std::to_string(static_cast<int>(tile.mask)) + ", " +
                   std::to_string(tile.members) + " members");
      const std::int64_t planned = planned_workspace(tile, device);
      EXPECT_EQ(planned, expected_workspace(tile, gpu.sm90));
      if (tile.members <= backward_members(tile.q_rows, tile.heads, tile.kv_heads)) {
        EXPECT_LE(planned, predicted_workspace(tile));
      }
    }
  }
}

const std::vector<Rows> kSizes{
    {128, 128}, {384, 1152}, {8192, 8192}, {1024, 65536}, {65536, 65536}};

TEST_P(CudnnAttention, PlansTilesOfHeadsOf64) { expect_planned(64, kSizes, GetParam(), device_); }
TEST_P(CudnnAttention, PlansTilesOfHeadsOf128) { expect_planned(128, kSizes, GetParam(), device_); }
// Where `cudnn_windows` gives them to cuDNN.
TEST_P(CudnnAttention, PlansTilesOfWindowsWithTheirOwnKeys) {
  for (const std::int64_t window : {1, 128, 1000, 4096}) {
    for (AttentionTile tile : tiles_of(128, {8192, 8192})) {
      if (tile.mask != MaskShape::top_left) continue;
      tile.window = window;
      SCOPED_TRACE(describe(tile) + ", window " + std::to_string(window));
      EXPECT_EQ(planned_workspace(tile, device_), expected_workspace(tile, GetParam().sm90));
    }
  }
}

// Where `largest_cudnn_head: 256` gives them to cuDNN.
TEST_P(CudnnAttention, PlansTilesOfLargeHeadsOnHopper) {
  if (!GetParam().sm90) GTEST_SKIP() << "its backward takes heads of up to 128";
  for (const std::int64_t head_dim : {192, 256}) {
    expect_planned(head_dim, {{4096, 8192}, {65536, 65536}}, GetParam(), device_);
  }
}
TEST_P(CudnnAttention, PlansTilesOfHeadsOf96) {
  expect_planned(96, {{4096, 8192}}, GetParam(), device_);
}

// The engine is that of a launch without members, whose keys are not shared.
TEST_P(CudnnAttention, TakesMembersByTheSameEngine) {
  for (const MaskShape mask :
       {MaskShape::everything, MaskShape::top_left, MaskShape::bottom_right}) {
    AttentionTile tile{Direction::backward, 8, 2, 128, 32768, 65536, mask, 0.125, 1};
    const std::int64_t engine = BackwardPlan(tile, {nullptr, device_}).engine();
    EXPECT_GT(engine, 0);
    for (tile.members = 2; tile.members <= 4; tile.members *= 2) {
      EXPECT_EQ(BackwardPlan(tile, {nullptr, device_}).engine(), engine);
    }
  }
}

TEST_P(CudnnAttention, TakesLargeHeadsBackwardOnHopperOnly) {
  for (const std::int64_t head_dim : {192, 256}) {
    AttentionTile tile = kSmall;
    tile.heads = 2;
    tile.head_dim = head_dim;
    EXPECT_EQ(refusal(tile, device_), "");
    tile.direction = Direction::backward;
    const std::string message = refusal(tile, device_);
    if (GetParam().sm90) {
      EXPECT_EQ(message, "");
      continue;
    }
    EXPECT_NE(message.find("has no engine for attention backward of 128 queries and 128 keys, 2 "
                           "and 1 heads of"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("not less than equal to 128"), std::string::npos) << message;
    EXPECT_NE(message.find("`attention: own`"), std::string::npos) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(, CudnnAttention, testing::Values(Gpu{"h200", true}, Gpu{"a100", false}),
                         [](const auto& gpu) { return gpu.param.name; });

// Tiles that no GPU supports are refused without asking cuDNN.
TEST(CudnnTile, SaysWhyItIsNotServedAndWhatToDo) {
  EXPECT_EQ(why_not(kSmall), "");
  const auto message = [](const auto& change) {
    AttentionTile tile = kSmall;
    change(tile);
    const std::string whole = refusal(tile, "no device is asked");
    EXPECT_EQ(whole.rfind("cuDNN cannot compute attention ", 0), 0U) << whole;
    EXPECT_NE(whole.find(why_not(tile)), std::string::npos) << whole;
    EXPECT_NE(whole.find("`attention: own`"), std::string::npos) << whole;
    return why_not(tile);
  };
  for (const auto rows : {&AttentionTile::q_rows, &AttentionTile::k_rows}) {
    EXPECT_EQ(
        message([rows](AttentionTile& tile) { tile.*rows = 192; }),
        "its rows must be multiples of 128; `row_multiple: 128` in the cluster file gives such "
        "chunks");
  }
  EXPECT_EQ(message([](AttentionTile& tile) { tile.head_dim = 80; }),
            "head_dim must be one of 64, 96, 128, 192, 256");
  for (const MaskShape mask : {MaskShape::nothing, MaskShape::other}) {
    EXPECT_NE(message([mask](AttentionTile& tile) { tile.mask = mask; }).find("diagonal"),
              std::string::npos);
  }
  EXPECT_NE(message([](AttentionTile& tile) { tile.window = 64; }).find("their own keys"),
            std::string::npos);
  EXPECT_NE(message([](AttentionTile& tile) { tile.q_rows = 1 << 25; }).find("2^31 elements"),
            std::string::npos);
  EXPECT_NE(message([](AttentionTile& tile) { tile.k_rows = 1 << 24; }).find("2^31 elements"),
            std::string::npos);
}

// Compares with the definition, pair by pair.
TEST(CudnnTile, FindsTheMaskOfEveryTile) {
  std::array<int, 5> count{};
  for (std::int64_t q_first = 0; q_first < 7; ++q_first) {
    for (std::int64_t q_rows = 1; q_rows < 5; ++q_rows) {
      for (std::int64_t k_first = 0; k_first < 10; ++k_first) {
        for (std::int64_t k_rows = 1; k_rows < 8; ++k_rows) {
          std::int64_t seen = 0;
          bool top_left = true, bottom_right = true, every_query_sees = true;
          for (std::int64_t i = 0; i < q_rows; ++i) {
            every_query_sees = every_query_sees && k_first <= q_first + i;
            for (std::int64_t j = 0; j < k_rows; ++j) {
              const bool sees = k_first + j <= q_first + i;
              seen += sees ? 1 : 0;
              top_left = top_left && sees == (j <= i);
              bottom_right = bottom_right && sees == (j <= i + k_rows - q_rows);
            }
          }
          const MaskShape mask = mask_of(q_first, q_rows, k_first, k_rows);
          ++count.at(static_cast<std::size_t>(mask));
          EXPECT_EQ(mask == MaskShape::nothing, seen == 0);
          EXPECT_EQ(mask == MaskShape::everything, seen == q_rows * k_rows);
          EXPECT_TRUE(mask != MaskShape::top_left || (top_left && every_query_sees));
          EXPECT_TRUE(mask != MaskShape::bottom_right || (bottom_right && every_query_sees));
          EXPECT_TRUE(mask != MaskShape::other || !every_query_sees || !(top_left || bottom_right));
        }
      }
    }
  }
  EXPECT_GT(*std::min_element(count.begin(), count.end()), 0);
}

TEST(CublasLtVersion, IsTheOneOfTheHeaders) {
  EXPECT_NO_THROW(require_cublaslt(CUBLAS_VERSION));
  EXPECT_NO_THROW(require_cublaslt(CUBLAS_VER_MAJOR * 10000));
  EXPECT_THROW(require_cublaslt((CUBLAS_VER_MAJOR + 1) * 10000), InputError);
  try {
    require_cublaslt(110300);
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("cuBLASLt 11.3.0: this program is built for ", 0), 0U)
        << error.what();
  }
}

TEST(CudnnVersion, IsOneWhoseAttentionIsKnown) {
  for (const std::size_t version : {91002U, 91900U, 92300U, 99999U}) {
    EXPECT_NO_THROW(require_cudnn(version)) << version;
  }
  for (const auto& [version, text] :
       {std::pair{8907U, "cuDNN 8.9.7: expected 9.10.2 or a later"},
        std::pair{90701U, "cuDNN 9.7.1: "}, std::pair{91001U, "cuDNN 9.10.1: "},
        std::pair{100000U, "cuDNN 10.0.0: "}}) {
    try {
      require_cudnn(version);
      ADD_FAILURE() << version;
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).rfind(text, 0), 0U) << error.what();
    }
  }
}

}  // namespace
}  // namespace fpdt::cuda
