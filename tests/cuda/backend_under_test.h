// Which backend the tests of whole steps run on: each program that has them defines these.
#pragma once

#include <cstdint>
#include <memory>

#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/communicator.h"

namespace fpdt {

// `seed`: of the order of whatever has none, where the backend can choose it.
std::unique_ptr<Backend> backend_under_test(Communicator& communicator, std::uint64_t seed);

}  // namespace fpdt
