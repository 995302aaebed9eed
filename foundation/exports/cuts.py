"""What a cut means for the rows of others: parameters of the conditions that leave out later ones.

An operation, a snapshot or a record belongs to a round of a turn. Of the turns that were not over,
those of later rounds are left out; of turns that had not begun, all of them.
"""

from counterfoil.types.v1.export_pb2 import ExportCut

LATER = """
EXISTS (
    SELECT FROM unnest({0}::text[], {1}::integer[]) AS open (turn_id, round)
    WHERE open.turn_id = %(table)s.turn_id AND %(table)s.round > open.round
)
"""
"""Whether a row of `%(table)s` is of a later round; with the first two parameters of a cut."""


def turns_of(cut: ExportCut) -> tuple[list[str], list[int]]:
    """The turns that were not over, and their newest published rounds."""
    return [one.turn_id for one in cut.open_turns], [one.round for one in cut.open_turns]
