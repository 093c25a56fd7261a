// SPDX-License-Identifier: Apache-2.0
// compile: what it refuses, and what the knobs do to a program.

#include "protrain/schedule/compile.hpp"

#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/support/small_job.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>

namespace compile_test {

namespace {

using namespace protrain;
using schedule::opcode;

struct setup {
  trace::trace facts;
  chunk::layout layout;
  schedule::knobs knobs;

  schedule::program compile() const {
    auto p = schedule::compile(facts, layout, knobs);
    REQUIRE(p.has_value());
    schedule::verdict const v = schedule::verify(*p, facts, layout);
    INFO(v.what);
    REQUIRE(v.ok);
    return *p;
  }
};

setup make(std::size_t blocks, std::size_t persistent, std::uint64_t accumulate = 1) {
  setup s{.facts = test::small_trace(blocks), .layout = {}, .knobs = {}};
  s.facts.job.accumulate = accumulate;
  s.layout = test::small_layout(s.facts);
  s.knobs = test::small_knobs(s.layout, blocks, persistent);
  return s;
}

std::ptrdiff_t count(schedule::program const& p, opcode op) {
  return std::count_if(
      p.instructions.begin(), p.instructions.end(), [&](auto const& i) { return i.op == op; });
}

/// Queues of an opcode's instructions, as a set of bits.
unsigned queues(schedule::program const& p, opcode op) {
  unsigned out = 0;
  for (auto const& i : p.instructions) {
    out |= i.op == op ? 1U << static_cast<unsigned>(i.queue) : 0U;
  }
  return out;
}
constexpr unsigned bit(queue_id q) { return 1U << static_cast<unsigned>(q); }

TEST_CASE("a step is cut into as few programs as its micro-batches need") {
  CHECK(schedule::cut_step(1, 4) == schedule::cut{.first = 1});
  CHECK(schedule::cut_step(4, 4) == schedule::cut{.first = 4});
  CHECK(schedule::cut_step(5, 4) == schedule::cut{.first = 3, .last = 2});
  CHECK(schedule::cut_step(8, 4) == schedule::cut{.first = 4, .last = 4});
  CHECK(schedule::cut_step(9, 4) == schedule::cut{.first = 3, .middles = 1, .last = 3});
  CHECK(schedule::cut_step(1000, 1) == schedule::cut{.first = 1, .middles = 998, .last = 1});
  for (std::uint64_t k = 1; k <= 200; ++k) {
    for (std::uint32_t unroll = 1; unroll <= 20; ++unroll) {
      schedule::cut const c = schedule::cut_step(k, unroll);
      REQUIRE(c.first + std::uint64_t{c.first} * c.middles + c.last == k);
      REQUIRE(c.whole() == (k <= unroll));
      REQUIRE((c.first >= 1 && c.first <= unroll && c.last <= c.first));
      std::uint64_t const programs = c.whole() ? 1 : c.middles + 2;
      REQUIRE(programs == (k + unroll - 1) / unroll);
    }
  }
}

TEST_CASE("programs of a cut step: the first begins it, the last ends it, none grows with it") {
  setup s = make(4, 2, 10);
  auto const programs = schedule::compile_step(s.facts, s.layout, s.knobs);
  REQUIRE(programs.has_value());
  REQUIRE(programs->size() == 3);
  schedule::program const& first = (*programs)[0];
  schedule::program const& middle = (*programs)[1];
  schedule::program const& last = (*programs)[2];
  CHECK(first.part == schedule::segment::first);
  CHECK((first.before == 0 && first.micro_batches == 4 && first.times == 1));
  CHECK(middle.part == schedule::segment::middle);
  CHECK((middle.before == 4 && middle.micro_batches == 4 && middle.times == 1));
  CHECK(last.part == schedule::segment::last);
  CHECK((last.before == 8 && last.micro_batches == 2 && last.times == 1));
  for (schedule::program const& p : *programs) {
    CHECK(count(p, opcode::batch_load) == std::ptrdiff_t{p.micro_batches});
    CHECK(count(p, opcode::loss_read) == std::ptrdiff_t{p.micro_batches});
    bool const ends = p.part == schedule::segment::last;
    CHECK((count(p, opcode::update) > 0) == ends);
    CHECK((count(p, opcode::norm_partial) > 0) == ends);
    CHECK(count(p, opcode::norm_finish) == (ends ? 1 : 0));
  }
  s.facts.job.accumulate = 4002;
  auto const longer = schedule::compile_step(s.facts, s.layout, s.knobs);
  REQUIRE(longer.has_value());
  REQUIRE(longer->size() == 3);
  CHECK((*longer)[1].times == 999);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK((*longer)[i].instructions.size() == (*programs)[i].instructions.size());
    CHECK(schedule::memory_of((*longer)[i], space::device).peak ==
          schedule::memory_of((*programs)[i], space::device).peak);
  }
}

TEST_CASE("a segment that the step's cut doesn't have is refused") {
  using schedule::segment;
  auto const refused = [](setup const& s, segment part) {
    auto const p = schedule::compile(s.facts, s.layout, s.knobs, chunk::execution_order{}, part);
    return !p.has_value() && p.failure().code == errc::not_allowed;
  };
  setup const whole = make(4, 2, 4);
  setup const two = make(4, 2, 5);
  setup const three = make(4, 2, 9);
  for (segment const part :
       {segment::first, segment::first_resumed, segment::middle, segment::last}) {
    CHECK(refused(whole, part));
    CHECK(refused(two, part) == (part == segment::middle));
    CHECK_FALSE(refused(three, part));
  }
  for (segment const part : {segment::step, segment::resume}) {
    CHECK_FALSE(refused(whole, part));
    CHECK(refused(two, part));
    CHECK(refused(three, part));
  }
}

TEST_CASE("knobs that contradict the job are refused with a reason") {
  struct fault {
    std::function<void(setup&)> break_it;
    errc code;
  };
  std::vector<fault> const faults{
      {[](setup& s) { s.facts.job.world = 7; }, errc::invalid_argument},
      {[](setup& s) { s.facts.job.world = 0; }, errc::invalid_argument},
      {[](setup& s) { s.knobs.defer = 1; }, errc::not_allowed},
      {[](setup& s) { s.facts.job.type = dtype::bf16; }, errc::not_allowed},
      {[](setup& s) { s.facts.job.accumulate = 0; }, errc::invalid_argument},
      {[](setup& s) { s.facts.job.micro_batch = 0; }, errc::invalid_argument},
      {[](setup& s) { s.knobs.persistent.pop_back(); }, errc::invalid_argument},
      {[](setup& s) { s.knobs.sites.pop_back(); }, errc::invalid_argument},
      {[](setup& s) { s.knobs.strategies.pop_back(); }, errc::invalid_argument},
      {[](setup& s) { s.knobs.levels = {0, 0}; }, errc::invalid_argument},
      {[](setup& s) { s.knobs.levels = {1, 0, 0, 0}; }, errc::out_of_range},
      {[](setup& s) {
         s.facts.shapes[1].levels.resize(1);
         s.knobs.levels = {0, 1, 0, 0};  // block 1 is checkpointed
       },
       errc::not_allowed},
      {[](setup& s) { s.knobs.sites[0] = update::site::cpu; }, errc::not_allowed},
      {[](setup& s) { s.knobs.sites[0] = update::site::streamed; }, errc::not_allowed},
      {[](setup& s) { s.knobs.sites[3] = update::site::gpu; }, errc::not_allowed},
      {[](setup& s) {
         s.knobs.sites[3] = update::site::streamed;
         s.knobs.streaming_slots = 0;
       },
       errc::out_of_range},
      {[](setup& s) {
         s.knobs.sites[3] = update::site::streamed;
         s.knobs.stream_parts = 0;
       },
       errc::out_of_range},
      {[](setup& s) { s.knobs.buffers = 0; }, errc::out_of_range},
      {[](setup& s) { s.knobs.gradient_slots = 1; }, errc::out_of_range},
      {[](setup& s) { s.knobs.unroll = 0; }, errc::out_of_range},
      {[](setup& s) { s.facts.job.accumulate = 1ULL << 40; }, errc::out_of_range},
      {[](setup& s) {
         s.facts.job.clip = 1;
         s.knobs.time = update::timing::during_backward;
       },
       errc::not_allowed},
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    CAPTURE(i);
    setup s = make(4, 2);
    faults[i].break_it(s);
    auto const p = schedule::compile(s.facts, s.layout, s.knobs);
    REQUIRE_FALSE(p.has_value());
    CHECK(p.failure().code == faults[i].code);
    CHECK(std::string(p.failure().what).size() > 10);
  }
}

TEST_CASE("every block runs forward and backward once per micro-batch") {
  for (std::uint64_t const accumulate : {1U, 3U}) {
    auto const p = make(6, 2, accumulate).compile();
    auto const passes = static_cast<std::ptrdiff_t>(6 * accumulate);
    CHECK(count(p, opcode::forward) == passes);
    CHECK(count(p, opcode::backward) == passes);
    CHECK(count(p, opcode::recompute) == passes / 3);
    CHECK(count(p, opcode::swap_out) == passes / 3);
    CHECK(count(p, opcode::swap_in) == passes / 3);
    CHECK(count(p, opcode::reduce) == passes);
    CHECK(count(p, opcode::update) == 6);
    CHECK(count(p, opcode::norm_partial) == 6);
    CHECK(count(p, opcode::norm_finish) == 1);
    CHECK(p.micro_batches == accumulate);
  }
}

TEST_CASE("a save level: less stays, and what was dropped is rebuilt right before backward") {
  setup s = make(3, 3);
  for (trace::block_shape& shape : s.facts.shapes) {
    shape.levels = {{.name = "half", .saved = {3072}, .rebuilt = {1024}, .reads_input = false},
                    {.name = "all", .rebuilt = {4096}, .scratch = {512}, .reads_input = true}};
    shape.reads_input = false;
  }
  s.knobs.strategies.assign(3, activation::strategy::keep);
  auto const kept = s.compile();
  s.knobs.levels = {0, 1, 2};
  auto const p = s.compile();
  REQUIRE(schedule::verify(p, s.facts, s.layout).ok);
  CHECK(count(kept, opcode::rebuild) == 0);
  CHECK(count(p, opcode::rebuild) == 2);
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    schedule::instruction const& at = p.instructions[i];
    if (at.op == opcode::rebuild) {
      CHECK(at.level == at.block.value);
      auto const next = std::find_if(p.instructions.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                     p.instructions.end(),
                                     [](auto const& k) { return k.queue == queue_id::compute; });
      // Slots are zeroed in between, nothing else.
      CHECK((next->op == opcode::backward || next->op == opcode::zero));
      auto const reads = [&](schedule::role what) {
        return std::ranges::count(p.operands_of(at), what, &schedule::operand::what);
      };
      CHECK(reads(schedule::role::input) == (at.level == 2 ? 1 : 0));
      CHECK(reads(schedule::role::saved) == (at.level == 1 ? 1 : 0));
      CHECK(reads(schedule::role::rebuilt) == 1);
      CHECK(reads(schedule::role::scratch) == (at.level == 2 ? 1 : 0));
    }
  }
  // What stays at the end of forward; x of block 2 stays for its rebuild, as no backward reads it.
  auto const held = [](schedule::program const& q, category what) {
    auto const turn =
        std::ranges::find(q.instructions, opcode::loss_read, &schedule::instruction::op);
    auto const at = static_cast<std::uint32_t>(turn - q.instructions.begin());
    std::uint64_t sum = 0;
    for (schedule::allocation const& a : q.allocations) {
      sum += a.what == what && a.begin <= at && at < a.end ? a.bytes : 0;
    }
    return sum;
  };
  CHECK(held(kept, category::activations) == 3 * 4096);
  CHECK(held(p, category::activations) == 4096 + 3072);
  CHECK(held(kept, category::boundaries) == 0);
  CHECK(held(p, category::boundaries) == 1024);
  // An evaluation rebuilds nothing.
  auto const e = schedule::compile(s.facts, s.layout, s.knobs, {}, schedule::segment::evaluate);
  REQUIRE(e.has_value());
  CHECK(std::ranges::count(e->instructions, 0U, &schedule::instruction::level) ==
        static_cast<std::ptrdiff_t>(e->instructions.size()));
}

TEST_CASE("all persistent: nothing moves but batches, losses and scalars") {
  setup s = make(3, 3);
  s.knobs.strategies.assign(3, activation::strategy::keep);
  auto const p = s.compile();
  CHECK(count(p, opcode::upload) == 0);
  CHECK(count(p, opcode::offload) == 0);
  CHECK(count(p, opcode::swap_out) == 0);
  CHECK(queues(p, opcode::update) == bit(queue_id::compute));
  CHECK(count(p, opcode::batch_load) == 1);
  CHECK(count(p, opcode::loss_read) == 1);
  CHECK(count(p, opcode::scalars_upload) == 1);
}

TEST_CASE("none persistent: each chunk goes up, its gradient down, the CPU updates") {
  auto const p = make(6, 0).compile();
  CHECK(count(p, opcode::upload) >= 6);
  CHECK(count(p, opcode::offload) == 6);
  CHECK(queues(p, opcode::update) == bit(queue_id::cpu));
  CHECK(count(p, opcode::norm_read) == 0);
  CHECK(count(p, opcode::scalars_upload) == 0);
}

TEST_CASE("more buffers upload less often, down to once per chunk") {
  setup s = make(6, 0);
  std::ptrdiff_t before = std::numeric_limits<std::ptrdiff_t>::max();
  for (std::uint32_t n = 1; n <= 6; ++n) {
    s.knobs.buffers = n;
    std::ptrdiff_t const uploads = count(s.compile(), opcode::upload);
    CHECK(uploads <= before);
    before = uploads;
  }
  CHECK(before == 6);
}

TEST_CASE("an accumulator exists only where there are several contributions or the update waits") {
  setup s = make(2, 1);
  s.knobs.time = update::timing::during_backward;
  CHECK(count(s.compile(), opcode::accumulate) == 0);
  s.facts.job.accumulate = 3;
  CHECK(count(s.compile(), opcode::accumulate) == 2 * 3);
  s.facts.job.accumulate = 1;
  s.knobs.time = update::timing::after_backward;
  CHECK(count(s.compile(), opcode::accumulate) == 1);  // the persistent chunk; the other offloads
}

TEST_CASE("a clipped job writes scalars after the norm and updates read those") {
  setup s = make(4, 2);
  s.facts.job.clip = 1;
  auto const p = s.compile();
  auto const at = [&](opcode op) {
    return std::find_if(
        p.instructions.begin(), p.instructions.end(), [&](auto const& i) { return i.op == op; });
  };
  CHECK(at(opcode::norm_finish) < at(opcode::scalars_upload));
  CHECK(at(opcode::scalars_upload) < at(opcode::update));
  CHECK(at(opcode::norm_finish)->operand_count == 4);
}

TEST_CASE("each use of a tied tensor is a contribution of its own, frozen ones give none") {
  setup s = make(3, 1);
  s.facts.parameters[0].uses = {{0}, {2}};
  s.facts.parameters[2].trainable = false;
  s.facts.parameters[3].trainable = false;
  s.layout = test::small_layout(s.facts);
  s.knobs = test::small_knobs(s.layout, 3, 1);
  auto const p = s.compile();
  REQUIRE(p.spans.size() == 3);
  CHECK(p.spans[0].chunk == chunk_id{0});
  CHECK(p.spans[0].blocks == std::vector<block_id>{{2}});
  CHECK(p.spans[1].blocks == std::vector<block_id>{{0}});
  CHECK(p.spans[0].tensors == std::vector<schedule::span_tensor>{{0, true}});
  CHECK(p.spans[1].tensors == std::vector<schedule::span_tensor>{{0, false}, {1, true}});
  CHECK(count(p, opcode::update) == 2);
}

/// The last two of `blocks` chunks, none persistent, are streamed.
setup make_streamed(std::size_t blocks, std::uint64_t accumulate = 1) {
  setup s = make(blocks, 0, accumulate);
  s.knobs.sites[blocks - 1] = s.knobs.sites[blocks - 2] = update::site::streamed;
  return s;
}

TEST_CASE("a streamed chunk's parts go up, are updated and come back, a slot at a time") {
  setup s = make_streamed(4);
  for (std::uint32_t const parts : {1U, 2U, 3U, 4U, 99U}) {
    CAPTURE(parts);
    s.knobs.stream_parts = parts;
    auto const p = s.compile();
    // Chunks of 512 elements: parts of 512, 256, 256, 128 and 128.
    std::ptrdiff_t const each = parts == 1 ? 1 : parts < 4 ? 2 : 4;
    CHECK(count(p, opcode::state_in) == 2 * each);
    CHECK(count(p, opcode::update_part) == 2 * each);
    CHECK(count(p, opcode::state_out) == 2 * each);
    CHECK(count(p, opcode::update) == 2);
    CHECK(count(p, opcode::scalars_upload) == 1);
    auto const elements = static_cast<std::uint64_t>(512 / each);
    CHECK(p.part_elements == std::vector<std::uint64_t>{0, 0, elements, elements});
  }
  CHECK(queues(s.compile(), opcode::state_in) == bit(queue_id::h2d));
  CHECK(queues(s.compile(), opcode::update_part) == bit(queue_id::compute));
  CHECK(queues(s.compile(), opcode::state_out) == bit(queue_id::d2h));
}

/// Offset and operand of every part's slot.
std::vector<std::uint32_t> slots_used(schedule::program const& p) {
  std::vector<std::uint32_t> out;
  for (schedule::instruction const& i : p.instructions) {
    if (i.op == opcode::state_in) {
      out.push_back(p.operands_of(i).front().allocation.value);
    }
  }
  return out;
}

TEST_CASE("no more parts than slots are on the device") {
  setup s = make_streamed(4);
  for (std::uint32_t const slots : {1U, 2U, 3U, 8U}) {
    CAPTURE(slots);
    s.knobs.streaming_slots = slots;
    auto const p = s.compile();
    auto used = slots_used(p);
    REQUIRE(used.size() == 8);
    for (std::size_t i = 0; i + slots < used.size(); ++i) {
      CHECK(used[i] == used[i + slots]);
    }
    std::int64_t now = 0;
    for (schedule::instruction const& i : p.instructions) {
      now += i.op == opcode::state_in ? 1 : i.op == opcode::state_out ? -1 : 0;
      CHECK((now >= 0 && now <= std::int64_t{slots}));
    }
    std::ranges::sort(used);
    used.erase(std::unique(used.begin(), used.end()), used.end());
    CHECK(used.size() == slots);
  }
}

TEST_CASE("slots are device memory of their own: value, state and a gradient that waits") {
  setup s = make_streamed(4);
  setup const cpu = make(4, 0);
  auto const staging = [](setup const& x) {
    auto const report = schedule::memory_of(x.compile(), space::device);
    return report.maximum[static_cast<std::size_t>(category::staging)];
  };
  s.knobs.streaming_slots = 3;
  s.knobs.stream_parts = 4;
  // 128 elements of 4 + 8 bytes, and 4 of the store of an update that waits; the scalars.
  CHECK(staging(s) == staging(cpu) + 3 * std::uint64_t{128} * 16 + schedule::scalars_bytes);
  s.knobs.time = update::timing::during_backward;
  // The gradient is read where it was reduced, and its norm taken there.
  CHECK(staging(s) == staging(cpu) + 3 * std::uint64_t{128} * 12 + schedule::scalars_bytes +
                          schedule::norm_cell_bytes);
}

TEST_CASE("a gradient that needn't wait is read on the device, one that must goes to the host") {
  setup s = make_streamed(4);
  CHECK(count(s.compile(), opcode::offload) == 4);
  s.knobs.time = update::timing::during_backward;
  CHECK(count(s.compile(), opcode::offload) == 2);
  CHECK(queues(s.compile(), opcode::norm_partial) == (bit(queue_id::cpu) | bit(queue_id::compute)));
  s.facts.job.accumulate = 2;
  CHECK(count(s.compile(), opcode::offload) == 8);
  CHECK(queues(s.compile(), opcode::norm_partial) == bit(queue_id::cpu));
  CHECK(queues(s.compile(), opcode::accumulate) == bit(queue_id::cpu));
}

TEST_CASE("parts of a chunk wait for the slot, not for each other") {
  setup s = make_streamed(4);
  s.knobs.streaming_slots = 2;
  auto const p = s.compile();
  // The second part goes up beside the update of the first and comes back without waiting for the
  // third, which goes up beside that.
  std::vector<std::uint32_t> in;
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    if (p.instructions[i].op == opcode::state_in) {
      in.push_back(i);
    } else if (p.instructions[i].op == opcode::state_out) {
      out.push_back(i);
    }
  }
  auto const waits_for = [&](std::uint32_t i, std::uint32_t for_what) {
    return std::ranges::count(p.dependencies_of(p.instructions[i]), for_what) > 0;
  };
  for (std::size_t k = 0; k + 2 < in.size(); ++k) {
    CHECK(waits_for(in[k + 2], out[k]));
    CHECK_FALSE(waits_for(out[k], in[k + 1]));
    CHECK_FALSE(waits_for(out[k + 1], in[k + 2]));
  }
}

TEST_CASE("checkpointing and swapping save device memory, swapping costs host memory") {
  setup s = make(8, 8);
  auto const peak = [&](activation::strategy how, space where) {
    s.knobs.strategies.assign(8, how);
    return schedule::memory_of(s.compile(), where).peak;
  };
  auto const keep = peak(activation::strategy::keep, space::device);
  CHECK(peak(activation::strategy::checkpoint, space::device) < keep);
  CHECK(peak(activation::strategy::swap, space::device) < keep);
  CHECK(peak(activation::strategy::swap, space::host) >=
        peak(activation::strategy::keep, space::host) + std::uint64_t{8} * 4096);
}

TEST_CASE("opcodes have names of their own") {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < schedule::opcode_count; ++i) {
    names.push_back(schedule::name_of(static_cast<opcode>(i)));
  }
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK(schedule::name_of(opcode::loss_read) == "loss_read");
}

}  // namespace

}  // namespace compile_test
