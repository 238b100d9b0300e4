// NCCL on the host, on the fake CUDA runtime: every rank is a thread with a GPU of its own.
//
// It keeps to NCCL's rules where they matter. Communicators do not block: each call leaves its
// communicator in progress for a number of questions, and only then is its work on the stream.
// Messages wait for their other half, so a rank that is absent holds up those that wait for it. The
// abort of a communicator returns when its work has left the streams. Memory is taken from the GPU
// when a communicator first uses a peer or an algorithm. Whoever breaks a rule is noted.
#pragma once

#include <cstdint>
#include <nccl.h>
#include <set>
#include <string>
#include <vector>

#include "fpdt/base/units.h"
#include "fpdt/nccl/api.h"

namespace fpdt::fake {

// What NCCL does, and what goes wrong. Ranks are those of the communicator of all ranks.
struct Network {
  int version = NCCL_VERSION_CODE;
  std::int64_t questions = 3;  // answered with "in progress" after each call
  Bytes peer_bytes{256};       // taken for each peer and channel
  bool far = false;            // an abort breaks the connections of the others, who see an error
  std::set<int> hanging_aborts = {};  // ranks whose aborts wait for `release`
  // From its n-th group of messages on, this rank's communicators report the failure.
  int failing_rank = -1;
  std::int64_t failing_group = 0;
  ncclResult_t failure = ncclRemoteError;
  bool address_taken = false;  // ncclGetUniqueId fails
};
// Begins a new network; nothing of the last one may be in use.
void set(const Network& network);
const nccl::Api& nccl_api();

// Lets aborts that hang return.
void release();
// From now on the rank's ncclGroupEnd waits for an abort.
void let_calls_hang(int rank);

// Which rules were broken so far, in words.
std::vector<std::string> broken_rules();
// Communicators that were neither destroyed nor aborted, and those that were aborted.
std::int64_t open_communicators();
std::int64_t aborts();
// The groups of messages that a rank has begun, of all its communicators.
std::int64_t groups(int rank);
// Bytes that one rank has sent another.
std::int64_t sent(int from, int to);
// The thread blocks that the configurations of all communicators allowed.
std::set<int> channels();

}  // namespace fpdt::fake
