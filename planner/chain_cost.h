#pragma once

namespace canopy {

// Gain of a chain of g drafted tokens, where each is accepted with chance alpha, whatever came
// before. Costs are relative to the target's: c, the time of a forward of the draft to that of a
// sweep; c_ops, the same of arithmetic operations per row. docs/math.md, "What a chain gains".
// Source: arXiv:2211.17192, 3.1 to 3.5, whose names these are. All throw Error unless 0 <= alpha <=
// 1, g >= 0 and the costs are not negative.

/// Expected tokens of a step: (1 - alpha^(g+1)) / (1 - alpha). Bytes read per token shrink by it.
double chain_tokens(double alpha, int g);
/// Plain decoding's seconds per token over the chain's, where a sweep of g + 1 rows takes as long
/// as one of one row: chain_tokens / (g c + 1).
double chain_speedup(double alpha, int g, double c);
/// Operations per token over plain decoding's: (1 - alpha) (g c_ops + g + 1) / (1 - alpha^(g+1)).
double chain_operations(double alpha, int g, double c_ops);
/// The length of greatest speedup, of equal ones the shortest; 0: speculation does not pay, which
/// is so where alpha <= c. At most `most`.
int best_chain_length(double alpha, double c, int most);
/// No chain of any length, adaptive or not, is faster: an oracle drafts just what is accepted.
/// (1 / (1 - alpha)) / (1 + c alpha / (1 - alpha)). alpha below 1.
double chain_speedup_bound(double alpha, double c);

}  // namespace canopy
