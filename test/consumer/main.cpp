// SPDX-License-Identifier: Apache-2.0
// A program that uses an installed protrain in two translation units. Prints the version of the
// headers and exits 0 if both units agree.

#include "umbrella.hpp"

#include <cstdio>

int main() {
  using namespace protrain;
  trace::trace const t = consumer::row_of_blocks(6);
  hw::machine const machine = hw::host_demo();
  auto const p = plan::search(t, machine, {.gpu = 1_MiB, .host = 1_MiB});
  if (!p || p->predicted.iteration != consumer::predicted(t)) {
    std::puts("no plan, or not the same one");
    return 1;
  }
  auto const program = p->compile();
  if (!program || !schedule::verify(*program, t, p->layout).ok) {
    std::puts("the plan's program is not sound");
    return 1;
  }
  auto const form = cost::make_paper_job(t, p->layout, machine, update::timing::during_backward);
  if (!form || !plan::search_closed_form(*form, 1_MiB)) {
    std::puts("no closed form");
    return 1;
  }
  consumer::install_handler();
  if (!consumer::is_installed(set_violation_handler(nullptr))) {
    std::puts("each unit has a handler of its own");
    return 1;
  }
#if !defined(CONSUMER_PLANS_ONLY)
  device::host_device const device;  // starts and joins its threads
#endif
  std::printf("%d.%d.%d\n", PROTRAIN_VERSION_MAJOR, PROTRAIN_VERSION_MINOR, PROTRAIN_VERSION_PATCH);
  return 0;
}
