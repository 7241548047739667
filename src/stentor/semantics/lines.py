"""A trace as lines of JSON, one action each: how recorders write it and checkers read it.

    {"pos": 0, "op": "sub", "comp": "b", "fid": "b#1", "filter": "price > 10"}
    {"pos": 1, "op": "pub", "comp": "a", "nid": "a:0:0", "producer": "a", "seq": 0, "body": "AQ…"}
    {"pos": 2, "op": "quiescent"}

What an action does not have is left out. The members are the columns of the audit's trace table,
and some that only recorders need: an `internal` line may name its `step`. A recorder writes these,
which tell whoever joins several recordings (`stentor.semantics.interleaving`) what the actions
leave open:

    begin          a life of `comp` begins here, that is, of one client with its subscriptions
    in force       its subscription `fid` is in force: what is published from here on belongs to it
    withdrawn      it asks for `filter` no longer, also on behalf of readers that died
    acknowledged   the publications from `nid` up to the sequence number `seq` are in a journal
    attached       the reader `fid` consumes the durable subscription or group `comp`, on `terms`
    left           it does so no longer
    cut off        it has lost its connection: others may be given what it has not settled
    dealt          it has dealt with these: the first `seq` that it was given, or the ones in `nids`
    confirmed      the broker has that on disk, and they will not come again
    refused        it could not deal with the ones in `nids`
    noted          the broker has that on disk: they come again with the next `attempt`
    taken          the broker has taken the ones in `nids` back from it
"""

from __future__ import annotations

from typing import Final

import msgspec

from stentor.errors import DecodeError
from stentor.filters import Filter
from stentor.model import NotificationId, decode
from stentor.semantics.actions import (
    Action,
    Adv,
    Again,
    Attach,
    CutOff,
    Detach,
    Internal,
    Notify,
    Pub,
    Quiescent,
    ReadingTerms,
    Settle,
    Sub,
    Unadv,
    Unsub,
)

BEGIN: Final = "begin"
IN_FORCE: Final = "in force"
WITHDRAWN: Final = "withdrawn"
ACKNOWLEDGED: Final = "acknowledged"
ATTACHED: Final = "attached"
LEFT: Final = "left"
CUT_OFF: Final = "cut off"
DEALT: Final = "dealt"
CONFIRMED: Final = "confirmed"
REFUSED: Final = "refused"
NOTED: Final = "noted"
TAKEN: Final = "taken"

#: What a reader, or the broker, says of notifications that the reader was given.
WORDS: Final = frozenset({DEALT, CONFIRMED, REFUSED, NOTED, TAKEN})


class Line(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One line: an action, or a step that a recorder has noted."""

    trace: str | None = None
    pos: int
    op: str
    comp: str | None = None
    nid: str | None = None
    fid: str | None = None
    filter: str | None = None
    producer: str | None = None
    seq: int | None = None
    body: bytes | None = None
    step: str | None = None
    #: Of a delivery: the how manieth it is, by what the broker says; and whether the reader may
    #: have had it for long when it was recorded. The second is found out by who joins recordings.
    attempt: int = 1
    late: bool = False
    nids: list[str] = []
    terms: ReadingTerms | None = None

    def encoded(self) -> bytes:
        """As it stands in a file, with its newline.

        >>> Line(pos=3, op="unsub", comp="b", fid="b#1").encoded()
        b'{"pos":3,"op":"unsub","comp":"b","fid":"b#1"}\\n'
        """
        return _encode(self) + b"\n"

    def action(self) -> Action:
        """The action. A filter's id is its text, and its component's name is as it is here."""
        match self:
            case Line(op="sub", comp=str(comp), fid=str(fid), filter=str(filter)):
                return Sub(comp, fid, Filter(filter))
            case Line(op="unsub", comp=str(comp), fid=str(fid)):
                return Unsub(comp, fid)
            case Line(op="adv", comp=str(comp), fid=str(fid), filter=str(filter)):
                return Adv(comp, fid, Filter(filter))
            case Line(op="unadv", comp=str(comp), fid=str(fid)):
                return Unadv(comp, fid)
            case Line(op="pub", comp=str(comp), body=bytes(body)):
                return Pub(comp, decode(body))
            case Line(op="notify", comp=str(comp), body=bytes(body)):
                return Notify(comp, decode(body), self.fid, self.attempt, self.late)
            case Line(op="again", comp=str(comp), body=bytes(body)):
                return Again(comp, decode(body), self.fid, self.attempt, self.late)
            case Line(step="attached", comp=str(comp), fid=str(fid), terms=ReadingTerms() as terms):
                return Attach(comp, fid, terms)
            case Line(step="left", comp=str(comp), fid=str(fid)):
                return Detach(comp, fid)
            case Line(step="cut off", comp=str(comp), fid=str(fid)):
                return CutOff(comp, fid)
            case Line(step=str(word), comp=str(comp), fid=str(fid)) if word in WORDS:
                return Settle(comp, fid, word, tuple(map(NotificationId.parse, self.nids)))
            case Line(op="quiescent"):
                return Quiescent()
            case Line(op="internal"):
                return Internal(self.step or "")
        raise DecodeError(f"the line at position {self.pos} makes no sense as {self.op!r}")


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Line).decode


def decoded(text: bytes) -> Line:
    """The line that a file holds; `DecodeError` if it is none.

    >>> decoded(b'{"pos":1,"op":"quiescent"}').action()
    Quiescent()
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"this is not a line of a trace: {error}") from None
