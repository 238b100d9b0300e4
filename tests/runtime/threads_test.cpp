// Threads that start, and threads that the machine refuses.
#include "fpdt/runtime/threads.h"

#include <pthread.h>
#include <string>

#include <gtest/gtest.h>

#include "fpdt/base/error.h"

namespace fpdt {
namespace {

TEST(StartThread, RunsTheWork) {
  int done = 0;
  start_thread([&] { done = 1; }).join();
  EXPECT_EQ(done, 1);
}

// No machine has enough addresses for a stack of 2^60 bytes.
TEST(StartThread, NamesTheRemedyWhenTheMachineRefuses) {
  pthread_attr_t usual;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  pthread_attr_t huge;
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 60), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  try {
    start_thread([] {}).join();
    ADD_FAILURE() << "a thread started";
  } catch (const MemoryError& error) {
    EXPECT_NE(std::string(error.what()).find("--threads"), std::string::npos) << error.what();
  }
  EXPECT_EQ(pthread_setattr_default_np(&usual), 0);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
}

}  // namespace
}  // namespace fpdt
