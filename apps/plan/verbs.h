// The verbs of fpdt-plan. Each function declares the flags of one and returns what runs it.
#pragma once

#include "common/flags.h"

namespace fpdt {

Command declare_search(Options& options);
Command declare_max_seq(Options& options);
Command declare_sweep(Options& options);
Command declare_compare(Options& options);
Command declare_explain(Options& options);
Command declare_simulate(Options& options);
Command declare_draw(Options& options);
Command declare_export(Options& options);
Command declare_lower(Options& options);
Command declare_verify(Options& options);
Command declare_list(Options& options);
Command declare_cluster(Options& options);

}  // namespace fpdt
