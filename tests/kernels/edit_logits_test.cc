#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

/// A row's edits by token, and the tokens that are allowed.
struct RowEdits {
  std::map<std::int32_t, LogitEdit> own, shared;
  std::optional<std::vector<bool>> allowed;
};

/// The definition, token by token.
std::vector<float> reference(std::vector<float> row, const RowEdits& edits) {
  for (std::size_t t = 0; t < row.size(); ++t) {
    float& x = row[t];
    if (!std::isfinite(x)) continue;
    if (edits.allowed && !(*edits.allowed)[t]) {
      x = kMaskedLogit;
      continue;
    }
    const auto id = static_cast<std::int32_t>(t);
    const LogitEdit* edit = nullptr;
    if (edits.shared.contains(id)) edit = &edits.shared.at(id);
    if (edits.own.contains(id)) edit = &edits.own.at(id);
    if (edit != nullptr) {
      x += edit->add;
      x = x > 0 ? x / edit->repetition : x * edit->repetition;
      x -= edit->subtract;
    }
    if (edit != nullptr || edits.allowed) x = std::clamp(x, -kMostEdited, kMostEdited);
  }
  return row;
}

class EditLogitsOp : public OnEachDevice {
 protected:
  enum class Where { kInPlace, kElsewhere };

  /// Rows of one text each: `shared` edits are the first row's.
  std::vector<float> edit(const std::vector<float>& logits, const std::vector<RowEdits>& rows,
                          std::size_t words, Where where) {
    std::vector<LogitEdit> edits;
    std::vector<std::uint32_t> bits;
    std::vector<LogitEditRow> table;
    const auto add = [&](const std::map<std::int32_t, LogitEdit>& some) {
      for (const auto& [token, edit] : some) edits.push_back(edit);
      return static_cast<std::int32_t>(edits.size());
    };
    const std::int32_t shared_end = add(rows[0].shared);
    for (const RowEdits& row : rows) {
      LogitEditRow& to = table.emplace_back();
      if (!row.shared.empty()) to.shared_end = shared_end;
      to.first = static_cast<std::int32_t>(edits.size());
      to.end = add(row.own);
      if (!row.allowed) continue;
      to.allowed = static_cast<std::int32_t>(bits.size() / words);
      bits.resize(bits.size() + words);
      for (std::size_t t = 0; t < row.allowed->size(); ++t)
        if ((*row.allowed)[t]) bits[bits.size() - words + t / 32] |= 1u << t % 32;
    }
    const std::int64_t n = dim(logits.size() / rows.size());
    OnDevice from = send(logits), to = send(std::vector<float>(logits.size(), 7.0f));
    OnDevice row_table = send(table), edit_list = send(edits), bit_rows = send(bits);
    LogitEdits call;
    call.row = row_table.view(DType::kI32, {dim(rows.size()), 5});
    call.edit = edit_list.view(DType::kI32, {dim(edits.size()), 4});
    if (!bits.empty())
      call.allowed = bit_rows.view(DType::kU32, {dim(bits.size() / words), dim(words)});
    OnDevice& out = where == Where::kInPlace ? from : to;
    ops().edit_logits(stream(), from.view(DType::kF32, {dim(rows.size()), n}), call,
                      out.view(DType::kF32, {dim(rows.size()), n}));
    return out.read<float>();
  }
};

std::map<std::int32_t, LogitEdit> random_edits(std::size_t vocab, std::size_t count,
                                               std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-3.0f, 3.0f);
  std::map<std::int32_t, LogitEdit> edits;
  while (edits.size() < count) {
    const auto token = static_cast<std::int32_t>(random() % vocab);
    edits[token] = {token, uniform(random), std::exp(uniform(random)), uniform(random)};
  }
  return edits;
}

TEST_P(EditLogitsOp, EqualsPlainLoopsForAnyEditsAndMasks) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    // The vocabulary that edits and masks are for may be larger than that of the logits: a draft's.
    const std::size_t vocab = 5 + random() % 1500, columns = vocab - random() % (vocab / 2);
    const std::size_t count = 1 + random() % 5, words = (vocab + 31) / 32;
    std::vector<RowEdits> rows(count);
    const auto shared =
        random_edits(vocab, random() % std::min<std::size_t>(vocab / 2, 400), random);
    for (std::size_t i = 0; i < count; ++i) {
      if (i == 0 || random() % 3 != 0) rows[i].shared = shared;
      rows[i].own = random_edits(vocab, random() % 4, random);
      if (!shared.empty() && random() % 2 == 0) {  // one that stands in place of a shared one
        const std::int32_t token = shared.begin()->first;
        rows[i].own[token] = {token, 1.5f, 2.0f, 0.25f};
      }
      if (random() % 2 == 0) continue;
      std::vector<bool>& allowed = rows[i].allowed.emplace(vocab);
      for (std::size_t t = 0; t < vocab; ++t) allowed[t] = random() % 3 == 0;
    }
    const std::vector<float> logits = random_floats(count * columns, random, 12.0f);
    std::vector<float> want;
    for (std::size_t i = 0; i < count; ++i) {
      const auto begin = logits.begin() + dim(i * columns);
      const std::vector<float> row = reference({begin, begin + dim(columns)}, rows[i]);
      want.insert(want.end(), row.begin(), row.end());
    }
    for (const Where where : {Where::kInPlace, Where::kElsewhere})
      EXPECT_EQ(edit(logits, rows, words, where), want);
  }
}

TEST_P(EditLogitsOp, WhatIsNotFiniteStaysAndWhatOverflowsIsBounded) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kMost = std::numeric_limits<float>::max();
  RowEdits edits;
  edits.allowed = {true, true, true, true, false, false, true};
  for (std::int32_t t = 0; t < 4; ++t) edits.own[t] = {t, 1.0f, 1e6f, 0.0f};
  const std::vector<float> row = {kInfinity, std::nanf(""), -kMost, 1.0f, -kInfinity, 2.0f, kMost};
  const std::vector<float> got = edit(row, {edits}, 1, Where::kElsewhere);
  EXPECT_EQ(got[0], kInfinity);
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_EQ(got[2], -kMostEdited);
  EXPECT_EQ(got[3], 2e-6f);
  EXPECT_EQ(got[4], -kInfinity);
  EXPECT_EQ(got[5], kMaskedLogit);
  EXPECT_EQ(got[6], kMostEdited);
}

TEST_P(EditLogitsOp, WhatIsNotAllowedHasNoProbabilityAtAnyTemperature) {
  RowEdits edits;
  edits.allowed = {false, true, false, true};
  // Even where what is allowed is as unlikely as can be.
  const std::vector<float> row = {30.0f, -std::numeric_limits<float>::max(), 1e38f, -2e38f};
  const std::vector<float> edited = edit(row, {edits}, 1, Where::kElsewhere);
  for (const float temperature : {0.0f, std::numeric_limits<float>::denorm_min(), 1e-30f, 0.6f,
                                  1.0f, 1e3f, kHighestTemperature})
    for (const Sampling& sampling :
         {Sampling{temperature}, Sampling{temperature, 3}, Sampling{temperature, 0, 0.9f},
          Sampling{temperature, 0, 1.0f, 0.01f}, Sampling{temperature, 0, 1.0f, 0.0f, 0.9f}}) {
      OnDevice from = send(edited), to = send(std::vector<float>(4));
      ops().probabilities(stream(), from.view(DType::kF32, {1, 4}), sampling,
                          to.view(DType::kF32, {1, 4}));
      const std::vector<float> p = to.read<float>();
      EXPECT_EQ(p[0], 0.0f) << temperature;
      EXPECT_EQ(p[2], 0.0f) << temperature;
      EXPECT_EQ(p[1] + p[3], 1.0f) << temperature;
    }
  OnDevice from = send(edited), best = send(std::vector<std::int32_t>(1));
  ops().top_tokens(stream(), from.view(DType::kF32, {1, 4}), 1, best.view(DType::kI32, {1, 1}));
  EXPECT_EQ(best.read<std::int32_t>()[0], 1);
}

TEST_P(EditLogitsOp, RefusesViewsOfOtherShapes) {
  OnDevice memory = send(std::vector<float>(400));
  const TensorView logits = memory.view(DType::kF32, {2, 33});
  const LogitEdits good{memory.view(DType::kI32, {2, 5}), memory.view(DType::kI32, {0, 4}),
                        memory.view(DType::kU32, {1, 2})};
  const auto refuses = [&](auto change) {
    LogitEdits edits = good;
    change(edits);
    EXPECT_THROW(ops().edit_logits(stream(), logits, edits, logits), Error);
  };
  refuses([&](LogitEdits& e) { e.row = memory.view(DType::kI32, {1, 5}); });
  refuses([&](LogitEdits& e) { e.row = memory.view(DType::kF32, {2, 5}); });
  refuses([&](LogitEdits& e) { e.edit = memory.view(DType::kI32, {1, 3}); });
  refuses([&](LogitEdits& e) { e.allowed = memory.view(DType::kU32, {1, 1}); });  // 32 tokens
  refuses([&](LogitEdits& e) { e.allowed = memory.view(DType::kI32, {1, 2}); });
}

CANOPY_ON_EACH_DEVICE(EditLogitsOp);

}  // namespace
}  // namespace canopy
