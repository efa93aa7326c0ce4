#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "include/canopy/canopy.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"
#include "tests/test_data.h"

namespace canopy {
namespace {

namespace fs = std::filesystem;

/// A model of random weights, opened once.
class Library : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempDir;
    setenv("XDG_CACHE_HOME", (*folder_ / "cache").c_str(), 1);
    const fs::path folder = *folder_ / "model";
    fs::copy(test_data() / "model" / "llama3", folder);
    fs::copy(test_data() / "text" / "llama3" / "tokenizer.json", folder);
    std::ofstream(folder / "chat_template.jinja")
        << "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ ending }}";
    options_ = new Options{.model = folder, .device = "cpu", .context = 64, .sequences = 2};
    model_ = new Model(Model::open(*options_));
  }
  static void TearDownTestSuite() {
    delete model_;
    delete options_;
    delete folder_;
  }
  static Request of(std::vector<TokenId> tokens, int max_new_tokens) {
    return {.tokens = std::move(tokens), .max_new_tokens = max_new_tokens, .ignore_end = true};
  }
  /// Returns the text of `request` in a session of its own.
  static Text text_of(const Request& request) {
    Session session(*model_);
    Text text;
    session.admit(request, {.on_end = [&](const Text& ended) { text = ended; }});
    session.run();
    return text;
  }

  static inline TempDir* folder_ = nullptr;
  static inline Options* options_ = nullptr;
  static inline Model* model_ = nullptr;
};

TEST_F(Library, ThePlanIsForWhatWasAskedAndInTheBudget) {
  const Plan& plan = model_->plan();
  EXPECT_EQ(plan.context, options_->context);
  EXPECT_EQ(plan.sequences, options_->sequences);
  EXPECT_EQ(plan.method, "none");
  EXPECT_LE(plan.planned_bytes, plan.memory_bytes);
  EXPECT_GT(plan.predicted_seconds_per_token, 0);
}

TEST_F(Library, WeightsStreamAndThreadsStayWhereAProgramSays) {
  EXPECT_EQ(model_->plan().read_bytes, 0u);  // it fits
  const Request request = of({1, 2, 3}, 8);
  const Text expected = text_of(request);
  Options options = *options_;
  options.resident_bytes = 0;
  options.cpus = {sched_getcpu()};
  const Model streamed = Model::open(options);
  EXPECT_GT(streamed.plan().read_bytes, 0u);
  EXPECT_EQ(streamed.plan().resident_bytes, 0u);
  Session session(streamed);
  Text text;
  session.admit(request, {.on_end = [&](const Text& ended) { text = ended; }});
  session.run();
  EXPECT_EQ(text.tokens, expected.tokens);
}

TEST_F(Library, PiecesMakeTheTextWhoeverElseSharesTheSweeps) {
  const std::vector<Request> requests{of({1, 2, 3}, 9), of({4, 5}, 20), of({6}, 5)};
  std::vector<std::string> pieces(requests.size());
  std::vector<Text> texts(requests.size());
  {
    Session session(*model_);
    for (std::size_t i = 0; i < requests.size(); ++i)
      session.admit(requests[i], {.on_text = [&, i](std::string_view piece) { pieces[i] += piece; },
                                  .on_end = [&, i](const Text& text) { texts[i] = text; }});
    session.run();
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(pieces[i], texts[i].text);
    EXPECT_EQ(std::ssize(texts[i].tokens), requests[i].max_new_tokens);
    EXPECT_EQ(texts[i].finish_reason, "length");
    EXPECT_EQ(texts[i].tokens, text_of(requests[i]).tokens);
  }
}

TEST_F(Library, ASeedGivesTheSameTextAgain) {
  Request request = of({1, 2, 3}, 20);
  request.temperature = 1;
  request.seed = 7;
  const Text first = text_of(request);
  EXPECT_EQ(text_of(request).tokens, first.tokens);
  request.seed = 8;
  EXPECT_NE(text_of(request).tokens, first.tokens);
}

TEST_F(Library, AStopStringEndsTheTextBeforeIt) {
  const Request request = of({1, 2, 3}, 20);
  const Text whole = text_of(request);
  Request stopped = request;
  stopped.stop = {"never to be seen", whole.text.substr(whole.text.size() / 2, 2)};
  const Text text = text_of(stopped);
  EXPECT_EQ(text.finish_reason, "stop");
  EXPECT_EQ(text.text, whole.text.substr(0, whole.text.find(stopped.stop[1])));
  EXPECT_LT(text.tokens.size(), whole.tokens.size());
}

TEST_F(Library, BiasAndPenaltiesChangeWhatIsTaken) {
  const Request request = of({1, 2, 3}, 8);
  const Text plain = text_of(request);
  Request biased = request;
  biased.logit_bias = {{7, 1e5f}};
  EXPECT_EQ(text_of(biased).tokens, std::vector<TokenId>(8, 7));
  biased.frequency_penalty = 9e4f;  // so often, and no more
  EXPECT_EQ(text_of(biased).tokens[0], 7);
  EXPECT_EQ(text_of(biased).tokens[1], 7);
  EXPECT_NE(text_of(biased).tokens[2], 7);
  Request forbidden = request;
  forbidden.logit_bias = {{plain.tokens[0], -std::numeric_limits<float>::infinity()}};
  EXPECT_NE(text_of(forbidden).tokens[0], plain.tokens[0]);
}

TEST_F(Library, LogprobsAreToldOfEachToken) {
  Request request = of({1, 2, 3}, 6);
  EXPECT_TRUE(text_of(request).logprobs.empty());
  request.logprobs = 3;
  const Text text = text_of(request);
  ASSERT_EQ(text.logprobs.size(), text.tokens.size());
  for (std::size_t i = 0; i < text.tokens.size(); ++i) {
    const TokenLogprobs& token = text.logprobs[i];
    EXPECT_EQ(token.chosen.token, text.tokens[i]);
    ASSERT_EQ(token.top.size(), 3u);
    EXPECT_EQ(token.top[0].token, text.tokens[i]);  // greedy
    EXPECT_GE(token.top[0].logprob, token.top[1].logprob);
    EXPECT_LT(token.chosen.logprob, 0);
  }
}

TEST_F(Library, APromptIsScoredWithThoseThatShareItsSweepsOrAlone) {
  const std::vector<std::vector<TokenId>> prompts{{1, 2, 3, 4, 5}, {9, 8, 7}, {6}};
  std::vector<Text> texts(prompts.size());
  {
    Session session(*model_);
    for (std::size_t i = 0; i < prompts.size(); ++i)
      session.admit({.tokens = prompts[i], .max_new_tokens = 0, .prompt_logprobs = 2},
                    {.on_end = [&, i](const Text& text) { texts[i] = text; }});
    session.run();
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_TRUE(texts[i].tokens.empty());
    EXPECT_EQ(texts[i].finish_reason, "length");
    ASSERT_EQ(texts[i].prompt_logprobs.size(), prompts[i].size() - 1);
    for (std::size_t k = 0; k + 1 < prompts[i].size(); ++k) {  // as a text's own, one token on
      const TokenLogprobs& scored = texts[i].prompt_logprobs[k];
      EXPECT_EQ(scored.chosen.token, prompts[i][k + 1]);
      Request next = of({prompts[i].begin(), prompts[i].begin() + static_cast<int>(k) + 1}, 1);
      next.logprobs = 2;
      const Text text = text_of(next);
      ASSERT_EQ(scored.top.size(), 2u);
      EXPECT_EQ(scored.top[0].token, text.tokens[0]);
      EXPECT_EQ(scored.top[0].logprob, text.logprobs[0].top[0].logprob);
      EXPECT_EQ(scored.top[1].logprob, text.logprobs[0].top[1].logprob);
      EXPECT_LE(scored.chosen.logprob, scored.top[0].logprob);
    }
  }
  Request both = of(prompts[0], 3);
  const Text plain = text_of(both);
  EXPECT_TRUE(plain.prompt_logprobs.empty());
  both.prompt_logprobs = 0;
  EXPECT_EQ(text_of(both).tokens, plain.tokens);
  EXPECT_EQ(text_of(both).prompt_logprobs.size(), prompts[0].size() - 1);
}

TEST_F(Library, TheLedgerAddsUpToThePlan) {
  const Plan& plan = model_->plan();
  const auto sum = [](const std::vector<LedgerLine>& ledger) {
    return std::accumulate(
        ledger.begin(), ledger.end(), std::uint64_t{0},
        [](std::uint64_t bytes, const LedgerLine& line) { return bytes + line.bytes; });
  };
  EXPECT_FALSE(plan.ledger.empty());
  EXPECT_EQ(sum(plan.ledger), plan.planned_bytes);
  EXPECT_EQ(sum(plan.gpu_ledger), plan.gpu_planned_bytes);
}

TEST_F(Library, AConversationIsWrittenByTheModelsOwnTemplate) {
  const Conversation one{.messages = R"([{"role": "user", "content": "ab"}])",
                         .variables = R"({"ending": "cd"})"};
  EXPECT_EQ(model_->detokenize(model_->tokenize(one)), "user: ab\ncd");
  const auto refuses = [](const Conversation& conversation, const char* what) {
    EXPECT_NE(error_of([&] { model_->tokenize(conversation); }).find(what), std::string::npos);
  };
  refuses({.messages = "[{]"}, "Conversation::messages");
  refuses({.messages = ""}, "messages");
  refuses({.messages = "[]", .tools = "7"}, "tools");
}

TEST_F(Library, SizesAreReadAsThoseOfFlags) {
  EXPECT_EQ(parse_size("4G"), std::uint64_t{4} << 30);
  EXPECT_EQ(parse_size("1.5MiB"), std::uint64_t{3} << 19);
  EXPECT_EQ(parse_size("2000000"), 2'000'000u);
  EXPECT_NE(error_of([] { parse_size("4X"); }).find("'4X' is not a size"), std::string::npos);
  EXPECT_NE(error_of([] { parse_size("4"); }).find("did you mean 4G?"), std::string::npos);
}

TEST_F(Library, WhatTextsTeachAboutTheDraftIsKeptWhereItMayBe) {
  const auto kept = [] {
    int files = 0;
    for (const auto& file : fs::recursive_directory_iterator(*folder_ / "cache"))
      files += file.path().filename().string().starts_with("learned-") ? 1 : 0;
    return files;
  };
  const auto run = [](const Options& options) {
    const Model model = Model::open(options);
    Session session(model);
    session.admit(of({1, 2, 3}, 12));
    session.run();
    EXPECT_EQ(model.plan().tree_nodes, 4);
  };
  Options options = *options_;
  options.draft = options.model;
  options.method = "chain";
  options.tree_nodes = 4;
  options.learn = false;
  run(options);
  EXPECT_EQ(kept(), 0);
  options.learn = true;
  run(options);
  EXPECT_EQ(kept(), 1);
}

TEST_F(Library, ACancelledTextIsToldNothingMoreAndTheOthersGoOn) {
  Session session(*model_);
  int received = 0;
  bool ended = false;
  Ticket ticket = 0;
  const auto cancel = [&](std::string_view) {
    if (++received == 3) session.cancel(ticket);
  };
  const Events first{.on_text = cancel, .on_end = [](const Text&) { FAIL(); }};
  ticket = session.admit(of({1, 2, 3}, 20), first);
  session.admit(of({4, 5}, 8), {.on_end = [&](const Text&) { ended = true; }});
  session.run();
  EXPECT_EQ(received, 3);
  EXPECT_TRUE(ended);
}

TEST_F(Library, AStopLosesNothing) {
  const Request request = of({1, 2, 3}, 12);
  const Text expected = text_of(request);
  Session session(*model_);
  std::stop_source stop;
  Text text;
  session.admit(request, {.on_text = [&](std::string_view) { stop.request_stop(); },
                          .on_end = [&](const Text& ended) { text = ended; }});
  session.run(stop.get_token());
  EXPECT_TRUE(stop.stop_requested());
  EXPECT_TRUE(text.tokens.empty());
  EXPECT_FALSE(session.step(stop.get_token()));
  session.run();
  EXPECT_EQ(text.tokens, expected.tokens);
}

TEST_F(Library, AModelHasOneSessionAtATime) {
  {
    const Session session(*model_);
    EXPECT_NE(error_of([&] { Session second(*model_); }).find("has a session"), std::string::npos);
  }
  EXPECT_NO_THROW(Session next(*model_));
}

TEST_F(Library, TextsComeBackFromTheirTokens) {
  const std::string text = "ab cd, \xc3\xa9";
  EXPECT_EQ(model_->detokenize(model_->tokenize(text)), text);
}

TEST_F(Library, AModelMayDraftWithItsResidentWeights) {
  Options options = *options_;
  options.method = "self-ssd";
  options.tree_nodes = 4;
  options.resident_bytes = model_->plan().resident_bytes - 1;
  const Model model = Model::open(options);
  EXPECT_GT(model.plan().read_bytes, 0U);
  const Request request = of({5, 6, 7}, 8);
  Session session(model);
  Text text;
  session.admit(request, {.on_end = [&](const Text& ended) { text = ended; }});
  session.run();
  EXPECT_EQ(text.tokens, text_of(request).tokens);
}

TEST_F(Library, RefusesSayingWhich) {
  const auto refuses = [](auto change, const char* what) {
    Options options = *options_;
    change(options);
    EXPECT_NE(error_of([&] { Model::open(options); }).find(what), std::string::npos) << what;
  };
  refuses([](Options& o) { o.model = "nowhere"; }, "nowhere");
  refuses([](Options& o) { o.method = "magic"; }, "'magic' is none of auto, none");
  refuses([](Options& o) { o.method = "chain"; }, "needs a draft");
  refuses([](Options& o) { o.method = "self-ssd", o.draft = o.model; }, "takes no other draft");
  refuses([](Options& o) { o.method = "bild"; }, "the command's alone");
  refuses([](Options& o) { o.tree_nodes = 4; }, "no tree without speculation");
  refuses([](Options& o) { o.device = "cuda:x"; }, "'cuda:x' is none of");
  refuses([](Options& o) { o.cpus = {1 << 20}; }, "may not use CPU 1048576");
  refuses([](Options& o) { o.cpus = {sched_getcpu(), sched_getcpu()}; }, "Options::cpus");
  refuses([](Options& o) { o.cpus = {sched_getcpu()}, o.threads = 2; }, "more than the CPUs");
  refuses([](Options& o) { o.context = 1; }, "Options::context");
  refuses([](Options& o) { o.memory = 1; }, "memory budget");
  Options small = *options_;
  small.memory = 1;
  EXPECT_THROW(Model::open(small), BudgetError);

  Session session(*model_);
  const auto refuses_request = [&](const Request& request, const char* what) {
    EXPECT_NE(error_of([&] { session.admit(request); }).find(what), std::string::npos) << what;
  };
  refuses_request({.prompt = "a", .tokens = {1}}, "not both");
  refuses_request(of({1'000'000}, 1), "outside the vocabulary");
  refuses_request(of({1}, 0), "max_new_tokens");
  refuses_request({.tokens = {1}, .prompt_logprobs = -1}, "Request::prompt_logprobs");
  refuses_request({.tokens = {1}, .min_p = 2}, "Request::min_p");
  refuses_request({.tokens = {1}, .repetition_penalty = 0}, "repetition penalty");
  refuses_request({.tokens = {1}, .logit_bias = {{-1, 1.0f}}}, "outside the vocabulary");
  refuses_request({.tokens = {1}, .stop = {""}}, "a stop string is empty");
  refuses_request(of(std::vector<TokenId>(64, 1), 1), "does not fit the context of 64");
}

}  // namespace
}  // namespace canopy
