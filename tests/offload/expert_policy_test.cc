// Experts that stay, against a simulation that keeps every choice and sorts at every step.
#include "offload/experts/expert_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace canopy {
namespace {

constexpr int kExperts = 24, kActive = 3;
using Row = std::vector<std::int32_t>;

/// A row's experts: few of them are popular, and which ones changes slowly.
Row choose(std::mt19937& random, int topic) {
  std::set<std::int32_t> row;
  while (row.size() < kActive) {
    const double draw = std::uniform_real_distribution<>()(random);
    row.insert((static_cast<std::int32_t>(kExperts * draw * draw * draw) + topic) % kExperts);
  }
  return {row.begin(), row.end()};
}

std::vector<ExpertDemand> demands_of(const std::vector<Row>& rows) {
  std::map<std::int32_t, int> counts;
  for (const Row& row : rows)
    for (const std::int32_t e : row) ++counts[e];
  std::vector<ExpertDemand> demands;
  for (const auto& [expert, count] : counts) demands.push_back({expert, count});
  return demands;
}

/// One layer, from its whole history.
class Simulation {
 public:
  explicit Simulation(std::size_t quota) : quota_(quota) {}

  std::size_t hits_of(const std::vector<Row>& rows) {
    ++time_;
    std::vector<ExpertDemand> missed;
    std::set<std::int32_t> stay;
    for (const ExpertDemand& demand : demands_of(rows)) {
      last_[demand.expert] = time_;
      if (stay_.count(demand.expert) > 0)
        stay.insert(demand.expert);
      else
        missed.push_back(demand);
    }
    const std::size_t hits = stay.size();
    std::sort(missed.begin(), missed.end(), [](const auto& a, const auto& b) {
      return a.rows != b.rows ? a.rows > b.rows : a.expert < b.expert;
    });
    for (const ExpertDemand& demand : missed)
      if (stay.size() < quota_) stay.insert(demand.expert);
    std::vector<std::int32_t> others;
    for (const std::int32_t e : stay_)
      if (last_[e] != time_) others.push_back(e);
    sort(others);
    for (const std::int32_t e : others)
      if (stay.size() < quota_) stay.insert(e);
    stay_ = stay;
    return hits;
  }
  void credit(const Row& row) { history_.push_back(row); }
  void set_quota(std::size_t quota) {
    std::vector<std::int32_t> stay(stay_.begin(), stay_.end());
    sort(stay);
    stay.resize(std::min(stay.size(), quota));
    stay_ = {stay.begin(), stay.end()};
    quota_ = quota;
  }

 private:
  void sort(std::vector<std::int32_t>& experts) {  // the first to leave last
    std::sort(experts.begin(), experts.end(), [&](std::int32_t a, std::int32_t b) {
      if (frequency(a) != frequency(b)) return frequency(a) > frequency(b);
      return last_[a] != last_[b] ? last_[a] > last_[b] : a < b;
    });
  }
  double frequency(std::int32_t expert) const {
    double sum = 0;
    for (const Row& row : history_) {
      sum *= std::exp2(-1 / ExpertPolicy::kHalfLife);
      for (const std::int32_t e : row) sum += e == expert ? 1 : 0;
    }
    return sum;
  }

  std::size_t quota_;
  int time_ = 0;
  std::set<std::int32_t> stay_;
  std::map<std::int32_t, int> last_;
  std::vector<Row> history_;
};

TEST(ExpertPolicy, HitsWhatASimulationOfTheWholeHistoryHits) {
  std::mt19937 random(3);
  for (const int quota : {0, 1, 2, 3, 5, 9, 23, 24}) {
    SCOPED_TRACE(quota);
    ExpertPolicy policy(kExperts, {quota, quota});
    Simulation simulation(static_cast<std::size_t>(quota));
    for (int sweep = 0; sweep < 150; ++sweep) {
      std::vector<Row> rows;
      for (int i = sweep % 10 == 0 ? 20 : 1 + sweep % 3; i > 0; --i)
        rows.push_back(choose(random, sweep / 40));
      const std::vector<ExpertDemand> demands = demands_of(rows);
      const ExpertPolicy::Step step = policy.ask(1, demands);
      ASSERT_EQ(step.hits.size(), simulation.hits_of(rows)) << "sweep " << sweep;
      ASSERT_EQ(step.hits.size() + step.misses.size(), demands.size());
      for (std::size_t kept = 0; kept < rows.size(); kept += 2) {  // the others were rejected
        policy.credit(1, rows[kept]);
        simulation.credit(rows[kept]);
      }
    }
  }
}

TEST(ExpertPolicy, HitsWhatASimulationHitsWhileItsQuotaChanges) {
  std::mt19937 random(9);
  ExpertPolicy policy(kExperts, {6});
  Simulation simulation(6);
  for (int sweep = 0; sweep < 300; ++sweep) {
    const std::vector<Row> rows{choose(random, sweep / 40), choose(random, sweep / 40)};
    ASSERT_EQ(policy.ask(0, demands_of(rows)).hits.size(), simulation.hits_of(rows)) << sweep;
    policy.credit(0, rows[0]);
    simulation.credit(rows[0]);
    if (sweep % 3 != 0) continue;
    const int quota = static_cast<int>(random() % (kExperts + 1));
    policy.set_quota(0, quota);
    simulation.set_quota(static_cast<std::size_t>(quota));
  }
}

TEST(ExpertPolicy, KeepsNoMoreThanAQuotaAndSaysWhoLeaves) {
  std::mt19937 random(5);
  ExpertPolicy policy(kExperts, {7});
  std::set<std::int32_t> stay;
  for (int sweep = 0; sweep < 300; ++sweep) {
    std::vector<Row> rows(static_cast<std::size_t>(1 + sweep % 6));
    for (Row& row : rows) row = choose(random, sweep / 50);
    const ExpertPolicy::Step step = policy.ask(0, demands_of(rows));
    for (const std::int32_t e : step.hits) EXPECT_EQ(stay.count(e), 1u);
    for (const std::int32_t e : step.misses) EXPECT_EQ(stay.count(e), 0u);
    for (const std::int32_t e : step.leaving) EXPECT_EQ(stay.erase(e), 1u);
    for (const std::int32_t e : step.misses)
      if (policy.stays(0, e)) stay.insert(e);
    EXPECT_LE(stay.size(), 7u);
    for (std::int32_t e = 0; e < kExperts; ++e) EXPECT_EQ(policy.stays(0, e), stay.count(e) > 0);
    for (const Row& row : rows) policy.credit(0, row);
  }
}

TEST(ExpertPolicy, ASmallerQuotaKeepsWhatIsChosenMostAndALargerOneWhatComes) {
  ExpertPolicy policy(kExperts, {0, 4});
  for (const Row& row : {Row{1}, Row{5}, Row{5}, Row{9}, Row{9}, Row{9}, Row{2}, Row{2}}) {
    policy.ask(1, demands_of({row}));
    policy.credit(1, row);
  }
  EXPECT_EQ(policy.set_quota(1, 2), (std::vector<std::int32_t>{1, 5}));
  EXPECT_EQ(policy.set_quota(1, 3), std::vector<std::int32_t>{});
  for (const std::int32_t e : {1, 2, 5, 9}) EXPECT_EQ(policy.stays(1, e), e == 2 || e == 9) << e;
  policy.ask(1, demands_of({{7}}));
  for (const std::int32_t e : {2, 7, 9}) EXPECT_TRUE(policy.stays(1, e)) << e;
  EXPECT_EQ(policy.set_quota(1, 0).size(), 3u);
}

TEST(ExpertPolicy, WhatIsChosenOftenOutlivesWhatWasChosenLast) {
  ExpertPolicy policy(kExperts, {2});
  const Row often{4};
  for (int i = 0; i < 5; ++i) {
    policy.ask(0, demands_of({often}));
    policy.credit(0, often);
  }
  for (const std::int32_t once : {7, 9, 11}) {
    policy.ask(0, demands_of({{once}}));
    policy.credit(0, Row{once});
    EXPECT_TRUE(policy.stays(0, 4)) << "after " << once;
  }
  for (int i = 0; i < 200; ++i) policy.credit(0, Row{11});  // and habits change
  policy.ask(0, demands_of({{1}}));
  EXPECT_FALSE(policy.stays(0, 4));
}

/// A sweep whose layers ask for more than all of memory holds: by recency nothing would be found.
TEST(ExpertPolicy, HasNoCliffBelowATokensWorkingSet) {
  constexpr std::size_t kLayers = 20;
  std::mt19937 random(9);
  ExpertPolicy policy(kExperts, share_slots(kLayers, kLayers, kExperts));  // a third of a token's
  std::size_t hits = 0, asked = 0;
  for (int sweep = 0; sweep < 200; ++sweep)
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const Row row = choose(random, static_cast<int>(layer));
      const ExpertPolicy::Step step = policy.ask(layer, demands_of({row}));
      hits += step.hits.size(), asked += row.size();
      policy.credit(layer, row);
    }
  EXPECT_GT(hits * 10, asked);
}

TEST(ExpertPolicy, LayersShareSlotsEvenly) {
  EXPECT_EQ(share_slots(0, 3, 8), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(share_slots(11, 3, 8), (std::vector<int>{4, 4, 3}));
  EXPECT_EQ(share_slots(100, 3, 8), (std::vector<int>{8, 8, 8}));
}

}  // namespace
}  // namespace canopy
