// SPDX-License-Identifier: Apache-2.0
// verify on programs of a small job: each rule broken once, by hand.

#include "protrain/schedule/verify.hpp"

#include "protrain/schedule/compile.hpp"
#include "test/support/mutants.hpp"
#include "test/support/small_job.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string_view>

namespace verify_test {

namespace {

using namespace protrain;
using schedule::opcode;
using schedule::rejection;

struct fixture {
  trace::trace facts = test::small_trace(3);
  chunk::layout layout{};
  schedule::program p{};

  explicit fixture(std::uint64_t accumulate = 1) {
    facts.job.accumulate = accumulate;
    facts.parameters[2].trainable = false;
    facts.parameters[3].trainable = false;
    layout = test::small_layout(facts);
    p = *schedule::compile(facts, layout, test::small_knobs(layout, 3, 1));
    REQUIRE(verify().ok);
  }
  schedule::verdict verify() const { return schedule::verify(p, facts, layout); }

  std::uint32_t find(opcode op) const {
    auto const it = std::find_if(
        p.instructions.begin(), p.instructions.end(), [&](auto const& i) { return i.op == op; });
    REQUIRE(it != p.instructions.end());
    return static_cast<std::uint32_t>(it - p.instructions.begin());
  }
  schedule::instruction& at(opcode op) { return p.instructions[find(op)]; }
  /// The n-th operand of the first `op`.
  schedule::operand& operand(opcode op, std::uint32_t n) {
    return p.operands[at(op).first_operand + n];
  }
  schedule::allocation& memory(opcode op, std::uint32_t n) {
    return p.allocations[operand(op, n).allocation.index()];
  }
};

TEST_CASE("each rule, broken once") {
  struct rule {
    char const* name;
    rejection expected;
    std::function<void(fixture&)> break_it;
  };
  std::vector<rule> const rules{
      {"another job", rejection::malformed, [](fixture& f) { f.facts.job.seed = 9; }},
      {"another micro-batch count",
       rejection::malformed,
       [](fixture& f) { f.p.micro_batches = 2; }},
      {"another layout",
       rejection::malformed,
       [](fixture& f) { f.layout = chunk::make_layout(f.facts, 4096); }},
      {"a chunk of a wrong size",
       rejection::malformed,
       [](fixture& f) { f.layout.chunks[0].elements += 128; }},
      {"a tensor at a wrong offset",
       rejection::malformed,
       [](fixture& f) { f.layout.chunks[0].tensors[1].offset = 128; }},
      {"a parameter that lies elsewhere",
       rejection::malformed,
       [](fixture& f) { f.layout.where[1].offset += 128; }},
      {"a parameter of another chunk",
       rejection::malformed,
       [](fixture& f) { f.layout.where[1].owner = {2}; }},
      {"a parameter without a place",
       rejection::malformed,
       [](fixture& f) { f.layout.where.pop_back(); }},
      {"an operand of no allocation that no instruction has",
       rejection::malformed,
       [](fixture& f) { f.p.operands.push_back({.allocation = {1'000'000}}); }},
      {"losses zeroed by the cpu",
       rejection::wrong_queue,
       [](fixture& f) {
         test::editable e(f.p);
         auto const at = test::positions(f.p, [&](auto const& i) {
           return i.op == opcode::zero && f.p.operands_of(i)[0].what == schedule::role::loss;
         })[0];
         e.duplicate(at);  // in order, so that nothing but the queue is wrong
         e.nodes[at].self.queue = queue_id::cpu;
         e.nodes[at + 1].dependencies.push_back(at);
         f.p = e.program();
       }},
      {"wrong users",
       rejection::malformed,
       [](fixture& f) { f.layout.chunks[0].blocks.push_back({1}); }},
      {"a block that misses a chunk",
       rejection::malformed,
       [](fixture& f) { f.layout.chunks_of[0].clear(); }},
      {"a span too many",
       rejection::malformed,
       [](fixture& f) { f.p.spans.push_back(f.p.spans.back()); }},
      {"a span too few", rejection::malformed, [](fixture& f) { f.p.spans.pop_back(); }},
      {"a wrong first",
       rejection::malformed,
       [](fixture& f) { f.p.spans[0].tensors[0].first = false; }},
      {"a span without its tensor",
       rejection::malformed,
       [](fixture& f) { f.p.spans[0].tensors.pop_back(); }},
      {"an operand too many",
       rejection::malformed,
       [](fixture& f) { ++f.at(opcode::upload).operand_count; }},
      {"a wrong amount", rejection::malformed, [](fixture& f) { ++f.at(opcode::upload).amount; }},
      {"a wrong mode",
       rejection::malformed,
       [](fixture& f) { f.operand(opcode::update, 0).mode = schedule::access::write; }},
      {"too few bytes",
       rejection::malformed,
       [](fixture& f) { f.operand(opcode::upload, 0).bytes -= 4; }},
      {"a gather of one rank",
       rejection::malformed,
       [](fixture& f) {
         f.at(opcode::reduce).queue = queue_id::gather;
         f.at(opcode::reduce).op = opcode::gather;
       }},
      {"a misaligned address",
       rejection::malformed,
       [](fixture& f) { f.p.allocations[0].offset += 128; }},
      {"carried memory that ends",
       rejection::malformed,
       [](fixture& f) { --f.p.allocations[0].end; }},
      {"a home that isn't carried",
       rejection::malformed,
       [](fixture& f) { f.p.allocations[0].carried = false; }},
      {"a copy on compute",
       rejection::wrong_queue,
       [](fixture& f) { f.at(opcode::upload).queue = queue_id::compute; }},
      {"a dependency on itself",
       rejection::cycle,
       [](fixture& f) {
         std::uint32_t const at = f.find(opcode::offload);
         f.p.dependencies[f.p.instructions[at].first_dependency] = at;
       }},
      {"memory freed too early",
       rejection::dead_memory,
       [](fixture& f) { f.memory(opcode::backward, 1).end = f.find(opcode::backward); }},
      {"memory taken too late",
       rejection::dead_memory,
       [](fixture& f) { f.memory(opcode::offload, 0).begin = f.find(opcode::offload) + 1; }},
      {"a stale value",
       rejection::wrong_version,
       [](fixture& f) { f.at(opcode::forward).version = 2; }},
      {"another chunk's value",
       rejection::not_resident,
       [](fixture& f) { f.operand(opcode::forward, 0).chunk = {1}; }},
      {"another micro-batch's x",
       rejection::malformed,
       [](fixture& f) { f.at(opcode::batch_load).micro_batch = 1; }},
      {"a swap of another block",
       rejection::missing_input,
       [](fixture& f) { f.at(opcode::swap_in).block = {0}; }},
      {"a frozen update",
       rejection::frozen_update,
       [](fixture& f) {
         auto& i = f.at(opcode::update);
         i.chunk = {1};
       }},
      {"a reduce of another span",
       rejection::malformed,
       [](fixture& f) { f.at(opcode::reduce).span = {0}; }},
  };
  for (rule const& r : rules) {
    CAPTURE(r.name);
    fixture f;
    r.break_it(f);
    schedule::verdict const v = f.verify();
    CAPTURE(v.what);
    CHECK(schedule::name_of(v.reason) == schedule::name_of(r.expected));
    CHECK_FALSE(v.ok);
    CHECK(std::string_view(v.what).size() > 5);
  }
}

TEST_CASE("contributions are added in order") {
  fixture f(2);
  auto const at = test::positions(f.p, [](auto const& i) {
    return i.op == opcode::accumulate && i.queue == queue_id::compute;
  });
  REQUIRE(at.size() == 2);
  for (std::uint32_t const m : {0U, 1U}) {
    fixture g(2);
    test::editable e(g.p);
    e.erase(at[m]);
    g.p = e.program();
    CHECK(g.verify().reason == rejection::missing_accumulate);
  }
}

TEST_CASE("a race names both instructions") {
  fixture f;
  std::uint32_t const offload = f.find(opcode::offload);
  f.p.instructions[offload].dependency_count = 0;
  schedule::verdict const v = f.verify();
  CHECK(v.reason == rejection::race);
  CHECK(v.instruction == offload);
  CHECK(f.p.instructions[v.other].op == opcode::reduce);
}

TEST_CASE("operands of one instruction may not overlap") {
  fixture f;
  // dx of the last block in its scratch
  auto const at = f.find(opcode::backward);
  auto const operands = f.p.operands_of(f.p.instructions[at]);
  auto const part = [&](schedule::role r) {
    return static_cast<std::size_t>(std::find_if(operands.begin(),
                                                 operands.end(),
                                                 [&](auto const& o) { return o.what == r; }) -
                                    operands.begin()) +
           f.p.instructions[at].first_operand;
  };
  auto const dx = part(schedule::role::input_gradient);
  f.p.operands[dx].allocation = f.p.operands[part(schedule::role::scratch)].allocation;
  schedule::verdict const v = f.verify();
  CHECK(v.reason == rejection::race);
  CHECK(v.instruction == v.other);
}

TEST_CASE("budgets are exact in both spaces") {
  fixture const f;
  std::uint64_t most[2] = {0, 0};
  for (auto const& a : f.p.allocations) {
    auto& m = most[static_cast<std::size_t>(a.where)];
    m = std::max(m, a.offset + granules(a.bytes));
  }
  CHECK(schedule::verify(f.p, f.facts, f.layout, most[0], most[1]).ok);
  CHECK(schedule::verify(f.p, f.facts, f.layout, most[0] - 1, most[1]).reason ==
        rejection::over_budget);
  CHECK(schedule::verify(f.p, f.facts, f.layout, most[0], most[1] - 1).reason ==
        rejection::over_budget);
}

TEST_CASE("an empty program does nothing and says so") {
  trace::trace const t = test::small_trace(1);
  chunk::layout const l = test::small_layout(t);
  schedule::program p{.fingerprint = trace::fingerprint(t)};
  CHECK(schedule::verify(p, t, l).reason == rejection::malformed);
  trace::trace bare = t;
  bare.parameters.clear();
  p.fingerprint = trace::fingerprint(bare);
  CHECK(schedule::verify(p, bare, chunk::make_layout(bare, 128)).reason == rejection::missing_pass);
}

TEST_CASE("in a debugging job every tensor of a chunk has a guard") {
  fixture const plain;
  trace::trace guarded = plain.facts;
  guarded.job.debug = true;
  chunk::layout const layout = test::small_layout(guarded);
  CHECK(layout.chunks.size() > plain.layout.chunks.size());  // two tensors no longer fit in one
  auto const compiled = [](trace::trace const& t, chunk::layout const& l) {
    return *schedule::compile(t, l, test::small_knobs(l, 3, 1));
  };
  CHECK(schedule::verify(compiled(guarded, layout), guarded, layout).ok);
  CHECK(schedule::verify(compiled(guarded, plain.layout), guarded, plain.layout).reason ==
        rejection::malformed);
  CHECK(schedule::verify(compiled(plain.facts, layout), plain.facts, layout).reason ==
        rejection::malformed);
}

TEST_CASE("reasons have names of their own") {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < schedule::rejection_count; ++i) {
    names.push_back(schedule::name_of(static_cast<rejection>(i)));
  }
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK(schedule::name_of(rejection::missing_result) == "missing_result");
}

}  // namespace

}  // namespace verify_test
