// SPDX-License-Identifier: Apache-2.0
// The laws over every way to hold masters and every type of gradients, and over foreign ones.

#include "protrain/optim/master.hpp"

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float16.hpp"
#include "test/law/gradient_element.hpp"
#include "test/law/master_arrays.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace master_test {

namespace {

using namespace protrain;

/// Memory for `n` elements of a model that ships.
template <class M>
struct memory_of;
template <>
struct memory_of<optim::whole_master> {
  explicit memory_of(std::size_t n) : value(n, 0.0F) {}
  optim::whole_master arrays() { return {value.data()}; }
  std::vector<float> value;
};
template <>
struct memory_of<optim::split_halves> {
  explicit memory_of(std::size_t n) : hi(n, bfloat16{}), lo(n, 0) {}
  optim::split_halves arrays() { return {hi.data(), lo.data()}; }
  std::vector<bfloat16> hi;
  std::vector<std::int16_t> lo;
};
template <class T>
struct memory_of<optim::master_beside<T>> {
  explicit memory_of(std::size_t n) : master(n, 0.0F), value(n, T{}) {}
  optim::master_beside<T> arrays() { return {master.data(), value.data()}; }
  std::vector<float> master;
  std::vector<T> value;
};
template <class T>
struct memory_of<optim::value_alone<T>> {
  explicit memory_of(std::size_t n) : value(n, T{}) {}
  optim::value_alone<T> arrays() { return {value.data()}; }
  std::vector<T> value;
};

/// The least that holds masters: one function's worth of memory.
struct archetype {
  explicit archetype(std::size_t) {}
  struct model {
    std::map<std::size_t, float>* held;
    float load(std::size_t i) const noexcept { return held->at(i); }
    void store(std::size_t i, float x) const noexcept { (*held)[i] = x; }
  };
  model arrays() { return {&held}; }
  std::map<std::size_t, float> held{};
};

/// Holds masters back to front, from a value of its own.
struct reversed {
  explicit reversed(std::size_t n) : value(n, 0.0F) {}
  struct model {
    float* last;
    float load(std::size_t i) const noexcept { return *(last - i); }
    void store(std::size_t i, float x) const noexcept { *(last - i) = x; }
  };
  model arrays() { return {&value.back()}; }
  std::vector<float> value;
};

/// Breaks a law: neighbours share.
struct shared {
  explicit shared(std::size_t n) : value(n, 0.0F) {}
  struct model {
    float* at;
    float load(std::size_t i) const noexcept { return at[i / 2]; }
    void store(std::size_t i, float x) const noexcept { at[i / 2] = x; }
  };
  model arrays() { return {value.data()}; }
  std::vector<float> value;
};

/// Eighths in a byte: a foreign type of gradients.
struct eighths {
  std::int8_t count = 0;
  bool operator==(eighths const&) const = default;
};
float widen(eighths x) noexcept { return static_cast<float>(x.count) / 8; }

/// Breaks the law: pairs of values widen to one.
struct halved {
  std::int8_t count = 0;
  bool operator==(halved const&) const = default;
};
float widen(halved x) noexcept { return static_cast<float>(x.count / 2); }

/// Breaks the law: zeros are none.
struct shifted {
  std::int8_t count = 0;
  bool operator==(shifted const&) const = default;
};
float widen(shifted x) noexcept { return static_cast<float>(x.count + 1); }

TEST_CASE_TEMPLATE_INVOKE(test::master_laws,
                          memory_of<optim::whole_master>,
                          memory_of<optim::split_halves>,
                          memory_of<optim::master_beside<bfloat16>>,
                          memory_of<optim::master_beside<float16>>,
                          memory_of<optim::value_alone<float>>,
                          archetype,
                          reversed);
TEST_CASE_TEMPLATE_INVOKE(test::gradient_laws, float, bfloat16, float16, eighths);

TEST_CASE("arrays that break a law are found out, and a frozen value is no master") {
  CHECK(test::broken_master_law<shared>() == "element i is element i");
  std::string const lossy = "what was stored loads with the same bits";
  CHECK(test::broken_master_law<memory_of<optim::value_alone<bfloat16>>>() == lossy);
  CHECK(test::broken_master_law<memory_of<optim::value_alone<float16>>>() == lossy);
}

TEST_CASE("gradients that break their law are found out") {
  CHECK(test::broken_gradient_law<halved>() == "widen is exact");
  CHECK(test::broken_gradient_law<shifted>() == "a buffer of zeros holds zeros");
}

}  // namespace

}  // namespace master_test
