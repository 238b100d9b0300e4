// The backend for the tests of whole steps. Each program that has such tests defines it.
#pragma once

#include <cstdint>
#include <memory>

#include "fpdt/runtime/backend.h"
#include "fpdt/runtime/communicator.h"

namespace fpdt {

// `seed`: chooses among the orders that are not determined, if the backend can choose.
std::unique_ptr<Backend> backend_under_test(Communicator& communicator, std::uint64_t seed);

}  // namespace fpdt
