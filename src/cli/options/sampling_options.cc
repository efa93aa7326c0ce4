#include "src/cli/options/sampling_options.h"

namespace canopy::cli {

Flags SamplingOptions::flags() {
  const FlagCheck<float> is_share = [](const float& value) {
    if (!(value > 0 && value <= 1)) throw UsageError("--top-p: must be above 0 and at most 1");
  };
  Flags flags("Sampling");
  flags.add_options()                                                                  //
      ("temp,temperature", into(sampling.temperature, "T", at_least("--temp", 0.0f)),  //
       "temperature; 0 takes the likeliest token; also --temperature")                 //
      ("top-k", into(sampling.top_k, "K", at_least("--top-k", 0)),                     //
       "keep the K likeliest (0: all)")                                                //
      ("top-p", into(sampling.top_p, "P", is_share),                                   //
       "then keep the likeliest that make up P of the probability")                    //
      ("seed,s", into(seed, "S"),                                                      //
       "random seed. With it generate writes the text that plain sampling has for this seed, "
       "whatever the draft and the tree are, which takes more sweeps a token; without it the text "
       "is another each time");
  return flags;
}

}  // namespace canopy::cli
