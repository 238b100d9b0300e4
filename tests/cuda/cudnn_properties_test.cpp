// The text of a device's properties survives a round trip through cuDNN. Reading a device needs a
// GPU.
#include "fpdt/cuda/cudnn_properties.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"

namespace fpdt::cuda {
namespace {

class CudnnProperties : public testing::Test {
 protected:
  // cuDNN's headers are there, but the library may be missing.
  void SetUp() override {
    try {
      cudnn();
    } catch (const InputError& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

TEST_F(CudnnProperties, AreReadAsTheyWereWritten) {
  std::ifstream file(std::string(FPDT_SOURCE_DIR) + "/tests/cuda/devices/h200.json");
  std::ostringstream text;
  text << file.rdbuf();
  ASSERT_FALSE(text.str().empty());
  EXPECT_EQ(json(device_properties(text.str())) + "\n", text.str());
}

TEST_F(CudnnProperties, NoDeviceHasThisNumber) {
  EXPECT_THROW(device_properties(std::int32_t{1000}), Error);
}

}  // namespace
}  // namespace fpdt::cuda
