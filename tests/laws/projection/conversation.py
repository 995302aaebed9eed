"""Draws what a thread's user, its model and its tools say, and the accidents of its owner."""

import json
from typing import Any, ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from foundation import canonical
from services.context.summary import HEADINGS
from tests.laws.projection import expected
from tests.laws.projection.authorities import Crash, Memory
from tests.laws.projection.play import Play
from tests.laws.projection.writer import STORED, Writer
from tests.services.context.histories import ABANDONED, CONTINUE, NOTE, text, use

WINDOWS = (8_000, 8_000, 24_000, 60_000)
WORDS = st.text(max_size=12)
"""Any Unicode but halves of surrogate pairs, which nothing lets in."""
TOOL_WORDS = st.text(st.characters(exclude_categories=[]), max_size=12)
SIZES = st.sampled_from((0, 700, 3_000, 9_000, 9_000, 20_000))
SMALL = 700
IMAGES = ("image/png", "image/jpeg")
MOST = expected.IMAGE_MAX
IDS = st.sampled_from((["a"], ["a", "b"], ["a", "b", "a"]))
ACCIDENTS = ("none", "none", "none", "crash", "rival", "twin", "silence")

IMAGE_BUDGETS = (12 * 2**20, 0, 7 * 2**20)
"""Bytes of result images that profiles send: those of ours, of a model without vision, and of one
with a tiny budget."""

_FILLER = "it must stay as it is; next: docs/plan.md is still open. "


class Theme(NamedTuple):
    """What most results are."""

    kinds: tuple[str, ...]
    sizes: st.SearchStrategy[int]
    window: int = 0
    """Where the thread begins; 0 for any."""


THEMES = {
    "everything": Theme(("text", "text", "json", "content", "denied", "failure"), SIZES),
    "images": Theme(("content", "content", "text"), st.sampled_from((0, 700)), 60_000),
    "large": Theme(("text", "text", "json"), st.sampled_from((9_000, 9_000, 3_000)), 24_000),
}


def filled(words: str, size: int) -> str:
    return f"{words} {(_FILLER * (size // len(_FILLER) + 1))[:size]}"


def is_idle(machine: "Conversation") -> bool:
    """No turn runs."""
    return machine.play.phase == "idle"


def is_asked(machine: "Conversation") -> bool:
    """A turn runs, and the model is to be asked next."""
    return machine.play.phase == "asked"


class Conversation(RuleBasedStateMachine):
    """A thread and its owner."""

    themes: ClassVar[tuple[str, ...]] = tuple(THEMES)
    image_budgets: ClassVar[tuple[int, ...]] = IMAGE_BUDGETS[:1]

    def opened(self, mode: Any) -> Memory:
        """Where the thread lives."""
        return Memory(mode)

    @initialize(
        window=st.sampled_from(WINDOWS),
        prunes=st.sampled_from((True, True, False)),
        by_model=st.booleans(),
        data=st.data(),
    )
    def begin(self, window: int, prunes: bool, by_model: bool, data: st.DataObject) -> None:
        self.memory = self.opened("model" if by_model else "extractive")
        self.theme = THEMES[data.draw(st.sampled_from(self.themes))]
        budget = data.draw(st.sampled_from(self.image_budgets))
        self.play = Play(self.memory, self.theme.window or window, prunes, budget)
        self.writer = Writer(self.play)
        self.images = 0

    def teardown(self) -> None:
        if hasattr(self, "play"):
            try:
                self.play.judge_the_past()
            finally:
                self.play.close()

    # The user and the model

    @precondition(is_idle)
    @rule(words=WORDS, size=SIZES, images=st.integers(-3, 2), blank=st.integers(0, 9))
    def user_says(self, words: str, size: int, images: int, blank: int) -> None:
        if blank == 0:
            self.memory.transcript.append(
                NOTE, f"turn_{self.play.turn + 1}", blocks=[self.play.small("it finished")]
            )
        blocks = [text(self.play.marked(filled(words, size)))] if blank != 1 else [text(" \n")]
        for _ in range(images):
            data = json.dumps(self.play.marked("A" * 3_000))
            blocks.append(
                b'{"type":"image","source":{"type":"base64","media_type":"image/png",'
                b'"data":%b}}' % data.encode()
            )
        self.play.say(*blocks, is_small=size <= SMALL and images <= 0)

    @precondition(is_asked)
    @rule(data=st.data(), rounds=st.integers(1, 5), usage=st.sampled_from((0.0, 0.0, 0.7, 1.4)))
    def model_calls(self, data: st.DataObject, rounds: int, usage: float) -> None:
        for _ in range(rounds):
            ids = data.draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4))
            if not self.prepared(data):
                return
            self.calls(data, ids, usage)

    def calls(self, data: st.DataObject, ids: list[str], usage: float) -> None:
        words = [text(self.play.marked(data.draw(WORDS)))] if data.draw(st.booleans()) else []
        thought = b'{"type":"thinking","thinking":"","signature":"s"}'
        calls = [use(id, json.dumps({"n": data.draw(st.integers(0, 2))})) for id in ids]
        self.play.answer(thought, *words, *calls, usage=self.measured(usage))
        if data.draw(st.integers(0, 4)) == 0:
            # Nobody is asked while a call is open, and none is left out instead.
            self.play.number += 1
            assert self.play.fails(self.play.request()) == "WRONG_STATE"
            self.play.number -= 1
        bodies = [self.projection(data) for _ in ids]
        order = data.draw(st.permutations(range(len(ids))))
        trailing = [self.play.small("steered")] if data.draw(st.integers(0, 4)) == 0 else []
        self.play.results(bodies, trailing, order)

    @precondition(is_idle)
    @rule(data=st.data(), words=WORDS, turns=st.lists(st.integers(0, 4), min_size=1, max_size=3))
    def whole_turns(self, data: st.DataObject, words: str, turns: list[int]) -> None:
        """Turns of so many rounds, which nothing disturbs but accidents."""
        for rounds in turns:
            if data.draw(st.integers(0, 3)) == 0:
                self.play.model = "offline" if self.play.model != "offline" else "offline-b"
            self.play.say(text(self.play.marked(words)), is_small=True)
            for _ in range(rounds):
                if not self.prepared(data):
                    return
                self.calls(data, data.draw(IDS), 0.0)
            if not self.prepared(data):
                return
            self.play.answer(text(self.play.marked(filled(words, data.draw(SIZES)))))
            self.play.phase = "idle"

    @precondition(is_asked)
    @rule(
        data=st.data(),
        words=WORDS,
        size=SIZES,
        how=st.sampled_from(("final", "final", "cut", "abandoned")),
        usage=st.sampled_from((0.0, 0.7, 1.4)),
    )
    def model_says(
        self, data: st.DataObject, words: str, size: int, how: str, usage: float
    ) -> None:
        if not self.prepared(data):
            return
        blocks = [text(self.play.marked(filled(words, size)))]
        if data.draw(st.integers(0, 5)) == 0:
            blocks.append(b'{"type":"thinking","thinking":"So"}')
        answer = self.play.answer(*blocks, usage=self.measured(usage))
        if how == "final":
            self.play.phase = "idle"
        elif how == "abandoned":
            self.play.epoch += 1
            self.memory.transcript.append(
                ABANDONED, self.play.turn_id, skipped_entry_ids=[answer.id]
            )
        else:
            self.memory.transcript.append(
                CONTINUE, self.play.turn_id, blocks=[self.play.small("continue")]
            )
            self.play.round, self.play.number = self.play.round + 1, 0

    @precondition(is_asked)
    @rule()
    def turn_is_taken_out(self) -> None:
        self.play.withhold()

    def prepared(self, data: st.DataObject, overflowed: str = "") -> bool:
        """The next request was made; accidents may happen meanwhile."""
        self.play.summaries = lambda bytes_max: self.model_summary(data)
        accident = data.draw(st.sampled_from(ACCIDENTS))
        memory = self.memory.records
        if accident == "silence":
            self.store_is_silent(overflowed)
        if accident == "crash":
            memory.after_record = self.crash
        elif accident == "rival":
            memory.before_record = self.rival
        elif accident == "twin":
            memory.before_record = self.twin
        try:
            return self.play.prepare(overflowed)
        finally:
            memory.before_record = memory.after_record = None

    def store_is_silent(self, overflowed: str) -> None:
        """A request with images is not made while their bytes cannot be had (P26); what it is
        afterwards, every other check tells."""
        wants = any(
            part["type"] == "image" or part.get("text") == expected.GONE
            for _, message in self.play.placed(self.memory.rows(), len(self.play.entries))
            for block in message["content"]
            if block["type"] == "tool_result"
            for part in block.get("content", ())
        )
        if wants:
            self.memory.artifacts.is_down = True
            try:
                request = self.play.request(overflowed)
                request.attempt.number += 1
                assert self.play.fails(request, self.memory.process()) == "UNAVAILABLE"
            finally:
                self.memory.artifacts.is_down = False

    def crash(self) -> None:
        raise Crash

    def rival(self) -> None:
        """Another writer gets in between a decision and its record."""
        targets = self.writer.targets(covered=False)
        if targets:
            assert self.writer.write(self.writer.decided(targets[0])) == STORED

    def twin(self) -> None:
        """Another process prepares the same round at the same time."""
        request = self.play.request()
        request.attempt.number += 50
        self.memory.run(self.memory.process().prepare(request))

    def model_summary(self, data: st.DataObject) -> str:
        drawn = data.draw(st.sampled_from(("good", "cut", "nothing")))
        sections = [f"## {heading}\n- something of {heading}\n" for heading in HEADINGS]
        good = "\n".join(sections) + "x" * 120
        return {"good": good, "cut": good[:90], "nothing": ""}[drawn]

    def measured(self, factor: float) -> dict[str, int] | None:
        tokens = int(len(self.play.made[-1].body) / 3 * factor)
        return {"input_tokens": tokens, "output_tokens": 10} if tokens else None

    def projection(self, data: st.DataObject) -> bytes:
        """A result of any kind."""
        kind = data.draw(st.sampled_from(self.theme.kinds))
        said = self.play.marked(filled(data.draw(TOOL_WORDS), data.draw(self.theme.sizes)))
        error = {"is_error": True} if data.draw(st.integers(0, 4)) == 0 else {}
        match kind:
            case "text":
                return canonical.encode({"v": 1, "kind": "text", "text": said, **error})
            case "json":
                value = {"said": said, "enum": [2, 1], "n": 1.0}
                return canonical.encode({"v": 1, "kind": "json", "value": value, **error})
            case "denied":
                return canonical.encode({"v": 1, "kind": "denied", "reason": said[:300]})
            case "failure":
                return b'{"code":"projection_too_large","kind":"failure","v":1}'
            case _:
                parts = [{"kind": "text", "text": said}]
                parts += [self.artifact(data) for _ in range(data.draw(st.integers(1, 2)))]
                return canonical.encode({"v": 1, "kind": "content", "parts": parts, **error})

    def artifact(self, data: st.DataObject) -> dict[str, Any]:
        self.images += 1
        id = f"art_{self.images}"
        media = data.draw(st.sampled_from((*IMAGES, *IMAGES, "text/plain")))
        if data.draw(st.integers(0, 7)):
            self.memory.artifacts.bodies[id] = f"bytes of {id}".encode()
        part = {"artifact_id": id, "kind": "artifact", "media_type": media, "sha256": "0" * 64}
        size = data.draw(st.sampled_from((MOST, MOST, MOST + 1, 1)))
        return part | {"size": size, "h": 9, "w": 9}
