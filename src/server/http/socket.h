#pragma once
#include <boost/asio/buffer.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <cstddef>
#include <utility>

#include "src/base/file.h"

namespace canopy::http {

/// One end of a TCP connection, whose reads and writes fail after a while: a stream in the sense of
/// Asio (SyncReadStream, SyncWriteStream). One thread, but for shut_down().
class Socket {
 public:
  explicit Socket(UniqueFd descriptor) : descriptor_(std::move(descriptor)) {}

  /// Each read or write that begins from now on fails with timed_out where no byte moves for so
  /// long.
  void give_up_after(std::chrono::milliseconds idle) { idle_ = idle; }
  /// The other end has closed the connection. Takes no byte from it.
  bool peer_gone() const;
  /// Reads and writes end at once, here and at the other end. Any thread.
  void shut_down() const;
  /// Closes the sending half, and takes what the other end still sends, until it has ended or
  /// nothing came for `idle`, or `longest` is over. Closed before, a connection is reset, and the
  /// other end may lose what was sent to it last.
  void linger(std::chrono::milliseconds idle, std::chrono::milliseconds longest);
  void close() { descriptor_ = UniqueFd(); }

  template <class Buffers>
  std::size_t read_some(const Buffers& buffers, boost::system::error_code& error) {
    const boost::asio::mutable_buffer first = *boost::asio::buffer_sequence_begin(buffers);
    return read(first.data(), first.size(), error);
  }
  template <class Buffers>
  std::size_t write_some(const Buffers& buffers, boost::system::error_code& error) {
    for (auto at = boost::asio::buffer_sequence_begin(buffers);
         at != boost::asio::buffer_sequence_end(buffers); ++at) {
      const boost::asio::const_buffer buffer = *at;
      if (buffer.size() > 0) return write(buffer.data(), buffer.size(), error);
    }
    error = {};
    return 0;
  }
  // The forms that throw, which the concepts ask for.
  template <class Buffers>
  std::size_t read_some(const Buffers& buffers) {
    boost::system::error_code error;
    const std::size_t n = read_some(buffers, error);
    if (error) throw boost::system::system_error(error);
    return n;
  }
  template <class Buffers>
  std::size_t write_some(const Buffers& buffers) {
    boost::system::error_code error;
    const std::size_t n = write_some(buffers, error);
    if (error) throw boost::system::system_error(error);
    return n;
  }

 private:
  std::size_t read(void* to, std::size_t bytes, boost::system::error_code& error) const;
  std::size_t write(const void* from, std::size_t bytes, boost::system::error_code& error) const;
  bool wait_for(short events, boost::system::error_code& error) const;

  UniqueFd descriptor_;
  std::chrono::milliseconds idle_{30'000};
};

}  // namespace canopy::http
