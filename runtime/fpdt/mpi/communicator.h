// Collectives between ranks that are processes.
//
// All of them are groups of sends and receives. All-to-all and all-gather move blocks to where they
// belong. Sums move the blocks of all members into a workspace, a piece of each at a time, and then
// add them in member order: the same bits as ranks in one process.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "fpdt/mpi/process.h"
#include "fpdt/mpi/world.h"
#include "fpdt/runtime/collective.h"
#include "fpdt/runtime/communicator.h"

namespace fpdt {

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MpiProcess& process);

  [[nodiscard]] std::int64_t rank() const override { return process_.place().process; }
  [[nodiscard]] std::int64_t ranks() const override { return process_.place().processes; }
  [[nodiscard]] std::int64_t local_ranks() const override { return process_.place().locals; }
  void prepare(const Program& program) override;
  void collective(const Body& body, std::int32_t lane, std::span<const View> views,
                  Mover& mover) override;
  void barrier() override;
  void abort(std::exception_ptr cause) noexcept override;

 private:
  // A collective of the program: its name, and who takes part.
  struct Place {
    std::string name;
    Membership members;
  };
  // The resources of the collectives of one lane.
  struct Tools {
    MpiProcess::Channel* channel = nullptr;
    std::vector<Transfer> transfers;
    std::vector<View> blocks;  // by member
  };

  void move(const Membership& members, bool scatters, std::span<const View> sends,
            std::span<const View> receives, Tools& tools);
  void pass_on(const Membership& members, std::int64_t hop, std::span<const View> sends,
               std::span<const View> receives, Tools& tools);
  void sum(const Membership& members, bool scatters, const View& send, const View& target,
           const View& workspace, Tools& tools);

  // Exchanges the transfers of the tools.
  void exchange(Tools& tools);

  MpiProcess& process_;
  MpiProcess::Channel& everybody_;
  std::unordered_map<const Body*, Place> places_;
  std::vector<Tools> tools_;  // by lane
};

// Connects the rank of this process. The world must outlive the result.
Connect connect_mpi(MpiWorld& world);

}  // namespace fpdt
