#include "src/speculation/logits/logit_editor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>

#include "tests/error_of.h"
#include "tests/speculation/speculation.h"
#include "tests/speculation/toy_constraint.h"

namespace canopy::testing {
namespace {

/// The logits of the next token, as edited: written from the definition, of the whole text at once.
std::vector<float> edited_by_definition(std::vector<float> row, const LogitEditing& editing,
                                        const Text& prompt, const Text& text,
                                        const ToyConstraint::Allows& allows) {
  for (std::size_t t = 0; t < row.size(); ++t) {
    const auto id = static_cast<TokenId>(t);
    bool banned = editing.constraint && !allows(text, id);
    float& x = row[t];
    float bias = 0;
    for (const auto& [token, by] : editing.bias) {
      if (token == id && by == -INFINITY) banned = true;
      if (token == id && by != -INFINITY) bias += by;
    }
    if (banned) {
      x = kMaskedLogit;
      continue;
    }
    x += bias;
    const auto generated = std::count(text.begin(), text.end(), id);
    if (generated + std::count(prompt.begin(), prompt.end(), id) > 0)
      x = x > 0 ? x / editing.repetition : x * editing.repetition;
    x -= (generated > 0 ? editing.presence : 0) + editing.frequency * static_cast<float>(generated);
  }
  return row;
}

/// Returns the row after `path` as an editor edits it. Rows that cannot be reached stay.
std::vector<float> edited_by(LogitEditor& editor, std::vector<float> row, const Text& path) {
  std::vector<std::uint32_t> bits(editor.words(), 0);
  if (editor.masks() && editor.allow(path, bits) != LogitEditor::Reach::kReached) return row;
  std::vector<LogitEdit> own;
  editor.own(path, own);
  std::map<TokenId, LogitEdit> edits;
  for (const LogitEdit& edit : editor.shared()) edits[edit.token] = edit;
  for (const LogitEdit& edit : own) edits[edit.token] = edit;
  for (std::size_t t = 0; t < row.size(); ++t) {
    if (editor.masks() && !is_allowed(bits.data(), static_cast<std::int64_t>(t)))
      row[t] = kMaskedLogit;
    else if (const auto edit = edits.find(static_cast<TokenId>(t)); edit != edits.end())
      row[t] = edited_logit(row[t], edit->second);
  }
  return row;
}

/// Some logits after every text.
std::vector<float> random_row(std::size_t vocab, unsigned seed, const Text& text) {
  std::seed_seq key{seed, static_cast<unsigned>(text.size()),
                    std::accumulate(text.begin(), text.end(), 1u, [](unsigned hash, TokenId t) {
                      return hash * 31 + static_cast<unsigned>(t);
                    })};
  std::mt19937 random(key);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::vector<float> row(vocab);
  for (float& value : row) value = normal(random);
  return row;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  const float most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  for (const float x : logits)
    p.push_back(std::exp((static_cast<double>(x) - static_cast<double>(most)) / temperature));
  normalise(p);
  return p;
}

bool toy_rule(std::span<const TokenId> text, TokenId next) {
  int sum = 1;
  for (const TokenId token : text) sum += token + 1;
  return (sum + next) % 3 != 0 || next == sum % 2;
}

LogitEditing every_edit(int vocab) {
  LogitEditing editing;
  editing.repetition = 1.4f;
  editing.presence = 0.3f;
  editing.frequency = -0.7f;
  editing.bias = {{1, 0.8f}, {0, -0.5f}, {1, 0.1f}};
  editing.constraint = std::make_shared<ToyConstraint>(vocab, toy_rule);
  return editing;
}

std::vector<LogitEditing> editings(int vocab) {
  LogitEditing repetition, counts, bias, constraint;
  repetition.repetition = 1.7f;
  counts.presence = 0.9f;
  counts.frequency = 0.4f;
  bias.bias = {{2, 1.5f}, {1, -INFINITY}};
  constraint.constraint = std::make_shared<ToyConstraint>(vocab, toy_rule);
  return {repetition, counts, bias, constraint, every_edit(vocab)};
}

TEST(LogitEditor, EditsARowByItsWholeTextWhereverTheTextEndsAndItsPathBegins) {
  for (const int vocab : {3, 5, 32, 70})
    for (const LogitEditing& editing : editings(vocab))
      for (unsigned seed = 0; seed < 20; ++seed) {
        SCOPED_TRACE(::testing::Message() << vocab << " tokens, seed " << seed);
        std::mt19937 random(seed);
        const auto any = [&] {
          return static_cast<TokenId>(random() % static_cast<unsigned>(vocab));
        };
        Text prompt, text;
        for (int i = 0; i < 6; ++i) prompt.push_back(any());
        while (text.size() < 7) {
          const TokenId next = any();
          if (!editing.constraint || toy_rule(text, next)) text.push_back(next);
        }
        const std::vector<float> row = random_row(static_cast<std::size_t>(vocab), seed, text);
        const std::vector<float> want = edited_by_definition(row, editing, prompt, text, toy_rule);
        LogitEditor editor(editing, prompt, vocab);
        for (std::size_t known = 0; known <= text.size(); ++known) {
          if (known > 0) editor.accept(text[known - 1]);
          const Text path(text.begin() + static_cast<std::ptrdiff_t>(known), text.end());
          EXPECT_EQ(edited_by(editor, row, path), want) << known;
        }
      }
}

/// Remembers the model's rows.
Model remembered(const Model& model) {
  const auto rows = std::make_shared<std::map<Text, std::vector<double>>>();
  return [=](const Text& text) {
    std::vector<double>& row = (*rows)[text];
    if (row.empty()) row = model(text);
    return row;
  };
}

/// The largest error of the distribution of texts, over trees and models, where rows are edited
/// along their paths; or by the text at the root alone, which is wrong.
enum class Rows { kByTheirPath, kByTheRoot };
double worst_error_with_edits(Drawing drawing, Rows rows) {
  double worst = 0;
  const Text prompt{2, 0};  // the last is the root
  for (const Case& c : cases()) {
    const auto vocab = static_cast<int>(c.vocab);
    for (const LogitEditing& editing : editings(vocab))
      for (unsigned seed = 0; seed < 2; ++seed) {
        const auto length = static_cast<std::size_t>(c.shape.levels());
        LogitEditor editor(editing, prompt, vocab);
        const auto model = [&](std::size_t columns, unsigned of, double temperature) -> Model {
          return remembered([&, columns, of, temperature](const Text& text) {
            return softmax(edited_by(editor, random_row(columns, of, text),
                                     rows == Rows::kByTheirPath ? text : Text()),
                           temperature);
          });
        };
        const Model plain = remembered([&](const Text& text) {
          return softmax(edited_by_definition(random_row(c.vocab, 2 * seed, text), editing, prompt,
                                              text, toy_rule),
                         0.7);
        });
        Texts alone;
        continue_alone(plain, {}, 1, length, alone);
        worst = std::max(
            worst, distance(alone, speculate(rule_of(drawing), c.shape, drawing,
                                             model(c.vocab, 2 * seed, 0.7),
                                             model(c.draft_vocab, 2 * seed + 1, 0.9), length)));
      }
  }
  return worst;
}

class EditedText : public ::testing::TestWithParam<Drawing> {};

TEST_P(EditedText, IsDistributedAsPlainSamplingsWithTheSameEdits) {
  EXPECT_LT(worst_error_with_edits(GetParam(), Rows::kByTheirPath), kExact);
}

TEST_P(EditedText, WouldBeWrongIfRowsWereEditedByTheTextAtTheRoot) {
  EXPECT_GT(worst_error_with_edits(GetParam(), Rows::kByTheRoot), kWrong);
}

INSTANTIATE_TEST_SUITE_P(VerifyTree, EditedText, ::testing::ValuesIn(kDrawings),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(LogitEditor, SaysWhereNoTokenMayFollow) {
  using Reach = LogitEditor::Reach;
  LogitEditing editing;
  editing.constraint =
      std::make_shared<ToyConstraint>(40, [](std::span<const TokenId> text, TokenId next) {
        return text.size() < 2 && next == static_cast<TokenId>(33 + text.size());
      });
  LogitEditor constrained(editing, Text{1}, 40);
  std::vector<std::uint32_t> bits(constrained.words());
  EXPECT_EQ(constrained.allow(Text{}, bits), Reach::kReached);
  EXPECT_EQ(bits, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(constrained.allow(Text{5}, bits), Reach::kUnreachable);
  EXPECT_EQ(constrained.allow(Text{33}, bits), Reach::kReached);
  EXPECT_EQ(constrained.allow(Text{33, 34}, bits), Reach::kNothingLeft);
  editing.bias = {{34, -INFINITY}};
  LogitEditor banned(editing, Text{1}, 40);
  EXPECT_EQ(banned.allow(Text{}, bits), Reach::kReached);
  EXPECT_EQ(banned.allow(Text{33}, bits), Reach::kNothingLeft);
  LogitEditor ended(editing, Text{1}, 40, [](TokenId token) { return token == 33; });
  EXPECT_EQ(ended.allow(Text{33}, bits), Reach::kUnreachable);
  editing.constraint = nullptr;
  LogitEditor free(editing, Text{1}, 40);
  EXPECT_EQ(free.allow(Text{7}, bits), Reach::kReached);
  EXPECT_EQ(bits, (std::vector<std::uint32_t>{0xffffffffu, 0xfbu}));
}

TEST(LogitEditor, RefusesNumbersOutOfTheirRangeAndTokensThatAreNone) {
  const auto error = [](const auto& set) {
    LogitEditing editing;
    set(editing);
    return error_of([&] { LogitEditor(editing, Text{1}, 10); });
  };
  EXPECT_EQ(error([](LogitEditing& e) { e.bias = {{9, 1e6f}}; }), "");
  for (const float bad : {0.0f, -1.0f, std::nanf(""), INFINITY})
    EXPECT_NE(error([&](LogitEditing& e) { e.repetition = bad; }).find("repetition"),
              std::string::npos);
  for (const float bad : {2e6f, std::nanf(""), INFINITY, -INFINITY}) {
    EXPECT_NE(error([&](LogitEditing& e) { e.presence = bad; }).find("presence"),
              std::string::npos);
    EXPECT_NE(error([&](LogitEditing& e) { e.frequency = bad; }).find("frequency"),
              std::string::npos);
    if (bad != -INFINITY) {
      EXPECT_NE(error([&](LogitEditing& e) {
                  e.bias = {{1, bad}};
                }).find("bias"),
                std::string::npos);
    }
  }
  for (const TokenId token : {-1, 10})
    EXPECT_NE(error([&](LogitEditing& e) {
                e.bias = {{token, 1.0f}};
              }).find("vocabulary of 10"),
              std::string::npos);
  EXPECT_NE(error([](LogitEditing& e) { e.bias.resize(1025); }).find("1024"), std::string::npos);
}

TEST(RowEditor, EditsRowsOfSeveralTextsByTheirPathsInOneCall) {
  constexpr int kVocab = 70, kColumns = 61;  // the draft's are fewer
  const auto device = make_device({"cpu", 0, 1, {}});
  const auto stream = device->make_stream("test");
  const Text prompt{4, 8, 4};
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<std::optional<LogitEditor>> editors(3);
    for (std::size_t i = 0; i < 2; ++i)  // the third text has no edits
      editors[i].emplace(editings(kVocab)[random() % 5], prompt, kVocab);
    RowEditor row_editor(*device, {12, 3, 70, 36, kVocab});
    std::vector<RowEditor::Row> rows;
    std::vector<float> logits, want;
    for (auto& editor : editors)
      for (int i = 0; i < 4; ++i) {
        RowEditor::Row& row = rows.emplace_back();
        if (editor) row.editor = &*editor;
        for (auto n = random() % 4; n > 0; --n)
          row.path.push_back(static_cast<TokenId>(random() % kVocab));
        const std::vector<float> before = random_row(kColumns, seed, row.path);
        logits.insert(logits.end(), before.begin(), before.end());
        const std::vector<float> after = editor ? edited_by(*editor, before, row.path) : before;
        want.insert(want.end(), after.begin(), after.end());
      }
    const Buffer buffer = device->allocate(logits.size() * sizeof(float));
    const TensorView view(buffer.data(), DType::kF32, {12, kColumns});
    device->upload(*stream, buffer.data(), std::as_bytes(std::span(logits)));
    EXPECT_TRUE(row_editor.edit(*stream, view, rows, view));
    std::vector<float> got(logits.size());
    device->download(*stream, std::as_writable_bytes(std::span(got)), buffer.data());
    stream->synchronize();
    EXPECT_EQ(got, want);
  }
}

}  // namespace
}  // namespace canopy::testing
