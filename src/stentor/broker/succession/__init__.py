"""Taking a broker out of the overlay for good, without loss: a neighbor succeeds it.

What a broker answers for must not go with it: subscribers who are away will ask for what was
published here, and durable subscriptions may live here. So a broker that is drained says goodbye to
its clients (who turn to its neighbors and publish again what was not answered), waits until its
journal is on disk, and hands a copy of the journal to a neighbor. The neighbor serves it from then
on under its old stream, and takes over the durable subscriptions and what is known of producers.
For subscribers everywhere the stream has just moved: it begins afresh at another broker. Journals
that the broker had adopted itself go along.

A stream must have one owner at any time, whoever crashes when. This takes four messages:

    drained broker                                neighbor
    ──────────────                                ────────
    the copy, in pieces  ───── Handover ────▶     stores and verifies it: an offer
                         ◀─── HandedOver ────     I have it
    "handed-over" on disk: THE STREAM HAS MOVED
    I have let go        ─ Handover released ▶    keeps it for good
                         ◀─── HandedOver ────     I know

Up to the file on disk the drained broker is the owner, and any trouble just ends the attempt: the
link is closed, so that no late answer is taken for that to another offer, and the neighbor throws
the offer away when it hears from the owner again. From the file on the neighbor is the owner, and
all that may be missing is that it hears so. If the drained broker dies before it was heard, it
finds the file when it is started again; it sets the old journal aside, begins a new one under a new
stream, and repeats "I have let go" whenever it links up with that neighbor, until it is answered.
In between the stream has no owner that can be reached, as if its broker were down; it never has
two.

While it is draining, a broker makes no new links and takes nothing from clients. So what a neighbor
hears on a new link was said by an owner that has no offer under way. Only the grant by which an
offer was made can let go of its stream, and only a neighbor whose grant allows everything can hand
a journal over.

`transfer` is both ends of that conversation, `estate` what the neighbor has on disk of it, and
`succession` what it means for the broker at either end.
"""

from stentor.broker.succession.estate import Imported
from stentor.broker.succession.succession import Succession
from stentor.broker.succession.transfer import Transfer

__all__ = ["Imported", "Succession", "Transfer"]
