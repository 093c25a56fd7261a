// SPDX-License-Identifier: Apache-2.0
// Texts by name or from the repository, and what is written about a run.

#include "examples/cli/run_files.hpp"

#include "protrain/io/run_facts.hpp"

namespace cli {

namespace io = protrain::io;

io::text_data read_text(flags const& f, runfiles const& files, std::uint64_t sequence) {
  if (auto const& name = f.text("text")) {
    return {*name, io::read_file(*name), sequence};
  }
  return {default_text,
          io::read_listed(files.find("examples/corpus.txt"),
                          [&](std::string const& name) { return files.find(name); }),
          sequence};
}

std::unique_ptr<io::step_log> open_log(flags const& f, run_description const& about) {
  std::string const path = f.text("log").value_or("");
  auto log = std::make_unique<io::step_log>(path);
  io::write_run_facts(path + ".meta.json",
                      {.model = about.task.model,
                       .device = about.device,
                       .plan = about.plan,
                       .text = f.text("text").value_or(default_text),
                       .text_bytes = about.text.size(),
                       .text_hash = about.text.hash(),
                       .fingerprint = protrain::trace::fingerprint(about.facts),
                       .steps = about.steps,
                       .learning_rate = about.learning_rate,
                       .config = about.task.config,
                       .job = about.task.job});
  return log;
}

}  // namespace cli
