#pragma once
#include <memory>
#include <string>

#include "src/convert/enlarge/random_checkpoint.h"
#include "src/text/tokenizer.h"

namespace canopy::cli {

/// "llama-2-70b", or another name of shape_names(), or a config.json; with ":packed", ":q8_0" or
/// the like after it the weights have that form. Throws Error naming what is wrong.
RandomModel parse_model_shape(const std::string& text);
/// True if a word that could be a path to a model is a shape instead: a name that no file has, or a
/// config.json.
bool names_model_shape(const std::string& text);
std::string shape_names();  // for a usage text, in words

/// Throws Error if the draft cannot be one for this target.
void require_same_vocabulary(const ModelConfig& target, const ModelConfig& draft);

/// Serves models that are shapes alone: only ids go round, and none ends a text.
std::unique_ptr<Tokenizer> no_tokenizer(int vocab);

}  // namespace canopy::cli
