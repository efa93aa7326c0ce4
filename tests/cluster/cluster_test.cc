#include "src/cluster/cluster.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>

#include "src/cluster/agreement.h"
#include "tests/cluster/thread_ranks.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

/// Rows of columns whose values say where they are, of all ranks or of one.
std::vector<float> columns(std::int64_t rows, std::int64_t width, RowRange of, float seed) {
  std::vector<float> values(static_cast<std::size_t>(rows * width), -1.0f);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = of.first; j < of.first + of.count; ++j)
      values[static_cast<std::size_t>(i * width + j)] = seed + static_cast<float>(i * width + j);
  return values;
}
TensorView view(std::vector<float>& values, std::int64_t rows, std::int64_t width) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32, {rows, width}};
}

TEST(Share, CoversEachRowOnceByBlocksInProportion) {
  for (const std::int64_t total : {1, 64, 127, 128, 129, 192, 576, 1000, 28'672, 128'256})
    for (const std::vector<std::int64_t>& parts : {std::vector<std::int64_t>{1},
                                                   {1, 1},
                                                   {2, 1, 1},
                                                   {1, 1, 1, 1},
                                                   {7, 1, 3, 1, 1, 1, 1, 1, 1}}) {
      SCOPED_TRACE(total);
      std::int64_t next = 0;
      const std::int64_t all = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
      for (int rank = 0; rank < static_cast<int>(parts.size()); ++rank) {
        const RowRange rows = Share{rank, parts}.own(total);
        EXPECT_EQ(rows.first, next);
        EXPECT_TRUE(rows.first % 128 == 0 || rows.count == 0) << rows.first;
        EXPECT_NEAR(static_cast<double>(rows.count),
                    static_cast<double>(total * parts[static_cast<std::size_t>(rank)]) /
                        static_cast<double>(all),
                    128.0);
        next += rows.count;
      }
      EXPECT_EQ(next, total);
    }
}

TEST(Share, RefusesRanksAndPartsThatCannotBe) {
  EXPECT_NE(error_of([] { require_valid(Share{2, {1, 1}}); }), "");
  EXPECT_NE(error_of([] { require_valid(Share{0, {1, 0}}); }), "");
  EXPECT_EQ(error_of([] { require_valid(Share{1, {3, 1}}); }), "");
}

TEST(Cluster, GathersColumnsOfAllRanks) {
  for (const std::vector<std::int64_t>& parts :
       {std::vector<std::int64_t>{1}, {1, 1}, {2, 1}, {1, 1, 1}, {1, 3, 1, 2}}) {
    const auto errors = on_ranks(parts, [](Cluster& cluster) {
      for (int turn = 0; turn < 20; ++turn) {
        const std::int64_t rows = 1 + turn % 5;
        // A wide one; one too narrow for all ranks to have columns of it.
        auto wide = columns(rows, 700, cluster.share().own(700), 1.0f);
        auto narrow = columns(rows, 60, cluster.share().own(60), 9.0f);
        const std::array ys{view(wide, rows, 700), view(narrow, rows, 60)};
        cluster.gather(Ranks::To::kAll, ys, {});
        EXPECT_EQ(wide, columns(rows, 700, {0, 700}, 1.0f));
        EXPECT_EQ(narrow, columns(rows, 60, {0, 60}, 9.0f));
      }
      EXPECT_EQ(cluster.totals().exchanges, 20u);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(Cluster, BringsFiguresOfAllRanksToTheFirst) {
  const auto errors = on_ranks({1, 2, 1}, [](Cluster& cluster) {
    const auto rank = static_cast<std::uint64_t>(cluster.share().rank);
    auto y = columns(2, 1024, cluster.share().own(1024), 0.0f);
    const std::array ys{view(y, 2, 1024)};
    std::uint64_t taken = 0;
    const auto bytes_of = [&](std::size_t of) { return cluster.figures()[of].disk_bytes; };
    cluster.bring_figures([&] { return RankFigures{100 * rank + ++taken, Seconds(1)}; });
    for (std::uint64_t turn = 1; turn <= 3; ++turn) {
      cluster.gather(Ranks::To::kAll, ys, {});
      cluster.gather(Ranks::To::kFirst, ys, {});
      EXPECT_EQ(taken, turn) << "with columns for all there are none";
      for (std::size_t of = 0; rank == 0 && of < 3; ++of) EXPECT_EQ(bytes_of(of), 100 * of + turn);
    }
    EXPECT_EQ(y, columns(2, 1024, {0, 1024}, 0.0f));
    cluster.bring_figures({});
    EXPECT_EQ(bytes_of(0), 0u);
    cluster.gather(Ranks::To::kFirst, ys, {});
    EXPECT_EQ(taken, 3u);
    EXPECT_EQ(bytes_of(2), 0u);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Cluster, GathersToTheFirstAlone) {
  const auto errors = on_ranks({1, 1, 1}, [](Cluster& cluster) {
    const RowRange own = cluster.share().own(1024);
    auto y = columns(2, 1024, own, 0.0f);
    const std::array ys{view(y, 2, 1024)};
    cluster.gather(Ranks::To::kFirst, ys, {});
    const bool first = cluster.share().rank == 0;
    EXPECT_EQ(y, columns(2, 1024, first ? RowRange{0, 1024} : own, 0.0f));
    EXPECT_EQ(cluster.totals().bytes_sent,
              first ? 0u : 2u * static_cast<std::uint64_t>(own.count) * sizeof(float));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Cluster, SendsEachColumnOnceToEachOtherRank) {
  on_ranks({1, 1, 1}, [](Cluster& cluster) {
    auto y = columns(4, 768, cluster.share().own(768), 0.0f);
    const std::array ys{view(y, 4, 768)};
    cluster.gather(Ranks::To::kAll, ys, {});
    EXPECT_EQ(cluster.totals().bytes_sent, 2u * 4 * 256 * sizeof(float));
  });
}

TEST(Cluster, AnnouncesAndCollects) {
  const auto errors = on_ranks({1, 1, 1}, [](Cluster& cluster) {
    const int rank = cluster.share().rank;
    const std::string words = rank == 0 ? "a tree" : "nothing of interest";
    const auto heard = cluster.announce(std::as_bytes(std::span(words)));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(heard.data()), heard.size()), "a tree");
    EXPECT_EQ(cluster.announce({}).size(), 0u);
    const std::string mine(static_cast<std::size_t>(rank), 'x');
    const auto all = cluster.collect(std::as_bytes(std::span(mine)));
    ASSERT_EQ(all.size(), 3u);
    for (std::size_t of = 0; of < 3; ++of) EXPECT_EQ(all[of].size(), of);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Cluster, StopsEveryRankAtTheSameExchangeWhereOneIsAskedTo) {
  std::atomic<int> stopped = 0;
  on_ranks({1, 1, 1}, [&](Cluster& cluster) {
    std::stop_source source;
    auto y = columns(1, 600, {0, 600}, 0.0f);
    const std::array ys{view(y, 1, 600)};
    for (int turn = 0; turn < 10; ++turn) {
      if (cluster.share().rank == 1 && turn == 6) source.request_stop();
      try {
        cluster.gather(Ranks::To::kAll, ys, source.get_token());
      } catch (const Stopped&) {
        EXPECT_EQ(turn, 6);
        ++stopped;
        return;
      }
    }
  });
  EXPECT_EQ(stopped, 3);
}

TEST(Cluster, ThrowsWhatOneRankHasThrownOnAllOfThem) {
  for (int failing = 0; failing < 3; ++failing)
    for (int at = 0; at < 4; ++at) {
      SCOPED_TRACE(testing::Message() << "rank " << failing << " at exchange " << at);
      const auto start = Clock::now();
      const auto errors = on_ranks({1, 1, 1}, [&](Cluster& cluster) {
        auto y = columns(3, 1000, {0, 1000}, 0.0f);
        const std::array ys{view(y, 3, 1000)};
        for (int turn = 0; turn < 4; ++turn) {
          if (cluster.share().rank == failing && turn == at) throw Error("the disk is gone");
          if (turn == 2)
            cluster.collect({});
          else
            cluster.gather(Ranks::To::kAll, ys, {});
        }
        cluster.collect({});
      });
      for (const std::string& error : errors)
        EXPECT_NE(error.find("the disk is gone"), std::string::npos) << error;
      EXPECT_LT(since(start), Seconds(10));  // no timeout has to end
    }
}

TEST(Cluster, NamesARankThatHasEndedWhileOthersGoOn) {
  const auto errors = on_ranks({1, 1}, [](Cluster& cluster) {
    if (cluster.share().rank == 0) cluster.collect({});
  });
  EXPECT_NE(errors[0].find("rank 1 (this process) has ended"), std::string::npos) << errors[0];
  EXPECT_EQ(errors[1], "");
}

TEST(Cluster, NamesARankThatIsOutOfStepOrHasAnotherShare) {
  auto errors = on_ranks({1, 1}, [](Cluster& cluster) {
    auto y = columns(cluster.share().rank + 1, 256, {0, 256}, 0.0f);
    const std::array ys{view(y, cluster.share().rank + 1, 256)};
    cluster.gather(Ranks::To::kAll, ys, {});
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("is out of step"), std::string::npos) << error;
  errors = on_ranks({1, 1}, [](Cluster& cluster) {
    if (cluster.share().rank == 0)
      cluster.announce({});
    else
      cluster.collect({});
  });
  EXPECT_NE(errors[1].find("sent an announcement as exchange 0 where an answer"), std::string::npos)
      << errors[1];
}

/// A transport whose rank falls silent: nothing leaves it any more, signs of life included.
class SilentAfter final : public Transport {
 public:
  SilentAfter(std::unique_ptr<Transport> to, int messages) : to_(std::move(to)), left_(messages) {}
  int rank() const override { return to_->rank(); }
  int ranks() const override { return to_->ranks(); }
  std::string host(int rank) const override { return to_->host(rank); }
  void send(int to, const Message& message) override {
    if (left_-- > 0) to_->send(to, message);
  }
  bool receive(int from, MessageBytes& into) override { return to_->receive(from, into); }
  std::optional<int> unsent() override { return to_->unsent(); }
  void abort() noexcept override { to_->abort(); }

 private:
  std::unique_ptr<Transport> to_;
  int left_;
};

TEST(Cluster, EndsWithinTheTimeoutWhereARankFallsSilent) {
  const ClusterOptions options{Seconds(0.2), Seconds(0.05)};
  const auto start = Clock::now();
  const auto errors = on_ranks(
      {1, 1, 1},
      [](Cluster& cluster) {
        while (true) cluster.collect({});
      },
      options, 128,
      [](std::unique_ptr<Transport> transport) -> std::unique_ptr<Transport> {
        if (transport->rank() != 1) return transport;
        return std::make_unique<SilentAfter>(std::move(transport), 8);
      });
  EXPECT_LT(since(start), Seconds(20));
  bool named = false;
  for (const int rank : {0, 2}) {
    const std::string& error = errors[static_cast<std::size_t>(rank)];
    EXPECT_NE(error, "");
    named |= error.find("rank 1 (this process) did not answer for 0.2 s") != std::string::npos;
  }
  EXPECT_TRUE(named) << errors[0] << errors[2];
  EXPECT_NE(errors[1], "");
}

TEST(Cluster, WaitsForARankThatIsBusyForLongerThanTheTimeout) {
  const auto errors = on_ranks({1, 1},
                               [](Cluster& cluster) {
                                 if (cluster.share().rank == 0)
                                   std::this_thread::sleep_for(Seconds(3));
                                 cluster.announce({});
                                 cluster.collect({});
                               },
                               {Seconds(2), Seconds(0.1)});
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

/// An agreement of two ranks, the second of which has these values.
std::vector<std::string> agreement(const std::vector<SharedFact>& of_second) {
  return on_ranks({1, 1}, [&](Cluster& cluster) {
    const std::vector<SharedFact> first{{"model", "abc"}, {"shares", "1,1"}};
    agree(cluster, cluster.share().rank == 0 ? first : of_second);
  });
}

TEST(Cluster, NamesTheFactThatRanksDoNotAgreeOn) {
  for (const std::string& error : agreement({{"model", "abc"}, {"shares", "1,1"}}))
    EXPECT_EQ(error, "");
  for (const std::string& error : agreement({{"model", "abc"}, {"shares", "2,1"}}))
    EXPECT_NE(error.find("shares is 1,1 on rank 0 (this process) and 2,1 on rank 1"),
              std::string::npos)
        << error;
  for (const std::string& error : agreement({{"model", "abc"}}))
    EXPECT_NE(error.find("do not agree"), std::string::npos) << error;
  for (const std::string& error : agreement({{"model", ""}, {"shares", "1,1"}}))
    EXPECT_NE(error.find("model is abc"), std::string::npos) << error;
}

TEST(Cluster, PassesAnErrorOnWithItsCode) {
  const auto errors = on_ranks({1, 1, 1}, [](Cluster& cluster) {
    if (cluster.share().rank == 1) return static_cast<void>(cluster.leave("the disk is full", 2));
    EXPECT_NE(error_of([&] { cluster.collect({}); }), "");
    ASSERT_TRUE(cluster.failure());
    EXPECT_EQ(cluster.failure()->text, "rank 1 (this process): the disk is full");
    EXPECT_EQ(cluster.failure()->code, 2);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Cluster, MeasuresItsNetwork) {
  for (const std::string& error : on_ranks({1, 1, 1}, [](Cluster& cluster) {
         cluster.measure();
         EXPECT_GT(cluster.speed().latency.count(), 0);
         EXPECT_GT(cluster.speed().bytes_per_second, 0);
       }))
    EXPECT_EQ(error, "");
}

TEST(Cluster, KnowsTheRankThatIsWaitedForLongest) {
  constexpr Seconds kLate{0.05};
  for (const std::string& error : on_ranks({1, 1, 1}, [&](Cluster& cluster) {
         std::vector<float> y(3 * 128);
         const std::vector<TensorView> ys{
             {reinterpret_cast<std::byte*>(y.data()), DType::kF32, {1, 3 * 128}}};
         if (cluster.share().rank == 2) std::this_thread::sleep_for(kLate);
         cluster.gather(Ranks::To::kAll, ys, {});
         if (cluster.share().rank == 2) return;
         EXPECT_EQ(cluster.totals().slowest(), 2);
         EXPECT_GT(cluster.totals().waited[2], kLate / 2);
       }))
    EXPECT_EQ(error, "");
}

TEST(Cluster, RefusesAShareThatIsNotOfItsTransport) {
  auto transports = make_thread_transports(2);
  EXPECT_NE(error_of([&] { Cluster(std::move(transports[0]), Share{1, {1, 1}}); }), "");
  EXPECT_NE(error_of([&] { Cluster(std::move(transports[1]), Share{0, {1}}); }), "");
}

}  // namespace
}  // namespace canopy
