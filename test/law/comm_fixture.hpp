// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks for the laws of a communicator: one thread each, whose collectives are called directly or
// as tasks of a device of its own.

#include "protrain/core/queue.hpp"
#include "protrain/device/device.hpp"
#include "protrain/device/host/host_device.hpp"

#include <cstdint>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace protrain::test {

/// Calls collectives on the rank's own thread.
template <class Comm>
class direct_member {
 public:
  explicit direct_member(Comm& c) : comm_(c) {}
  Comm& comm() { return comm_; }

  template <class F>
  void on(queue_id q, F f) {
    f(device::queue_ref{.id = q});
  }
  template <class F, class G>
  void at_once(queue_id a, F f, queue_id b, G g) {
    std::thread other([&] { f(device::queue_ref{.id = a}); });
    g(device::queue_ref{.id = b});
    other.join();
  }

 private:
  Comm& comm_;
};

/// Calls collectives inside tasks of a host device.
template <class Comm>
class host_member {
 public:
  explicit host_member(Comm& c) : comm_(c) {}
  Comm& comm() { return comm_; }

  template <class F>
  void on(queue_id q, F f) {
    submit(q, f);
    device_.synchronize();
  }
  template <class F, class G>
  void at_once(queue_id a, F f, queue_id b, G g) {
    submit(a, f);
    submit(b, g);
    device_.synchronize();
  }

 private:
  template <class F>
  void submit(queue_id q, F& f) {
    device_.submit(q,
                   {},
                   {[](void* context, std::uint32_t, device::queue_ref queue) {
                      (*static_cast<F*>(context))(queue);
                    },
                    &f,
                    0});
  }

  Comm& comm_;
  device::host_device device_{};
};

/// Runs `body(member)` on every rank of a group and rethrows what the first failing rank threw. A
/// group has `ranks` and `make(rank)`.
template <class Group, template <class> class Member>
struct on_ranks {
  static constexpr std::uint32_t ranks = Group::ranks;

  template <class Body>
  static void run(Body body) {
    Group group;
    std::vector<std::exception_ptr> failures(ranks);
    std::vector<std::thread> all;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      all.emplace_back([&, r] {
        auto c = group.make(r);
        try {
          Member<decltype(c)> m(c);
          body(m);
        } catch (...) {
          failures[r] = std::current_exception();
          c.abort("the test's body threw");
        }
      });
    }
    for (std::thread& t : all) {
      t.join();
    }
    for (std::exception_ptr const& f : failures) {
      if (f != nullptr) {
        std::rethrow_exception(f);
      }
    }
  }
};

}  // namespace protrain::test
