// The communicator of one rank: nothing to wait for, and nothing left of it in the compiled program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include "dtrain/comm/call_checks.hpp"
#include "dtrain/comm/call_description.hpp"
#include "dtrain/comm/communicator.hpp"
#include "dtrain/core/error.hpp"

namespace dtrain::comm {

/// A group of size one. Reductions leave their data as it is, the others copy input to output where those differ.
/// Wrong counts, roots and peers throw CommunicationError, as with any other communicator; there is nobody to send
/// to, so send and receive always throw.
class Self {
 public:
  /// An operation that is complete already.
  class Handle {
   public:
    Handle() = default;
    Handle(Handle&&) noexcept = default;
    Handle& operator=(Handle&&) noexcept = default;
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    void wait() {}
  };

  [[nodiscard]] static constexpr int rank() { return 0; }
  [[nodiscard]] static constexpr int size() { return 1; }
  [[nodiscard]] static constexpr std::string_view name() { return "self"; }

  template <Reducible T, std::size_t Extent>
  Handle all_reduce(std::span<T, Extent>, Reduction = Reduction::sum,
                    std::source_location = std::source_location::current()) {
    return {};
  }
  template <Reducible T, std::size_t Extent>
  Handle reduce_scatter(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                        Reduction = Reduction::sum, std::source_location where = std::source_location::current()) {
    return copy<T>(Operation::reduce_scatter, input, output, even_shard_fault(input.size(), output.size(), 1), where);
  }
  template <Reducible T, std::size_t Extent>
  Handle reduce_scatter(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                        std::span<const Index> counts, Reduction = Reduction::sum,
                        std::source_location where = std::source_location::current()) {
    return copy<T>(Operation::reduce_scatter, input, output, shard_fault(input.size(), output.size(), counts, 0, 1),
                   where);
  }
  template <Movable T, std::size_t Extent>
  Handle all_gather(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                    std::source_location where = std::source_location::current()) {
    return copy<T>(Operation::all_gather, input, output, even_shard_fault(output.size(), input.size(), 1), where);
  }
  template <Movable T, std::size_t Extent>
  Handle all_gather(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                    std::span<const Index> counts, std::source_location where = std::source_location::current()) {
    return copy<T>(Operation::all_gather, input, output, shard_fault(output.size(), input.size(), counts, 0, 1), where);
  }
  template <Movable T, std::size_t Extent>
  Handle broadcast(std::span<T, Extent>, int root, std::source_location where = std::source_location::current()) {
    refuse(Operation::broadcast, peer_fault(root, 1), where);
    return {};
  }
  template <Movable T, std::size_t Extent>
  Handle all_to_all(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                    std::source_location where = std::source_location::current()) {
    return copy<T>(Operation::all_to_all, input, output, even_block_fault(input.size(), output.size(), 1), where);
  }
  template <Movable T, std::size_t Extent>
  Handle all_to_all(std::span<const std::type_identity_t<T>> input, std::span<T, Extent> output,
                    std::span<const Index> send_counts, std::span<const Index> receive_counts,
                    std::source_location where = std::source_location::current()) {
    std::string fault = block_fault(input.size(), output.size(), send_counts, receive_counts, 1);
    if (fault.empty() && input.size() != output.size())
      fault = concatenate("sends ", input.size(), " elements to itself but expects ", output.size());
    return copy<T>(Operation::all_to_all, input, output, fault, where);
  }
  template <class T, std::size_t Extent>
  Handle send(std::span<T, Extent>, int to, std::source_location where = std::source_location::current()) {
    refuse(Operation::send, concatenate("names rank ", to, " as its peer, but a group of one has no peers"), where);
    return {};
  }
  template <Movable T, std::size_t Extent>
  Handle receive(std::span<T, Extent>, int from, std::source_location where = std::source_location::current()) {
    refuse(Operation::receive, concatenate("names rank ", from, " as its peer, but a group of one has no peers"),
           where);
    return {};
  }
  Handle barrier(std::source_location = std::source_location::current()) { return {}; }

  [[nodiscard]] std::optional<Self> split(int color, int /*key*/, std::string_view /*name*/,
                                          std::source_location = std::source_location::current()) {
    return color < 0 ? std::nullopt : std::optional<Self>(Self{});
  }
  /// There is nobody to free.
  void abort(std::string_view) {}

 private:
  static void refuse(Operation operation, const std::string& fault, const std::source_location& where) {
    if (!fault.empty())
      throw CommunicationError(
          concatenate(operation_name(operation), " at ", place(where), " on communicator 'self' ", fault, "."), where);
  }
  template <class T>
  static Handle copy(Operation operation, std::span<const T> input, std::span<T> output, std::string fault,
                     const std::source_location& where) {
    if (fault.empty()) fault = overlap_fault(std::as_bytes(output), std::as_bytes(input), 0);
    refuse(operation, fault, where);
    if (input.data() != output.data()) std::copy_n(input.data(), input.size(), output.data());
    return {};
  }
};

static_assert(Communicator<Self>);

}  // namespace dtrain::comm
