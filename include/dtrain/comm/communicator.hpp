// The contract of communicators: one concept per collective, and Communicator for all of them.
//
// A call posts the operation and returns a handle; the buffers given to it belong to the communicator until the
// handle's wait() returns, and data may move anywhere in between. Posting never waits for another rank, so a rank may
// post several operations and then wait. Collectives of one communicator complete in the order they were posted,
// messages between two ranks in theirs; a send completes only once its receive is posted. Different communicators
// of one rank are independent of each other.
//
// All ranks make the same calls in the same order. Where they do not (kind, element type, count, reduction, root),
// every rank gets a CommunicationError that names two calls and their ranks, and no data has moved. Every wait ends:
// with TimeoutError at the communicator's deadline, with AbortedError when another rank failed.
//
// `counts` are elements per rank, the same list on all ranks; any of them may be zero. In reduce_scatter the output may
// be the rank's own shard of its input, in all_gather the input may be the rank's own shard of its output; other
// overlaps are errors. A communicator is used by one thread at a time.
#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "dtrain/comm/element_type.hpp"
#include "dtrain/comm/reduction.hpp"

namespace dtrain::comm {

/// What a call returns. Destroying it without wait() completes the operation, or gives it up when an exception is on
/// its way; neither throws, and neither takes longer than the deadline.
template <class H>
concept PendingOperation = std::movable<H> && !std::copyable<H> && std::is_nothrow_move_constructible_v<H> &&
                           std::is_nothrow_destructible_v<H> && requires(H handle) {
                             { handle.wait() } -> std::same_as<void>;
                           };

/// A numbered member of a named group.
template <class C>
concept Ranked = PendingOperation<typename C::Handle> && requires(const C& communicator) {
  { communicator.rank() } -> std::same_as<int>;
  { communicator.size() } -> std::same_as<int>;
  { communicator.name() } -> std::convertible_to<std::string_view>;
};

/// `all_reduce(data, reduction)`: every rank's data becomes the reduction over all ranks, with the same bits
/// everywhere.
template <class C, class T = float>
concept AllReduces = Ranked<C> && Reducible<T> && requires(C& communicator, std::span<T> data) {
  { communicator.all_reduce(data) } -> std::same_as<typename C::Handle>;
  { communicator.all_reduce(data, Reduction::maximum) } -> std::same_as<typename C::Handle>;
};

/// `reduce_scatter(input, output[, counts], reduction)`: rank r's output is shard r of the reduction of all inputs.
template <class C, class T = float>
concept ReducesScatter =
    Ranked<C> && Reducible<T> &&
    requires(C& communicator, std::span<const T> input, std::span<T> output, std::span<const Index> counts) {
      { communicator.reduce_scatter(input, output) } -> std::same_as<typename C::Handle>;
      { communicator.reduce_scatter(input, output, Reduction::sum) } -> std::same_as<typename C::Handle>;
      { communicator.reduce_scatter(input, output, counts) } -> std::same_as<typename C::Handle>;
      { communicator.reduce_scatter(input, output, counts, Reduction::sum) } -> std::same_as<typename C::Handle>;
    };

/// `all_gather(input, output[, counts])`: every output is the inputs of all ranks, one after the other.
template <class C, class T = float>
concept AllGathers =
    Ranked<C> && Movable<T> &&
    requires(C& communicator, std::span<const T> input, std::span<T> output, std::span<const Index> counts) {
      { communicator.all_gather(input, output) } -> std::same_as<typename C::Handle>;
      { communicator.all_gather(input, output, counts) } -> std::same_as<typename C::Handle>;
    };

/// `broadcast(data, root)`: every rank's data becomes the root's.
template <class C, class T = float>
concept Broadcasts = Ranked<C> && Movable<T> && requires(C& communicator, std::span<T> data, int root) {
  { communicator.broadcast(data, root) } -> std::same_as<typename C::Handle>;
};

/// `all_to_all(input, output[, send_counts, receive_counts])`: block p of rank r's input becomes block r of rank p's
/// output.
template <class C, class T = float>
concept AllToAlls = Ranked<C> && Movable<T> &&
                    requires(C& communicator, std::span<const T> input, std::span<T> output,
                             std::span<const Index> send_counts, std::span<const Index> receive_counts) {
                      { communicator.all_to_all(input, output) } -> std::same_as<typename C::Handle>;
                      {
                        communicator.all_to_all(input, output, send_counts, receive_counts)
                      } -> std::same_as<typename C::Handle>;
                    };

/// `send(data, to)` and `receive(data, from)`: post all messages of an exchange, then wait for them in any order.
template <class C, class T = float>
concept SendsReceives =
    Ranked<C> && Movable<T> && requires(C& communicator, std::span<const T> input, std::span<T> output, int peer) {
      { communicator.send(input, peer) } -> std::same_as<typename C::Handle>;
      { communicator.receive(output, peer) } -> std::same_as<typename C::Handle>;
    };

/// `barrier()`: completes once every rank has called it.
template <class C>
concept HasBarrier = Ranked<C> && requires(C& communicator) {
  { communicator.barrier() } -> std::same_as<typename C::Handle>;
};

/// `split(color, key, name)`: collective and blocking; the ranks of one color form a communicator, numbered by key and
/// then by rank. A negative color belongs to none.
template <class C>
concept Splits = Ranked<C> && requires(C& communicator, int color, int key, std::string_view name) {
  { communicator.split(color, key, name) } -> std::same_as<std::optional<C>>;
};

/// `abort(reason)`: frees every waiter of every group that came from the same world.
template <class C>
concept Aborts = Ranked<C> && requires(C& communicator, std::string_view reason) { communicator.abort(reason); };

/// Everything a program may need of the ranks along one axis.
template <class C>
concept Communicator = AllReduces<C> && ReducesScatter<C> && AllGathers<C> && Broadcasts<C> && AllToAlls<C> &&
                       SendsReceives<C> && HasBarrier<C> && Splits<C> && Aborts<C>;

/// Waits for several handles, in the order given.
template <class... Handles>
  requires(PendingOperation<std::remove_cvref_t<Handles>> && ...)
void wait_all(Handles&&... handles) {
  (handles.wait(), ...);
}

}  // namespace dtrain::comm
