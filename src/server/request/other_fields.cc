#include "src/server/request/other_fields.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "src/server/request/sampler_order.h"

namespace canopy::server {

namespace {

using Json = nlohmann::ordered_json;

/// A member, and its values that change nothing.
struct Neutral {
  const char* name;
  std::vector<Json> values;
};

/// Returns members with the values at which they change nothing: ways of drawing tokens that this
/// server does not have, switched off; and properties of prompts and texts that hold here in any
/// case.
const std::vector<Neutral>& neutral_members() {
  const Json none = Json::array(), nothing = Json::object();
  static const std::vector<Neutral> kMembers{
      // Samplers.
      {"mirostat", {0}},
      {"mirostat_mode", {0}},
      {"dry_multiplier", {0}},
      {"xtc_probability", {0}},
      {"top_a", {0}},
      {"tfs", {1}},
      {"tfs_z", {1}},
      {"top_n_sigma", {0, -1}},
      {"nsigma", {0, -1}},
      {"min_keep", {0, 1}},
      {"skew", {0}},
      {"smoothing_factor", {0}},
      {"dynatemp_range", {0}},
      {"dynamic_temperature", {false}},
      {"epsilon_cutoff", {0}},
      {"eta_cutoff", {0}},
      {"penalty_alpha", {0}},
      {"encoder_repetition_penalty", {1}},
      {"no_repeat_ngram_size", {0}},
      {"rep_pen_slope", {0, 1}},
      {"guidance_scale", {1}},
      {"cfg_scale", {1}},
      {"negative_prompt", {""}},
      {"num_beams", {1}},
      {"use_beam_search", {false}},
      {"logits_processors", {none}},
      {"lora", {none}},
      // Fields on the tokens that may come.
      {"min_length", {0, 1}},
      {"max_tokens_second", {0}},
      {"t_max_predict_ms", {0, -1}},
      {"n_indent", {0}},
      {"bad_words", {none}},
      {"banned_strings", {none, ""}},
      {"banned_tokens", {none, ""}},
      {"custom_token_bans", {"", none}},
      {"grammar", {""}},
      {"grammar_string", {""}},
      {"guided_grammar", {""}},
      {"guided_regex", {""}},
      {"guided_choice", {none}},
      {"guided_json", {"", nothing}},
      // Prompts.
      {"add_bos_token", {true}},
      {"continue_final_message", {false}},
      {"documents", {none}},
      {"functions", {none}},
      {"function_call", {"none", "auto"}},
      {"prompt_logprobs", {0, false}},
      // Replies.
      {"skip_special_tokens", {true}},
      {"spaces_between_special_tokens", {true, false}},
      {"detokenize", {true}},
      {"include_stop_str_in_output", {false}},
      {"return_tokens_as_token_ids", {false}},
      {"return_token_ids", {false}},
      {"post_sampling_probs", {false}},
      {"n_probs", {0}},
      {"return_tokens", {false}},
      {"json_schema", {"", nothing}},
      {"response_fields", {none}},
      {"trim_stop", {true}},
  };
  return kMembers;
}

/// Members that qualify one of those, without effect while it is off; and members about a server.
constexpr std::array kMeaningless{
    "mirostat_tau",       "mirostat_eta",       "dry_base",
    "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers",
    "xtc_threshold",      "smoothing_curve",    "dynatemp_exponent",
    "dynatemp_low",       "dynatemp_high",      "min_temp",
    "max_temp",           "early_stopping",     "length_penalty",
    "n_discard",          "api_type",           "api_server",
    "legacy_api",         "use_mancer",         "use_aphrodite"};

/// Members that ask for something that changes no text, or may be left undone, and is not done
/// here; with the reason.
constexpr std::array<std::pair<const char*, const char*>, 15> kHints{{
    {"verbosity", "no template has it"},
    {"prediction", "the draft is the server's"},
    {"priority", "texts share their sweeps as they come"},
    {"id_slot", "a place is found for each text"},
    {"slot_id", "a place is found for each text"},
    {"n_keep", "no part of a prompt is dropped"},
    {"num_ctx", "the context is the server's, by -c"},
    {"truncation_length", "the context is the server's, by -c; longer prompts are refused"},
    {"max_context_length", "the context is the server's, by -c; longer prompts are refused"},
    {"include_reasoning", "a completion is one text; a chat's reasoning can be left out"},
    {"speculative_ngram", "the draft is the server's"},
    {"speculative.n_max", "the draft is the server's"},
    {"speculative.n_min", "the draft is the server's"},
    {"speculative.p_min", "the draft is the server's"},
    {"request_id", "the header x-request-id is"},
}};

std::string in_words(const std::vector<Json>& values) {
  std::string words;
  for (const Json& value : values)
    words += (words.empty() ? "" : &value == &values.back() ? " or " : ", ") + value.dump();
  return words;
}

/// The tokens that penalties look back at, which are all of them here.
void read_penalty_range(Fields& fields, CompletionRequest& request) {
  LogitEditing& edits = request.edits;
  const auto last = fields.whole("repeat_last_n");
  if (last == 0) edits.repetition = 1, edits.presence = edits.frequency = 0;
  const bool off = edits.repetition == 1 && edits.presence == 0 && edits.frequency == 0;
  if (last && *last > 0 && !off)
    fields.fail("repeat_last_n",
                "can be -1 or 0 alone, where there are penalties: they are of "
                "the whole prompt and text");
  for (const char* name : {"rep_pen_range", "repetition_penalty_range"})
    if (const auto range = fields.whole(name); range && *range > 0 && !off)
      fields.fail(name,
                  "can be -1 or 0 alone, where there are penalties: they are of the whole "
                  "prompt and text");
}

}  // namespace

void read_others(Fields& fields, CompletionRequest& request) {
  for (const Neutral& member : neutral_members()) {
    if (fields.knows(member.name)) continue;  // this route has it
    const Json* value = fields.any(member.name);
    if (value == nullptr) continue;
    if (std::find(member.values.begin(), member.values.end(), *value) == member.values.end())
      fields.fail(member.name, "is not supported: it can be " + in_words(member.values) + " alone");
  }
  for (const char* name : kMeaningless) fields.any(name);
  for (const auto& [name, why] : kHints)
    if (!fields.knows(name) && fields.any(name) != nullptr)
      request.warnings.push_back(std::string("'").append(name) + "' is not followed: " + why);
  read_penalty_range(fields, request);
  read_sampler_orders(fields, request);
}

}  // namespace canopy::server
