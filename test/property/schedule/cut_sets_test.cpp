// SPDX-License-Identifier: Apache-2.0
// Sets of programs: accepted exactly where they are all of a step, once.

#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/property/schedule/cut_subjects.hpp"
#include "test/property/schedule/ranked_subjects.hpp"
#include "test/support/mutants.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cut_sets_test {

namespace {

using namespace protrain;
using namespace test::cut;

/// What became of sets of programs, by kind.
class sets {
 public:
  void refused(char const* kind, subject const& s, std::vector<program> const& all) {
    schedule::verdict const v = s.verify_all(all);
    CAPTURE(kind);
    CAPTURE(v.what);
    CHECK(v.reason == rejection::malformed);
    by_[kind].add(v);
  }
  void accepted(char const* kind, subject const& s, std::vector<program> const& all) {
    schedule::verdict const v = s.verify_all(all);
    CAPTURE(kind);
    CAPTURE(v.what);
    CHECK(v.ok);
    by_[kind].add(v);
  }
  void print_all(std::uint64_t least) const {
    for (auto const& [kind, sum] : by_) {
      sum.print(kind.c_str());
      CHECK(sum.accepted() + sum.rejected() >= least);
    }
  }

 private:
  std::map<std::string, tally> by_{};
};

/// Those of `all` that are one of `parts`, in the order of `parts`; empty if one is missing.
std::vector<program> chosen(std::vector<program> const& all, std::initializer_list<segment> parts) {
  std::vector<program> out;
  for (segment const part : parts) {
    for (program const& p : all) {
      if (p.part == part) {
        out.push_back(p);
      }
    }
  }
  return out.size() == parts.size() ? out : std::vector<program>{};
}

/// The program of another cut of the same step, instead of the job's own.
std::vector<program> with(std::vector<program> all, program const& other) {
  for (program& p : all) {
    if (p.part == other.part) {
      p = other;
    }
  }
  return all;
}

/// Sets that lack a program that the step needs.
void lacking(subject const& s, sets& out) {
  using enum segment;
  std::vector<program> const& all = s.segments;
  std::vector<program> const whole_step = chosen(all, {first, middle, last});
  out.accepted("all segments", s, all);
  if (whole_step.empty()) {
    out.accepted("first, last", s, chosen(all, {first, last}));
  } else {
    out.accepted("first, middle, last", s, whole_step);
    out.refused("middle missing", s, chosen(all, {first, last}));
    out.refused("first and last missing", s, chosen(all, {middle}));
    out.refused("first missing", s, chosen(all, {middle, last}));
    out.refused("last missing", s, chosen(all, {first, middle}));
    out.refused("middle twice", s, chosen(all, {first, middle, middle, last}));
  }
  out.refused("nothing but first", s, chosen(all, {first}));
  out.refused("nothing but last", s, chosen(all, {last}));
  out.refused("first twice", s, with(chosen(all, {first, first, last}), *s.find(last)));
  if (auto const most = chosen(all, {first, first_resumed, middle, last, flush, evaluate});
      !most.empty()) {
    out.accepted("first, resumed, middle, last, ...", s, most);
    out.accepted("resumed, middle, last", s, chosen(all, {first_resumed, middle, last}));
    out.refused("resumed without middle", s, chosen(all, {first, first_resumed, last}));
    out.refused("resumed without last", s, chosen(all, {first, first_resumed, middle}));
  }
}

/// Sets of programs of `all` and of another cut of the same step.
void mixed(subject const& s, std::vector<program> const& others, sets& out) {
  std::vector<program> const& all = s.segments;
  program const& first = *s.find(segment::first);
  program const* const middle = s.find(segment::middle);
  program const& last = *s.find(segment::last);
  for (program const& other : others) {
    if (schedule::whole(other.part)) {
      std::vector<program> more = all;
      more.push_back(other);
      out.refused(other.part == segment::step ? "first and step" : "first and resume", s, more);
      more.erase(more.begin());
      out.refused("a whole step without first", s, more);
    } else if (other.part == segment::first && other.micro_batches != first.micro_batches) {
      out.refused("another cut's first", s, with(all, other));
      std::vector<program> more = all;
      more.push_back(other);
      out.refused("firsts of two sizes", s, more);
    } else if (other.part == segment::first_resumed && other.micro_batches != first.micro_batches) {
      out.refused("another cut's resumed", s, with(all, other));
    } else if (other.part == segment::middle && middle != nullptr && other != *middle) {
      out.refused("another cut's middle", s, with(all, other));
    } else if (other.part == segment::middle && middle == nullptr) {
      std::vector<program> more = all;
      more.push_back(other);
      out.refused("a middle too many", s, more);
    } else if (other.part == segment::last && other.micro_batches != last.micro_batches) {
      out.refused("another cut's last", s, with(all, other));
    }
  }
}

/// A middle that runs more or fewer times than its step needs.
void miscounted(subject const& s, sets& out) {
  program const* const middle = s.find(segment::middle);
  if (middle == nullptr) {
    return;
  }
  program q = *middle;
  ++q.times;
  out.refused("middle once more", s, with(s.segments, q));
  q.times -= 2;
  out.refused("middle once less", s, with(s.segments, q));
}

TEST_CASE("a set of programs that isn't all of a step, once, is refused") {
  sets out;
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(400); ++seed) {
    CAPTURE(seed);
    subject s = make_subject(seed);
    lacking(s, out);
    miscounted(s, out);
    auto const all = static_cast<std::uint32_t>(s.facts.job.accumulate);
    mixed(s, compile_all(s, all), out);
    mixed(s, compile_all(s, s.dice.between32(1, all - 1)), out);
  }
  out.print_all(test::scaled(400) / 20);
}

/// Micro-batch by micro-batch: whether the programs are those of one way to run steps.
bool adds_up(subject const& s, std::vector<program> const& all) {
  std::map<segment, program const*> by;
  for (program const& p : all) {
    if (!by.emplace(p.part, &p).second) {
      return false;
    }
  }
  auto const runs = [&](segment part, std::uint64_t& done) {
    if (!by.contains(part)) {
      return true;
    }
    program const& p = *by.at(part);
    bool const fits = p.before == done;
    done += std::uint64_t{p.micro_batches} * p.times;
    return fits;
  };
  bool any = false;
  for (segment const part :
       {segment::step, segment::resume, segment::first, segment::first_resumed}) {
    if (by.contains(part)) {
      std::uint64_t done = 0;
      bool const adjacent =
          runs(part, done) && runs(segment::middle, done) && runs(segment::last, done);
      if (!adjacent || done != s.facts.job.accumulate) {
        return false;
      }
      any = true;
    }
  }
  return any || (!by.contains(segment::middle) && !by.contains(segment::last));
}

/// Removes, adds or exchanges a program.
void edit(subject& s, std::vector<program>& all, std::vector<program> const& others) {
  program const& other = others[s.dice.between(0, others.size() - 1)];
  if (s.dice.chance(40) && !all.empty()) {
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(s.dice.between(0, all.size() - 1)));
  } else if (s.dice.chance(50)) {
    all = with(all, other);
  } else {
    all.push_back(other);
  }
}

TEST_CASE("random sets are accepted exactly where micro-batches add up") {
  std::array<std::uint64_t, 2> met{};
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(800); ++seed) {
    CAPTURE(seed);
    subject s = make_subject(seed);
    auto const most = static_cast<std::uint32_t>(s.facts.job.accumulate);
    std::vector<program> all = s.segments;
    for (std::uint64_t edits = s.dice.between(0, 3); edits > 0; --edits) {
      edit(s, all, compile_all(s, s.dice.between32(1, most)));
    }
    shuffle(s.dice, all);
    bool const right = adds_up(s, all);
    schedule::verdict const v = s.verify_all(all);
    CAPTURE(v.what);
    CHECK(v.ok == right);
    CHECK((v.ok || v.reason == rejection::malformed));
    ++met[right ? 1 : 0];
  }
  CHECK(met[0] > test::scaled(800) / 8);
  CHECK(met[1] > test::scaled(800) / 8);
}

}  // namespace

}  // namespace cut_sets_test
