// NCCL behind a table of functions: the library's, or those of a fake in tests.
//
// A build needs only the header. The library is loaded at first use.
#pragma once

#include <nccl.h>
#include <string>
#include <string_view>

#include "fpdt/runtime/library.h"

namespace fpdt::nccl {

struct Api {
  Library library;
  FPDT_FROM_LIBRARY(ncclGetVersion);
  FPDT_FROM_LIBRARY(ncclGetErrorString);
  FPDT_FROM_LIBRARY(ncclGetLastError);
  FPDT_FROM_LIBRARY(ncclGetUniqueId);
  FPDT_FROM_LIBRARY(ncclCommInitRankConfig);
  FPDT_FROM_LIBRARY(ncclCommSplit);
  FPDT_FROM_LIBRARY(ncclCommFinalize);
  FPDT_FROM_LIBRARY(ncclCommDestroy);
  FPDT_FROM_LIBRARY(ncclCommAbort);
  FPDT_FROM_LIBRARY(ncclCommGetAsyncError);
  FPDT_FROM_LIBRARY(ncclGroupStart);
  FPDT_FROM_LIBRARY(ncclGroupEnd);
  FPDT_FROM_LIBRARY(ncclSend);
  FPDT_FROM_LIBRARY(ncclRecv);
  FPDT_FROM_LIBRARY(ncclAllGather);
  FPDT_FROM_LIBRARY(ncclReduceScatter);
  FPDT_FROM_LIBRARY(ncclAllReduce);
};

// The library. Throws InputError when it is missing or too old.
const Api& library();

// As ncclGetVersion gives it: 22809 is 2.28.9.
int version(const Api& api);
std::string version_text(int version);

// Throws InputError unless `version` is 2.18.1 or a later NCCL 2. Header and library may differ
// within that: ncclConfig_t carries its size and its version, grows only at its end, and the
// library reads the part that it knows (parseCommConfig in NCCL's init.cc).
void require_version(int version);

// NCCL's words for a result that is neither success nor "in progress", with those of its last
// warning.
std::string words(const Api& api, ncclResult_t result);

}  // namespace fpdt::nccl
