// Fills in the absent members of each group with this rank's own views.
#include "fpdt/comm/solo.h"

#include <algorithm>

#include "fpdt/runtime/collective.h"

namespace fpdt {

void SoloCommunicator::prepare(const Program& program) {
  schedule_ = program.schedule;
  std::int64_t most = 1;
  for (const Group& group : schedule_->groups) most = std::max(most, group.size);
  peers_.assign(program.lanes.size(),
                std::vector<std::span<const View>>(static_cast<std::size_t>(most)));
}

void SoloCommunicator::collective(const Body& body, std::int32_t lane, std::span<const View> views,
                                  Mover& mover) {
  const Membership members = membership(group_of(*schedule_, body), rank_);
  const std::span peers(peers_[static_cast<std::size_t>(lane)].data(),
                        static_cast<std::size_t>(members.size));
  std::fill(peers.begin(), peers.end(), views);
  mover.receive(body, members.mine, peers);
}

}  // namespace fpdt
