"""Plans where a summary of the beginning of a history ends: always between two rounds. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from services.context.losses import Losses
from services.context.materializer import item_tokens, tokens_of
from services.context.reducer import Item


class Cut(NamedTuple):
    """Where a summary ends: before `items[place]`."""

    place: int
    through_seq: int
    through_digest: bytes
    anchor_seq: int
    tokens_kept: int
    """Estimate of what is shown behind the summary, the anchor included."""


def plan_cut(
    items: Sequence[Item], losses: Losses, room: int, *, covers_unseen: bool
) -> Cut | None:
    """The earliest boundary behind which no more than `room` tokens are kept, else the last one;
    None when there is no boundary.

    With `covers_unseen` also results that the model has not read may be covered.
    """
    cuts = _cuts(items, losses, covers_unseen=covers_unseen)
    if not cuts:
        return None
    chosen = next((cut for cut in cuts if cut.tokens_kept <= room), cuts[-1])
    covered = items[: chosen.place]
    anchor = [one for one in covered if (one.kind, one.seq) == ("input", chosen.anchor_seq)]
    # Each item was weighed by itself; together, some of their images may find no room.
    return chosen._replace(tokens_kept=tokens_of([*anchor, *items[chosen.place :]]))


def plan_repair(items: Sequence[Item], losses: Losses) -> Cut | None:
    """Where the revoked summary ended, or the last boundary before that; None when there is none.
    What was covered is not shown again in full only because it is summarized again."""
    cuts = _cuts(items, losses, covers_unseen=True)
    before = [cut for cut in cuts if cut.through_seq <= losses.revoked_through]
    return before[-1] if before else None


def _cuts(items: Sequence[Item], losses: Losses, *, covers_unseen: bool) -> list[Cut]:
    kept = [0] * (len(items) + 1)
    for index in range(len(items) - 1, -1, -1):
        kept[index] = kept[index + 1] + item_tokens(items[index])
    cuts, anchors = list[Cut](), _anchors(items)
    for index in range(1, len(items) + 1):
        last = items[index - 1]
        if last.kind == "summary" or last.seq <= losses.covered_through:
            continue
        if not _is_boundary(items, index) or (index == len(items) and not covers_unseen):
            continue
        anchor = anchors.get(last.turn_id) if _goes_on(items, index) else None
        tokens = kept[index] + (item_tokens(anchor) if anchor else 0)
        seq = anchor.seq if anchor else 0
        cuts.append(Cut(index, last.seq, last.entry_digest, seq, tokens))
    return cuts


def _is_boundary(items: Sequence[Item], index: int) -> bool:
    """Whether a round or a turn ends before `items[index]`."""
    last = items[index - 1]
    if last.kind == "results":
        return True
    return index < len(items) and items[index].turn_id != last.turn_id


def _anchors(items: Sequence[Item]) -> dict[str, Item]:
    """The input of each turn: the last one before its first answer."""
    found: dict[str, Item] = {}
    begun: set[str] = set()
    for item in items:
        if item.kind != "input":
            begun.add(item.turn_id)
        elif item.turn_id and item.turn_id not in begun:
            found[item.turn_id] = item
    return found


def _goes_on(items: Sequence[Item], index: int) -> bool:
    """Whether the turn before `items[index]` goes on behind it."""
    return index == len(items) or items[index].turn_id == items[index - 1].turn_id
