// SPDX-License-Identifier: Apache-2.0
// The plain loop over all ranks and every plan on every rank: equal bits after every step, and
// memory as predicted, to the byte. PROTRAIN_TEST_PLANS says how many plans.

#include "test/support/ranks.hpp"

#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/differential/rank_plans.hpp"
#include "test/support/differential.hpp"
#include "test/support/pairwise.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ranks_test {

namespace {

using namespace protrain;
using test::at;
using test::over;

constexpr std::uint64_t seed = 20240609;
constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

std::size_t plans() {
  char const* const count = std::getenv("PROTRAIN_TEST_PLANS");
  return count == nullptr ? 100 : std::strtoull(count, nullptr, 10);
}

std::uint64_t steps_of(test::choice_row const& row) { return test::is_transformer(row) ? 4 : 10; }

/// A model, its job, and what the plain loop over all ranks makes of them.
struct reference {
  test::subject subject;
  test::outcome plain;
};

reference const& reference_of(test::choice_row const& row) {
  static std::map<test::choice_row, reference> all;
  test::choice_row const key(row.begin(), row.begin() + static_cast<std::size_t>(over::device));
  auto found = all.find(key);
  if (found == all.end()) {
    test::subject s = test::ranked_subject(row);
    test::outcome plain = test::train_plain_ranks(
        s, steps_of(row), static_cast<test::between>(at(row, over::between)));
    found = all.emplace(key, reference{std::move(s), std::move(plain)}).first;
  }
  return found->second;
}

void verify_for_all(test::subject const& s, runtime::plan_parts const& parts) {
  for (std::uint64_t rank = 0; rank < s.job().world; ++rank) {
    CAPTURE(rank);
    schedule::segment part{};
    schedule::verdict const v = schedule::verify_segments(
        parts.programs, s.facts, parts.layout, unlimited, unlimited, rank, &part);
    CAPTURE(name_of(part));
    CAPTURE(v.what);
    REQUIRE(v.ok);
  }
}

/// Every rank's run. All serial devices get the same seed: their ranks meet in collectives.
std::vector<test::engine_run> run(test::choice_row const& row,
                                  test::subject const& s,
                                  runtime::plan_parts const& parts,
                                  std::uint64_t order_seed) {
  auto const what = static_cast<test::between>(at(row, over::between));
  if (at(row, over::device) == static_cast<std::uint32_t>(test::device_kind::host)) {
    return test::train_ranks(
        [] { return std::make_unique<device::host_device>(); }, s, parts, steps_of(row), what);
  }
  // `check_writes` compares whole arenas: too much for transformers.
  device::serial_options const options{
      .order = static_cast<device::run_policy>(at(row, over::device)),
      .seed = order_seed,
      .check_writes = !test::is_transformer(row)};
  return test::train_ranks([&] { return std::make_unique<device::serial_device>(options); },
                           s,
                           parts,
                           steps_of(row),
                           what);
}

void check_row(test::choice_row const& row, std::uint64_t order_seed) {
  reference const& r = reference_of(row);
  chunk::layout const l = test::ranked_layout(row, r.subject.facts);
  auto programs = schedule::compile_segments(r.subject.facts,
                                             l,
                                             test::ranked_knobs(row, r.subject.facts, l),
                                             test::eviction_of(test::plan_row(row)));
  REQUIRE(programs.has_value());
  runtime::plan_parts const parts{r.subject.facts, l, *std::move(programs)};
  verify_for_all(r.subject, parts);
  auto const runs = run(row, r.subject, parts, order_seed);
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    CAPTURE(rank);
    CHECK(test::difference(runs[rank].bits, r.plain) == "");
    CHECK(runs[rank].memory == "");
    CHECK(runs[rank].unused == 0);
  }
}

TEST_CASE("every plan on every rank gives the bits of the plain loop in the memory predicted") {
  auto const space = test::rank_space();
  auto const rows = space.rows(plans(), seed);
  auto const missing = space.missing_pairs(rows);
  std::printf("%zu plans from seed %llu, %zu of %zu pairs\n",
              rows.size(),
              static_cast<unsigned long long>(seed),
              space.pairs().size() - missing.size(),
              space.pairs().size());
  CHECK(space.missing_values(rows).empty());
  if (rows.size() >= 100) {
    CHECK(missing.empty());
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::string const plan = space.text(rows[i]);
    CAPTURE(i);
    CAPTURE(plan);
    check_row(rows[i], i);
  }
}

test::choice_row row_of(test::ranked_model model, std::uint32_t ranks, std::uint32_t capacity) {
  test::choice_row row(test::rank_space().axes().size(), 0);
  row[static_cast<std::size_t>(over::model)] = static_cast<std::uint32_t>(model);
  row[static_cast<std::size_t>(over::ranks)] = ranks;
  row[static_cast<std::size_t>(over::capacity)] = capacity;
  return row;
}

/// Where a shard ends inside a tensor: parameter and element.
std::set<std::pair<std::size_t, std::uint64_t>> cuts(test::choice_row const& row) {
  trace::trace const facts = reference_of(row).subject.facts;
  std::set<std::pair<std::size_t, std::uint64_t>> out;
  for (chunk::chunk const& c : test::ranked_layout(row, facts).chunks) {
    for (chunk::placed_tensor const& t : c.tensors) {
      for (std::uint64_t rank = 1; rank < facts.job.world; ++rank) {
        std::uint64_t const end = rank * (c.elements / facts.job.world);
        if (t.offset < end && end < t.offset + t.elements) {
          out.emplace(t.parameter.index(), end - t.offset);
        }
      }
    }
  }
  return out;
}

TEST_CASE("shards cut tensors, in other places for every chunk size") {
  for (auto const model :
       {test::ranked_model::synthetic, test::ranked_model::gpt2, test::ranked_model::llama}) {
    for (std::uint32_t ranks = 1; ranks < 4; ++ranks) {
      CAPTURE(static_cast<int>(model));
      CAPTURE(ranks);
      auto const small = cuts(row_of(model, ranks, 0));
      auto const large = cuts(row_of(model, ranks, 2));
      CHECK_FALSE(small.empty());
      CHECK_FALSE(large.empty());
      CHECK(small != large);
    }
  }
}

TEST_CASE("the jobs are what they are meant to be") {
  for (auto const model : {test::ranked_model::synthetic, test::ranked_model::mlp}) {
    for (std::uint32_t ranks = 0; ranks < 4; ++ranks) {
      CAPTURE(static_cast<int>(model));
      CAPTURE(ranks);
      test::choice_row row = row_of(model, ranks, 0);
      test::outcome const& off = reference_of(row).plain;
      CHECK(off.norms == off.clipped);
      CHECK(std::ranges::adjacent_find(off.losses) == off.losses.end());
      row[static_cast<std::size_t>(over::clip)] = 1;
      test::outcome const& on = reference_of(row).plain;
      CHECK(on.norms != on.clipped);
      CHECK(on.parameters != off.parameters);
    }
  }
}

}  // namespace

}  // namespace ranks_test
