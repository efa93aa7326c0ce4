"""Exact inference of language models far larger than the memory they are given.

    import canopy

    with canopy.LLM("BIG", draft="SMALL", memory="4G") as llm:
        print(llm.generate("Once upon a time", max_tokens=64))

The text is the big model's own: token for token at temperature 0, drawn from exactly its distribution at any other. Texts that
are asked for together, in a list or from several threads, share the sweeps over the model's weights.
"""
from __future__ import annotations

import json
import logging
import math
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Union, overload

from . import _canopy
from ._canopy import BudgetError, Error

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["LLM", "BudgetError", "Error", "Sampling", "Score", "Stream", "Text", "TokenLogprob", "__version__"]
__version__: str = _canopy.version()
Error.__module__ = BudgetError.__module__ = __name__
Error.__doc__ = """A failure: what failed, where, and what to do; or an argument that is refused, by its name."""
BudgetError.__doc__ = """A budget of memory is too small. The message has the ledger and the smallest budget that would do."""

Prompt = Union[str, Sequence[int]]
"""A text, or the ids of its tokens, with those that the model begins a text with."""
Prompts = Union[list[str], tuple[str, ...], Sequence[Sequence[int]]]
Message = Mapping[str, Any]
"""{"role": "user", "content": "..."}, and what else the model's chat template reads of a message."""

_log = logging.getLogger(__name__)


class Sampling(TypedDict, total=False):
    """Keywords of all functions that make text.

    max_tokens: most tokens of the text (128); fewer where the context is full.
    temperature: 0 (the default) takes the likeliest token.
    top_k: keep the K likeliest; 0 (the default): all.
    top_p: then keep the likeliest that make up P of the probability (1).
    min_p: then those of at least P times the likeliest's probability (0).
    typical_p: then the most typical that make up P (1).
    repetition_penalty: divides logits above 0, and multiplies others, of tokens that stand in the prompt or the text (1).
    presence_penalty, frequency_penalty: taken off the logits of tokens that stand in the text, once, or as often as they do (0).
    logit_bias: {token: what is added to its logit}; -math.inf: never taken.
    stop: a string, or several: the text ends before the first of them.
    seed: makes the text plain sampling's for this number, whatever the draft, the plan and other texts are; that takes more sweeps.
    ignore_end: go on past the model's end tokens.
    logprobs: likeliest tokens to report with each; 0 (the default): no log probabilities.
    """

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    stop: str | Sequence[str] | None
    seed: int | None
    ignore_end: bool
    logprobs: int


@dataclass(frozen=True)
class TokenLogprob:
    """A token and its log probability: a natural log, of the model's own distribution before penalties, temperature and cuts."""

    token: int
    logprob: float
    top: list[tuple[int, float]]
    """(token, log probability) of the likeliest, best first: as many as were asked for."""


@dataclass(frozen=True)
class Text:
    """A generated text, without its prompt. str() gives the text alone."""

    text: str
    tokens: list[int]
    """Its ids; those of a stop string are the last."""
    logprobs: list[TokenLogprob]
    """Of each token, where asked for; else empty."""
    finish_reason: str
    """"stop": the model or a stop string ended it; "length": max_tokens or the context did."""
    cached_tokens: int
    """Of the prompt, that need not be read: another text began so."""
    sweeps: int
    """Over the model, that gained tokens for it."""
    seconds: float
    """Since it was asked for."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Score:
    """A text's tokens, and how likely the model finds each after those before it."""

    tokens: list[int]
    logprobs: list[TokenLogprob]
    """Of tokens[1:]: the first token follows nothing."""

    @property
    def total(self) -> float:
        """The log probability of the text after its first token, a natural log."""
        return math.fsum(one.logprob for one in self.logprobs)

    @property
    def perplexity(self) -> float:
        """exp(-total / number of scored tokens). ValueError where there are none."""
        if not self.logprobs:
            raise ValueError("a text of one token has no perplexity: nothing of it is scored")
        return math.exp(-self.total / len(self.logprobs))


class Stream(Iterator[str]):
    """Pieces of a text as they come, each of whole characters; all together they are the text.

    The text grows while nobody reads, too. close(), or leaving a `with` block, ends one that is not over.
    """

    def __init__(self, llm: LLM, generation: _canopy.Generation) -> None:
        self._llm, self._generation = llm, generation

    def __next__(self) -> str:
        """Waits for the next piece. Throws Error where a read or the device fails."""
        try:
            if piece := self._generation.next_piece():
                return piece
            self._generation.result()
        except BaseException:
            self.close()
            raise
        self._llm._log_notes()
        if self._generation.error is not None:
            raise Error(self._generation.error)
        raise StopIteration

    @property
    def result(self) -> Text:
        """The whole text; waits for its end."""
        return self._llm._text_of(self._generation)

    def close(self) -> None:
        """Ends the text, if it is not over, with the unit of weights that is at work."""
        self._generation.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LLM:
    """A model, its draft and a plan for the memory, ready to run.

    Any number of threads may use one at a time; their texts share sweeps. The interpreter's lock is released while weights are
    read and multiplied. Ctrl-C ends what is waited for within the unit of weights that is at work.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        draft: str | os.PathLike[str] | None = None,
        method: str = "auto",
        tree_nodes: int = 0,
        device: str = "auto",
        memory: int | str | None = None,
        gpu_memory: int | str | None = None,
        kv_memory: int | str | None = None,
        resident: int | str | None = None,
        threads: int = 0,
        cpus: Sequence[int] = (),
        context: int = 0,
        sequences: int = 4,
        temperature: float = 0,
        profile: str | os.PathLike[str] | None = None,
        learn: bool = True,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        """Opens a model; measures what a step costs on this machine where nobody has, once, about ten seconds; plans, and loads.

        Sizes are bytes, or texts such as "4G" and "512M" (powers of 1024).

        model: a Hugging Face directory or a GGUF file.
        draft: a smaller model with the same vocabulary, which guesses ahead.
        method: of guessing; "auto" takes what is predicted to be the fastest. docs/generate.md has the others.
        tree_nodes: guesses of each text that a sweep checks; 0: as many as are predicted to be best.
        device: "auto" (a GPU, if there is one), "cpu", "cuda" or "cuda:N".
        memory: for the whole process, the interpreter included: the plan counts what the process holds when it is made. None: 80 %
            of what is free.
        gpu_memory: of a GPU; None: all that is free.
        kv_memory: for the keys and values of all texts; None: as much as lets one text be full, next to short ones.
        resident: weights that stay where they are computed with; None: as many as fit.
        threads: that compute; 0: one per physical core.
        cpus: that they run on; none: all that the process may use.
        context: most tokens of a text, its prompt included; 0: 2048, or what the model was made for if that is less.
        sequences: most texts that share a sweep; others wait. The plan may have room for fewer.
        temperature: that the plan is made for; a text may have another.
        profile: what `canopy calibrate hardware -o FILE` wrote; None: the measurements in the user's cache.
        learn: keep in the user's cache how often the draft was right, for later plans.
        progress: called with what is being done, and the bytes that are loaded of all there are (0, 0 while it measures).

        Throws BudgetError: the memory is too small, with the ledger. Error: a model or an argument is refused.
        """
        options = _filled(
            _canopy.Options(), model=model, draft=draft, method=method, tree_nodes=tree_nodes, device=device,
            memory=_bytes(memory), gpu_memory=_bytes(gpu_memory), kv_memory=_bytes(kv_memory), resident_bytes=_bytes(resident),
            threads=threads, cpus=list(cpus), context=context, sequences=sequences, temperature=temperature, profile=profile,
            learn=learn)
        self._model = _canopy.open(options, progress)
        self._finalizer = weakref.finalize(self, self._model.close)
        self._logged: set[str] = set()
        self._log_notes()

    @overload
    def generate(self, prompt: Prompt, **sampling: Unpack[Sampling]) -> Text: ...
    @overload
    def generate(self, prompt: Prompts, **sampling: Unpack[Sampling]) -> list[Text]: ...

    def generate(self, prompt: Prompt | Prompts, **sampling: Unpack[Sampling]) -> Text | list[Text]:
        """Continues a prompt, or each of a list; those of a list share sweeps. Keywords: see Sampling.

        A text at temperature 0, and one with a seed, does not depend on the others. On a GPU, but for ties that rounding turns.
        Throws Error: a prompt does not fit the context, an argument is refused, or a read or the device fails.
        """
        alone, prompts = _listed(prompt)
        with _Together() as generations:
            for one in prompts:
                generations.append(self._admit(one, **sampling))
            texts = [self._text_of(generation) for generation in generations]
        return texts[0] if alone else texts

    def stream(self, prompt: Prompt, **sampling: Unpack[Sampling]) -> Stream:
        """Continues a prompt and returns an iterator of the pieces of the text. Keywords: see Sampling."""
        return Stream(self, self._admit(prompt, **sampling))

    def chat(self, messages: Iterable[Message], *, tools: Iterable[Mapping[str, Any]] | None = None,
             variables: Mapping[str, Any] | None = None, **sampling: Unpack[Sampling]) -> Text:
        """Answers a conversation, by the model's own chat template. Keywords: see chat_prompt() and Sampling."""
        return self.generate(self.chat_prompt(messages, tools=tools, variables=variables), **sampling)

    def stream_chat(self, messages: Iterable[Message], *, tools: Iterable[Mapping[str, Any]] | None = None,
                    variables: Mapping[str, Any] | None = None, **sampling: Unpack[Sampling]) -> Stream:
        """Does what chat() does, piece by piece."""
        return self.stream(self.chat_prompt(messages, tools=tools, variables=variables), **sampling)

    @overload
    def score(self, text: Prompt, *, top: int = 0) -> Score: ...
    @overload
    def score(self, text: Prompts, *, top: int = 0) -> list[Score]: ...

    def score(self, text: Prompt | Prompts, *, top: int = 0) -> Score | list[Score]:
        """Finds how likely a text is, or each of a list; those of a list share sweeps. Nothing is written.

        The numbers are the same bits whatever shares the sweep (on a GPU, but for the last ones).
        top: likeliest tokens to report with each. Throws Error: a text is longer than the context allows.
        """
        alone, texts = _listed(text)
        all_tokens = [self.tokenize(one) if isinstance(one, str) else list(map(int, one)) for one in texts]
        with _Together() as generations:
            for tokens in all_tokens:
                request = _filled(_canopy.Request(), tokens=tokens, max_new_tokens=0, prompt_logprobs=top)
                generations.append(self._model.admit(request))
            scores = [Score(tokens, self._result_of(generation)[3]) for tokens, generation in zip(all_tokens, generations)]
        return scores[0] if alone else scores

    def plan(self) -> dict[str, Any]:
        """Returns the method, the use of the memory (in bytes, with the ledger) and the speed that is predicted."""
        return self._model.plan()

    @property
    def notes(self) -> list[str]:
        """Each fallback that was taken, in words. They are logged as warnings of the logger "canopy", too."""
        return self._model.notes()

    @property
    def device(self) -> str:
        """The name of what computes."""
        return self._model.device()

    def tokenize(self, text: str) -> list[int]:
        """Returns the ids of a prompt, with those that the model's template begins or ends a text with."""
        return self._model.tokenize(text)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Returns the text of ids. Special tokens have none; bytes that are no character become U+FFFD."""
        return self._model.detokenize(list(map(int, tokens)))

    def chat_prompt(self, messages: Iterable[Message], *, tools: Iterable[Mapping[str, Any]] | None = None,
                    variables: Mapping[str, Any] | None = None) -> list[int]:
        """Returns the ids of a conversation, up to where the model's answer begins: a prompt.

        tools: JSON schemas. variables: more that the template may ask for, such as {"enable_thinking": False}.
        What messages say is text: special tokens come from the template alone.
        Throws Error: the model has no chat template, or it refuses the conversation.
        """
        return self._model.tokenize_conversation(
            json.dumps(list(messages)), json.dumps(list(tools)) if tools is not None else "",
            json.dumps(dict(variables)) if variables is not None else "")

    def close(self) -> None:
        """Ends all texts, within a few reads, and frees the memory. What is asked for after that is an Error."""
        self._finalizer()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _admit(self, prompt: Prompt, *, max_tokens: int | None = None, stop: str | Sequence[str] | None = None,
               logit_bias: Mapping[int, float] | None = None, **more: Any) -> _canopy.Generation:
        if unknown := more.keys() - Sampling.__annotations__.keys():
            raise TypeError(f"there is no keyword {min(unknown)!r}; Sampling has them all")
        given = {"prompt": prompt} if isinstance(prompt, str) else {"tokens": list(map(int, prompt))}
        return self._model.admit(_filled(
            _canopy.Request(), max_new_tokens=max_tokens, stop=[stop] if isinstance(stop, str) else list(stop or ()),
            logit_bias=list((logit_bias or {}).items()), **given, **more))

    def _result_of(self, generation: _canopy.Generation) -> tuple[Any, ...]:
        """Waits for the end of a text; the arguments of Text, with the scores of the prompt as the fourth."""
        try:
            result: Any = generation.result()
        except BaseException:
            generation.cancel()
            raise
        self._log_notes()
        if result is None:
            raise Error(generation.error)
        text, tokens, *scores, finish_reason, cached_tokens, sweeps, seconds = result
        logprobs, of_prompt = ([TokenLogprob(*one) for one in some] for some in scores)
        return text, tokens, logprobs, of_prompt, finish_reason, cached_tokens, sweeps, seconds

    def _text_of(self, generation: _canopy.Generation) -> Text:
        text, tokens, logprobs, _, *more = self._result_of(generation)
        return Text(text, tokens, logprobs, *more)

    def _log_notes(self) -> None:
        for note in self._model.notes():
            if note not in self._logged:
                self._logged.add(note)
                _log.warning(note)


class _Together(list[_canopy.Generation]):
    """Texts of one call: where one fails, or Ctrl-C comes, none goes on."""

    def __enter__(self) -> _Together:
        return self

    def __exit__(self, *_: object) -> None:
        for generation in self:
            generation.cancel()


def _listed(prompt: Any) -> tuple[bool, list[Prompt]]:
    """Returns if it is one prompt, not a list of them; and all that there are."""
    alone = isinstance(prompt, str) or (len(prompt) > 0 and not isinstance(prompt[0], str) and not hasattr(prompt[0], "__len__"))
    return alone, [prompt] if alone else list(prompt)


def _bytes(size: int | str | None) -> int | None:
    return _canopy.parse_size(size) if isinstance(size, str) else size


def _filled(fields: Any, **values: Any) -> Any:
    """Sets what is not None. Throws TypeError naming a value of the wrong type."""
    for name, value in values.items():
        if value is None:
            continue
        try:
            setattr(fields, name, value)
        except TypeError:
            raise TypeError(f"{name}: {value!r} is of the wrong type, or out of range") from None
    return fields
