"""From live pieces to public previews: the same events, by id and index, that the answer becomes.

Pure. A message event is a run of adjacent text blocks; its index, like that of a thinking event,
is the index of its first block (see `services.runner.answer.segments_of`).
"""

from collections.abc import Callable

from counterfoil.ledger.v1 import turn_pb2

from services.runner.adapter import Piece

_NO_BLOCK = -2


class Previewer:
    """Follows one answer; `event_id` gives the id of the event whose first block has an index."""

    def __init__(self, event_id: Callable[[int], str]) -> None:
        self._event_id = event_id
        self._run_first = self._run_last = _NO_BLOCK
        self._shown = 0
        """Blocks of the run that have had text: an accumulator refuses an index that skips one."""

    def add(self, piece: Piece) -> list[turn_pb2.Preview]:
        """What a piece means to subscribers, in order; often nothing."""
        if piece.kind == "thinking":
            id = self._event_id(piece.block_index)
            return [turn_pb2.Preview(event_id=id, type="agent.thinking")]
        previews: list[turn_pb2.Preview] = []
        if piece.block_index > self._run_last:
            if piece.block_index != self._run_last + 1:
                self._run_first = piece.block_index
                self._shown = 0
                previews.append(self._preview())
            self._run_last = piece.block_index
        if piece.text:
            previews += self._text(piece.block_index - self._run_first, piece.text)
        return previews

    def _text(self, index: int, text: str) -> list[turn_pb2.Preview]:
        skipped = [self._preview(at, "") for at in range(self._shown, index)]
        self._shown = max(self._shown, index + 1)
        return [*skipped, self._preview(index, text)]

    def _preview(self, index: int = 0, text: str | None = None) -> turn_pb2.Preview:
        return turn_pb2.Preview(
            event_id=self._event_id(self._run_first),
            type="agent.message",
            content_index=index,
            text=text,
        )
