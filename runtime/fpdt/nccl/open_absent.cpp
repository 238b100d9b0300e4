// No NCCL: this program was built without it.
#include <fmt/format.h>

#include "fpdt/base/error.h"
#include "fpdt/nccl/open.h"

namespace fpdt {
namespace {

[[noreturn]] void refuse() {
  throw InputError(fmt::format("this program was built without NCCL ({}); see docs/processes.md",
                               FPDT_NCCL_WHY));
}

}  // namespace

NcclJob open_nccl(const Torchrun&, const NcclOptions&) { refuse(); }
Connect connect_nccl(World&, NcclOptions) { refuse(); }

}  // namespace fpdt
